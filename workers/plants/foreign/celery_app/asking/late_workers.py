"""Workers that did not answer when a person paused a queue or limited a rate: a busy host answers late.

An intervention asks the workers that answer at the time. The observer of the app asks the other workers once they
answer, as long as the intervention is in force. It first records what each worker had, so that undoing the intervention
includes it. A worker that was started since has the setup of its owner, and keeps it.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import redis

from common.stored_document import encode_document, replace_fields
from workers.plants.foreign import interventions
from workers.plants.foreign.celery_app.interventions import LIMIT, PAUSE
from workers.plants.foreign.celery_app.remote_control import RemoteControl, WorkerPool
from workers.plants.foreign.interventions import Intervention

# A worker that does not comply is asked again after this time.
REPEAT_SECONDS = 30.0
Noted = Mapping[str, tuple[str, float]]  # worker → (its former value, time in seconds since 1970)
Limits = Mapping[str, Mapping[str, str]]  # worker → name of a task → its rate limit
logger = logging.getLogger(__name__)


class NotedInterventions(Protocol):
    """The recorded interventions of one app."""

    def load_all(self) -> Sequence[Intervention]:
        """Return the recorded interventions."""
        ...

    def replace(self, noted: Intervention, by: Intervention) -> bool:
        """Replace an intervention. Return False, and do nothing, if it was undone or changed meanwhile."""
        ...


class SharedInterventions:
    """Interventions that are stored on the control server."""

    def __init__(self, control: redis.Redis, plant: str) -> None:
        self._control, self._plant = control, plant

    def load_all(self) -> Sequence[Intervention]:
        return interventions.list_active(self._control, self._plant)

    def replace(self, noted: Intervention, by: Intervention) -> bool:
        return interventions.replace(self._control, self._plant, noted, encode_document(by))


class NoInterventions:
    """No interventions, for an observer that works alone."""

    def load_all(self) -> Sequence[Intervention]:
        return ()

    def replace(self, noted: Intervention, by: Intervention) -> bool:
        return False


class LateWorkers:
    """The late workers of one app. clock: seconds since 1970."""

    def __init__(self, control: RemoteControl, noted: NotedInterventions, clock: Callable[[], float]) -> None:
        self._control, self._noted, self._clock = control, noted, clock
        self.paused: frozenset[str] = frozenset()  # paused queues at the last request
        self._asked_at: dict[tuple[str, str], float] = {}  # (worker, field) → when

    def ask(self, pools: Sequence[WorkerPool], limits: Limits) -> None:
        """Ask the workers that were not asked yet, or that do not comply. pools: the latest answers."""
        now = self._clock()
        self._asked_at = {key: at for key, at in self._asked_at.items() if now - at < REPEAT_SECONDS}
        noted = self._noted.load_all()
        self.paused = frozenset(
            intervention.subject for intervention in noted if intervention.kind == PAUSE and intervention.until > now
        )
        for intervention in noted:
            before = (
                json.loads(intervention.before)
                if intervention.kind in (PAUSE, LIMIT) and intervention.until > now
                else {}
            )
            late = _list_late_values(intervention, before, pools, limits, now) if before else {}
            late = {worker: was for worker, was in late.items() if (worker, intervention.field) not in self._asked_at}
            if late and self._note(intervention, before, late, now):
                self._order(intervention, late, now)

    def _note(self, each: Intervention, before: Noted, late: Mapping[str, str], now: float) -> bool:
        more = {worker: (was, now) for worker, was in late.items() if worker not in before}
        return not more or self._noted.replace(each, replace_fields(each, before=json.dumps({**before, **more})))

    def _order(self, each: Intervention, late: Mapping[str, str], now: float) -> None:
        self._asked_at |= {(worker, each.field): now for worker in late}
        if each.kind == PAUSE:
            failed = self._control.order_all("cancel_consumer", list(late), queue=each.subject)
        else:
            arguments = {"task_name": each.subject, "rate_limit": each.value}
            failed = self._control.order_all("rate_limit", list(late), **arguments)
        for worker, error in failed.items():
            logger.warning("%s did not carry out %s: %s", worker, each.field, error)


def _list_late_values(
    each: Intervention, before: Noted, pools: Sequence[WorkerPool], limits: Limits, now: float
) -> dict[str, str]:
    """Return the value of each late worker that was alive when the intervention started.

    A limit is requested from workers that were not asked yet. A pause is also requested from workers that still take
    from the queue.
    """
    began = min(at for _, at in before.values())
    errors: dict[str, str] = {}
    for pool in pools:
        was = limits.get(pool.worker, {}).get(each.subject) if each.kind == LIMIT else ""
        is_paused = each.kind == PAUSE and each.subject not in pool.queues
        is_limited = each.kind == LIMIT and pool.worker in before
        _, at = before.get(pool.worker, ("", began))
        if was is not None and not is_paused and not is_limited and pool.was_alive_at(at, now):
            errors[pool.worker] = was
    return errors
