"""Interventions at a Celery app besides resizing its pools.

A person may pause a queue, limit the rate of a task, or revoke a task. Each is done by remote control, and recorded
with what undoes it.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from common.errors import BadInput
from workers.plants.foreign.celery_app.remote_control import RemoteControl, WorkerPool
from workers.plants.foreign.kind import InterventionKind, PartialUndo
from workers.plants.foreign.stored_notes import StoredNotes
from workers.plants.plant import InvalidPlantResponse, PlantUnavailable

PAUSE, LIMIT, REVOKE = "pause", "rate_limit", "revoke"
INTERVENTIONS = (
    InterventionKind(name=PAUSE, title="Pause a queue", subject="name of a queue; workers stop consuming it"),
    InterventionKind(
        name=LIMIT,
        title="Limit a task's rate",
        subject="name of a task",
        value="tasks that each worker starts: 10/s, 100/m, 5/h; 0 for no limit",
    ),
    InterventionKind(
        name=REVOKE,
        title="Revoke a task",
        subject="ID of a task",
        value='"terminate" to end a running task (prefork pools); empty to revoke it only before it starts',
        lasting=False,
    ),
)
RATE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?(/[smh])?\Z")
NO_LIMIT = "0"
REVOKED_AT_ONCE = 500  # tasks of one order, about 20 KB
MAX_NAMED = 20  # maximum number of names in an error message
RETAINED_SECONDS = 90 * 24 * 3_600  # resumed queues, since the last pause at the app was undone
Errors = dict[str, PlantUnavailable | InvalidPlantResponse]  # by worker


class AppInterventions:
    """The interventions of one app.

    Raise `PlantUnavailable` if the app does not answer in time, and `InvalidPlantResponse` if it refuses.

    The former value of each worker is recorded with the time (seconds since 1970). A worker that was restarted since
    has the setup of its owner, and keeps it. resumed: queue → {worker: (pid, time)}: who is to take from it again after
    a pause (`CeleryPlant` orders it again).
    """

    def __init__(self, control: RemoteControl, clock: Callable[[], float], resumed: StoredNotes) -> None:
        self._control, self._clock, self._resumed = control, clock, resumed
        self._noted: dict[tuple[str, str], set[str]] = {}  # workers whose former value `before` contains

    def read_before(self, kind: str, subject: str, value: str, earlier: str = "") -> str:
        """Return the current values as JSON; workers with an earlier value keep that value.

        Raise `BadInput`, naming `subject` or `value`.
        """
        if kind == REVOKE:
            if value not in ("", "terminate"):
                raise BadInput("value", f'must be "terminate" or empty, not {value[:40]!r}.')
            return ""
        if kind == LIMIT and not RATE.match(value):
            raise BadInput("value", f"must be a rate such as 10/s, 100/m, or 5/h, not {value[:40]!r}.")
        pools = self._control.list_pools()
        noted = self._drop_restarted_workers(json.loads(earlier or "{}"), pools)
        if kind == PAUSE:
            workers = {worker: "" for worker, pool in pools.items() if subject in pool.queues}
            known = _format_some(queue for pool in pools.values() for queue in pool.queues)
            expected = f"must be a queue that workers consume ({known}), not {subject!r}."
        else:
            workers = self._list_limits(subject, self._list_all_workers(pools))[0]
            expected = f"must be the name of a task that workers have registered, not {subject!r}."
        if not workers and not noted:
            raise BadInput("subject", expected)
        now = self._clock()
        self._noted[kind, subject] = workers.keys() | noted.keys()
        return json.dumps({worker: [was, now] for worker, was in workers.items()} | noted)

    def intervene(self, kind: str, subject: str, value: str) -> None:
        """Carry out an intervention. What is already in force stays.

        All workers are asked, even if one does not answer. A worker whose former value is not in `before` is left out,
        because the change could not be undone there. The error names it.
        """
        pools = self._control.list_pools()
        workers = self._list_all_workers(pools)
        if kind == REVOKE:
            failed = self._control.order_all("revoke", workers, task_id=subject, terminate=value == "terminate")
        elif kind == PAUSE:
            self._resumed.forget([subject])  # first, or the observer would resume it
            consumers = [worker for worker, pool in pools.items() if subject in pool.queues]
            asked, left_out = self._select_workers(kind, subject, consumers, self._control.late)
            failed = self._control.order_all("cancel_consumer", asked, queue=subject) | left_out
        else:
            limits, silent = self._list_limits(subject, workers)
            asked, left_out = self._select_workers(kind, subject, limits, silent)
            failed = self._control.order_all("rate_limit", asked, task_name=subject, rate_limit=value) | left_out
        for error in failed.values():
            raise error

    def revoke(self, task_ids: Sequence[str], terminate: bool) -> None:
        """Order all workers to revoke tasks. Raise the error of a worker that did not, after all were ordered."""
        workers = self._list_all_workers(self._control.list_pools())
        failed: Errors = {}
        for start in range(0, len(task_ids), REVOKED_AT_ONCE):
            part = list(task_ids[start : start + REVOKED_AT_ONCE])
            failed |= self._control.order_all("revoke", workers, task_id=part, terminate=terminate)
        for error in failed.values():
            raise error

    def undo(self, kind: str, subject: str, before: str) -> None:
        """Undo an intervention on each worker that answers.

        Raise `PartialUndo` if a worker does not answer: it may be late, or gone for good. It is asked again until it is
        given up (`workers.plants.foreign.interventions`).
        """
        noted, pools = json.loads(before), self._control.list_pools()
        here = [worker for worker in self._drop_restarted_workers(noted, pools) if worker in pools]
        errors: Errors = {}
        if kind == PAUSE:
            errors = self._control.order_all("add_consumer", here, queue=subject)
            self._note_resumed(subject, [worker for worker in here if worker not in errors], pools)
        else:
            limits = {worker: noted[worker][0] or NO_LIMIT for worker in here}
            for limit in dict.fromkeys(limits.values()):
                workers = [worker for worker in here if limits[worker] == limit]
                errors |= self._control.order_all("rate_limit", workers, task_name=subject, rate_limit=limit)
        failed = {worker: f"{worker} is not responding" for worker in noted if worker not in pools}
        failed |= {worker: str(error) for worker, error in errors.items()}
        if failed:
            left = {worker: noted[worker] for worker in failed}
            raise PartialUndo(f"{next(iter(failed.values())).rstrip('.')}.", json.dumps(left))

    def check_restored(self, kind: str, subject: str, before: str) -> str:
        """Ask the workers for the current values, and return them in words.

        Raise `InvalidPlantResponse` if a worker differs. A worker that was restarted or is gone has its owner's setup.
        """
        pools = self._control.list_pools()
        noted = self._drop_restarted_workers(json.loads(before), pools)
        workers = [worker for worker in noted if worker in pools]
        if kind == PAUSE:
            wrong = {worker: "does not consume it" for worker in workers if subject not in pools[worker].queues}
            said = "consumed"
        else:
            limits = self._list_limits(subject, workers)[0]
            wrong = {
                worker: f"has the limit {limits.get(worker) or 'none'}"
                for worker in workers
                if limits.get(worker) != noted[worker][0]
            }
            said = ", ".join(dict.fromkeys(limit or "no limit" for limit in limits.values())) or "no limit"
        if wrong:
            worker, why = next(iter(wrong.items()))
            raise InvalidPlantResponse(f"{worker} {why}.")
        return f"{said} by {_format_some(workers)}"

    def _note_resumed(self, queue: str, workers: Iterable[str], pools: Mapping[str, WorkerPool]) -> None:
        """Record that these workers take from the queue again, besides earlier ones that are still alive."""
        now = self._clock()
        before = {
            worker: life
            for worker, life in self._resumed.load_all().get(queue, {}).items()
            if worker in pools and pools[worker].matches_recorded_life(life, now)
        }
        self._resumed.put({queue: before | {worker: [pools[worker].pid, now] for worker in workers}})

    def _drop_restarted_workers(
        self, noted: Mapping[str, tuple[str, float]], pools: Mapping[str, WorkerPool]
    ) -> dict[str, tuple[str, float]]:
        """Return the recorded workers without those that were restarted since."""
        now = self._clock()
        return {
            worker: (was, at)
            for worker, (was, at) in noted.items()
            if worker not in pools or pools[worker].was_alive_at(at, now)
        }

    def _list_all_workers(self, pools: Mapping[str, WorkerPool]) -> list[str]:
        """Return all workers, including those whose queues are unknown."""
        return [*pools, *self._control.late]

    def _list_limits(self, task: str, workers: list[str]) -> tuple[dict[str, str], list[str]]:
        """Return the current limit of the task on each worker, and the workers that do not answer."""
        limits = self._control.list_rate_limits(workers)
        silent = [worker for worker in workers if worker not in limits]
        return {worker: of[task] for worker, of in limits.items() if task in of}, silent

    def _select_workers(
        self, kind: str, subject: str, found: Collection[str], silent: Collection[str]
    ) -> tuple[list[str], Errors]:
        """Return the workers to ask, and an error that names those that are left out."""
        known = self._noted.get((kind, subject), set(found))
        asked = [worker for worker in found if worker in known]
        left_out = [worker for worker in [*found, *silent] if worker not in asked]
        if not left_out:
            return asked, {}
        names = _format_some(left_out)
        said = f"The command was not sent to workers that responded late: {names}. Repeat it to include them."
        return asked, {left_out[0]: PlantUnavailable(said)}


def _format_some(names: Iterable[str]) -> str:
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    return ", ".join(known[:MAX_NAMED]) + more if known else "none"
