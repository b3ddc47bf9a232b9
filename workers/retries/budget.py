"""The retry budget that a plan draws on: that of what its tasks call, which handlers of queues draw on, too.

A plan of dead letters draws on the budget of what the handler of each queue calls, and its workers report the calls. A
plan of an attached plant names what its tasks call. It reports their outcomes as calls: they are retries.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import redis

from controllers.retries.circuit import DestinationCalls
from queues import projection
from workers.consumer.destination import DestinationLimit, NoLimit, SharedLimit, build_limit
from workers.retries.models import RetryPlan
from workers.retries.pacing import RetryOutcome

_WITHOUT_LIMIT = NoLimit()


class PlanBudget:
    """The limits by queue. reports: whether the plan reports the outcomes of its tasks as calls."""

    def __init__(self, limits: Mapping[str, DestinationLimit], reports: bool) -> None:
        self._limits, self._reports = limits, reports
        self._waits_for: DestinationLimit | None = None

    def take(self, queues: Sequence[str]) -> int:
        """Return how many of the next tasks may be sent now. queues: theirs, in the order of sending."""
        taken = 0
        for limit, those in itertools.groupby(queues, key=self._get_limit):
            wanted = len(list(those))
            granted = limit.take_retries(wanted)
            taken += granted
            if granted < wanted:
                self._waits_for = limit
                return taken
        self._waits_for = None
        return taken

    def explain_wait(self) -> str:
        """Return what the next task waits for, as a sentence; "" if the last ones asked for were granted."""
        return self._waits_for.explain_wait() if self._waits_for else ""

    def record(self, outcomes: Iterable[RetryOutcome]) -> None:
        """Report the ends of tasks, unless workers report them."""
        errors = [outcome.error for outcome in outcomes] if self._reports else []
        failures = [error for error in errors if error]
        calls = DestinationCalls(0, len(errors) - len(failures), len(failures), failures[-1] if failures else "")
        for limit in self._list_limits() if errors else []:
            limit.record(calls)

    def close(self) -> None:
        for limit in self._list_limits():
            limit.close()

    def _get_limit(self, queue: str) -> DestinationLimit:
        return self._limits.get(queue, _WITHOUT_LIMIT)

    def _list_limits(self) -> list[DestinationLimit]:
        return list({id(limit): limit for limit in self._limits.values()}.values())


def open_budget(plan: RetryPlan, control: redis.Redis, clock: Callable[[], float]) -> PlanBudget:
    """Return the budget that a plan draws on."""
    if plan.kind == RetryPlan.Kind.TASKS:
        limit = SharedLimit(control, "", get_called(plan), clock)
        return PlanBudget(dict.fromkeys(plan.queues, limit), reports=True)
    specs = projection.read_database().queues
    limits = {queue: build_limit(control, specs[queue], clock) for queue in plan.queues if queue in specs}
    return PlanBudget(limits, reports=False)


def get_called(plan: RetryPlan) -> str:
    """Return what the tasks of an attached plant call: the plant itself, unless the plan names it."""
    return plan.calls or plan.plant
