"""Sending of approved retry plans: one plan of each plant at a time, under a lease and its fencing number.

    staging   all messages are written to a list or queue of their own; after a crash it is written again
    sending   messages are moved from there to their queues, each exactly once (`RetryOutlet`)

A process may die anywhere, and the next one continues: what was sent is what is no longer staged. If a process was
frozen past its lease, two of them may send for a moment, and each message is still moved once. A process that is frozen
while it stages writes to a staging of its own, which nobody sends.
"""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

import redis

from common.errors import BadInput, WeirError
from common.stored_document import convert, convert_to_plain
from workers.coordination.leases import Lease
from workers.observability.spans import span
from workers.plants.foreign.retry_outlet import DestinationMissing, RetryOutlet, StagingLost
from workers.plants.registry import UnknownPlant
from workers.retries import outcomes, pacing
from workers.retries.budget import PlanBudget, open_budget
from workers.retries.dead_letter_outlet import DeadLetterOutlet
from workers.retries.items import RetryItem, build_new_id, build_task, decode_items
from workers.retries.models import RetryPlan
from workers.retries.pacing import Health, RetryPace
from workers.retries.plans import ACTIVE, State, get_limits
from workers.retries.watched_alerts import list_alerts

logger = logging.getLogger(__name__)
LEASE_SECONDS = 15.0
STEP_SECONDS, HEALTH_SECONDS = 0.2, 1.0
# A process then starts anew, with the next plan of the plant. A worker that shuts down may wait for it.
PASS_SECONDS = 60.0
# After a pause no more than this is made up for: a pace must not burst.
MAX_ELAPSED_SECONDS = 0.5
# More messages than a dead process can have sent without recording it.
MIN_VANISHED, VANISHED_SECONDS = 1_000, 30.0
OutletOpener = Callable[[RetryPlan, str], RetryOutlet]  # plan, name of the staging


class RetryPlanOvertaken(WeirError):  # noqa: N818
    """The plan was paused or ended, or another process advances it: this one leaves no trace."""


@dataclass(frozen=True)
class PlanClock:
    """Time as the sending process sees it."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def list_active_plants() -> list[str]:
    """Return the plants that have a plan to advance."""
    return sorted(set(RetryPlan.objects.filter(state__in=ACTIVE).values_list("plant", flat=True)))


def advance(plant: str, control: redis.Redis, open_outlet: OutletOpener, clock: PlanClock | None = None) -> None:
    """Advance the oldest active plan of a plant for some minutes; do nothing while another process advances it."""
    plan = RetryPlan.objects.filter(plant=plant, state__in=ACTIVE).defer("items").order_by("pk").first()
    if plan is None:
        return
    lease = Lease(control, f"retry:{plant}", LEASE_SECONDS, at_least=plan.fence)
    with lease as fence:
        if fence is None:
            return
        with span("advance retry plan", plan=plan.pk), lease.keep_renewed():
            try:
                _PlanRun(plan.pk, fence, control, open_outlet, clock or PlanClock()).run()
            except RetryPlanOvertaken:
                logger.info("Retry plan %s was paused, ended, or is advanced by another process.", plan.pk)
            except WeirError as error:
                # Nothing is undone: the next run continues from here.
                logger.warning("Retry plan %s is waiting: %s", plan.pk, error)
                RetryPlan.objects.filter(pk=plan.pk, fence=fence, state__in=ACTIVE).update(note=f"Waiting: {error}")


class _PlanRun:
    """One process's work on one plan."""

    def __init__(
        self, number: int, fence: int, control: redis.Redis, open_outlet: OutletOpener, clock: PlanClock
    ) -> None:
        self._number, self._fence, self._control = number, fence, control
        self._open_outlet, self._clock = open_outlet, clock

    def run(self) -> None:
        claimed = RetryPlan.objects.filter(pk=self._number, fence__lt=self._fence, state__in=ACTIVE)
        if not claimed.update(fence=self._fence):
            return
        plan = RetryPlan.objects.get(pk=self._number)
        try:
            if plan.state in (State.APPROVED, State.STAGING):
                self._write_staging(plan)
            if plan.state == State.SENDING:
                self._send(plan)
            if plan.state == State.ENDING:
                self._end(plan)
        except UnknownPlant as error:
            self._write(plan, state=State.ENDED, note=f"{error}", ended_at=self._get_time())
        except (DestinationMissing, StagingLost, BadInput) as error:
            self._write(plan, state=State.PAUSED, note=f"Stopped: {error}")

    def _write_staging(self, plan: RetryPlan) -> None:
        """Write all messages; nothing is sent before all are there."""
        if plan.staging:
            self._discard(plan)
        name = f"{plan.pk}.{self._fence}"
        # The name is stored first: whatever happens, the next process deletes what was written.
        self._write(plan, state=State.STAGING, staging=name, note="")
        created_at = plan.created_at.timestamp()
        tasks = [build_task(item, plan.pk, created_at) for item in decode_items(plan.items)]
        outlet = self._open_outlet(plan, name)
        try:
            outlet.count_waiting(sorted(plan.queues))  # they exist
            staged = outlet.write_staging(tasks)
        finally:
            outlet.close()
        if staged != plan.total:
            raise DestinationMissing(f"{plan.plant} stored {staged:,} of {plan.total:,} messages.")
        self._write(plan, state=State.SENDING, started_at=self._get_time(), sent=0)

    def _send(self, plan: RetryPlan) -> None:
        with (
            closing(self._open_outlet(plan, plan.staging)) as outlet,
            closing(open_budget(plan, self._control, self._clock.now)) as budget,
        ):
            _Sending(plan, outlet, budget, self._clock, self._write).run()

    def _end(self, plan: RetryPlan) -> None:
        if plan.staging:
            outlet = self._open_outlet(plan, plan.staging)
            try:
                if plan.started_at is not None:
                    self._record_sent(plan, outlet)
                outlet.discard()
            finally:
                outlet.close()
        state = State.DONE if plan.sent == plan.total else State.ENDED
        self._write(plan, state=state, ended_at=self._get_time())

    def _record_sent(self, plan: RetryPlan, outlet: RetryOutlet) -> None:
        """Store how much was sent, before the staging that shows it is deleted."""
        try:
            self._write(plan, sent=plan.total - outlet.count_staged())
        except StagingLost:
            logger.info("The staging of retry plan %s is deleted already.", plan.pk)

    def _discard(self, plan: RetryPlan) -> None:
        outlet = self._open_outlet(plan, plan.staging)
        try:
            outlet.discard()
        finally:
            outlet.close()

    def _get_time(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)

    def _write(self, plan: RetryPlan, **values: object) -> None:
        ours = RetryPlan.objects.filter(pk=plan.pk, fence=self._fence, state=plan.state)
        if not ours.update(**values):
            raise RetryPlanOvertaken(f"Retry plan {plan.pk} is no longer advanced by this process.")
        for name, value in values.items():
            setattr(plan, name, value)


class _Sending:
    """The sending of one plan by one process, until it is done, stops, or the pass is over."""

    def __init__(
        self, plan: RetryPlan, outlet: RetryOutlet, budget: PlanBudget, clock: PlanClock, write: Callable[..., None]
    ) -> None:
        self._plan, self._outlet, self._budget, self._clock, self._write = plan, outlet, budget, clock, write
        created_at, items = plan.created_at.timestamp(), decode_items(plan.items)
        self._ids, self._queues = _NewIds(plan.pk, created_at, items), [item.queue for item in items]
        self._open: dict[int, float] = {int(position): float(at) for position, at in plan.open_tasks}
        self._limits = get_limits(plan)
        self._pace = convert(RetryPace, plan.pace, "pace") if plan.pace else pacing.start(self._limits, clock.now())
        self._left = plan.total - plan.sent
        self._waiting = 0

    def run(self) -> None:
        began_at = checked_at = stepped_at = self._clock.monotonic()
        self._measure()
        if self._check_health():
            return
        credit = 0.0
        while (now := self._clock.monotonic()) - began_at < PASS_SECONDS:
            if now - checked_at >= HEALTH_SECONDS:
                checked_at = now
                self._measure()
                if self._check_health(is_settled=now - began_at >= self._outlet.settle_seconds):
                    return
            credit += self._pace.rate * min(MAX_ELAPSED_SECONDS, now - stepped_at)
            stepped_at = now
            credit = min(credit, max(1.0, self._pace.rate * MAX_ELAPSED_SECONDS))
            room = pacing.count_allowed(self._pace) - len(self._open)
            wanted = min(int(credit), room, self._left)
            if wanted > 0 and (most := self._take_budget(wanted)):
                sent = self._outlet.send(most)
                credit -= sent
                self._left -= sent
                self._note_sent(self._plan.sent + sent)
            self._clock.sleep(STEP_SECONDS)

    def _take_budget(self, wanted: int) -> int:
        """Return how many of the next tasks the retry budget pays for."""
        sent = self._plan.sent
        return self._budget.take(self._queues[sent : sent + wanted])

    def _measure(self) -> None:
        """Count what is left: also what a process sent that died before it recorded it."""
        self._left = self._outlet.count_staged()
        unrecorded = self._plan.total - self._left - self._plan.sent
        if unrecorded > max(MIN_VANISHED, VANISHED_SECONDS * self._pace.rate):
            raise StagingLost(f"{unrecorded:,} staged messages have disappeared from {self._plan.plant}.")
        self._note_sent(self._plan.total - self._left)
        self._waiting = self._outlet.count_waiting(sorted(self._plan.queues))

    def _note_sent(self, sent: int) -> None:
        now = self._clock.now()
        for position in range(self._plan.sent, sent):
            self._open[position] = now
        self._plan.sent = max(self._plan.sent, sent)

    def _check_health(self, is_settled: bool = False) -> bool:
        """Take what was heard into account, and store the progress; return True if sending ends here."""
        plan, now = self._plan, self._clock.now()
        if isinstance(self._outlet, DeadLetterOutlet):
            heard = self._outlet.read_outcomes(self._open, now)
        else:
            heard = outcomes.read_outcomes(plan.plant, self._open, self._ids, now, self._waiting)
        for position in [*heard.ended, *heard.unheard]:
            del self._open[position]
        failed = sum(bool(outcome.error) for outcome in heard.ended.values())
        plan.failed += failed
        plan.succeeded += len(heard.ended) - failed
        plan.unheard += len(heard.unheard)
        self._budget.record(heard.ended.values())
        waits_for = self._budget.explain_wait()
        health = Health(
            at=now,
            outcomes=list(heard.ended.values()),
            is_limited=bool(waits_for),
            waiting=self._waiting,
            alerts=list_alerts(plan.plant, datetime.fromtimestamp(self._pace.started_at, UTC)),
            unheard=plan.unheard,
            heard=plan.succeeded + plan.failed,
        )
        self._pace = pacing.adjust(self._pace, health, self._limits)
        slowed = self._pace.because and f"Slowed down: {self._pace.because}."
        state, note = State.SENDING, waits_for or slowed
        if why := pacing.explain_stop(self._pace, health):
            state, note = State.PAUSED, f"Stopped after {plan.sent:,} of {plan.total:,}: {why}."
        elif not self._left and not self._open and is_settled:
            state, note = State.ENDING, ""
        self._write(
            plan,
            state=state,
            note=note,
            sent=plan.sent,
            succeeded=plan.succeeded,
            failed=plan.failed,
            unheard=plan.unheard,
            open_tasks=[[position, round(at, 1)] for position, at in self._open.items()],
            pace=convert_to_plain(self._pace),
        )
        return state != State.SENDING


class _NewIds(dict[int, str]):
    """Position → the new id of its task, computed when it is needed."""

    def __init__(self, plan: int, created_at: float, items: list[RetryItem]) -> None:
        super().__init__()
        self._plan, self._created_at, self._items = plan, created_at, items

    def __missing__(self, position: int) -> str:
        return build_new_id(self._plan, self._created_at, self._items[position].id)
