"""The workers of a Celery app over time: requests for events, missed workers, and queues that nobody serves.

**Events.** A worker that sends no task events is asked to, once in each of its lives, and to stop when Weir leaves, by
this observer or a later one. The pid does not identify a life: in containers all lives have the same pid. A new life
has started if a counter that only grows within a life is lower than before (the uptime, the tasks that it has started),
or if the worker sends an online event. Its taken and running tasks are then counted from zero. For a worker that was
killed there is no other sign. After the connection that events arrive on was interrupted, every worker is asked again,
and its tasks are requested (`reserved`, `active`) until events arrive, because ends were perhaps missed.

**Missed workers.** A worker that was killed, is frozen, or has lost its broker sends nothing. It is reported for
MISSED_SECONDS, also by a later observer and after the broker was away. A worker that sends an offline event is
forgotten at once.

**Unserved queues.** Tasks wait there, and no worker takes from them: their workers have ended, or none was started.
RabbitMQ reports how many consumers a queue has. With Redis only the workers know. A queue counts as served while a
worker that answers takes from it, and whenever it has become shorter. It also counts as served while a worker sends
heartbeats and answers nothing (its remote control is switched off), because its queues are unknown.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import redis

from common.errors import WeirError
from workers.documents.plants import UnservedQueue
from workers.plants.foreign.celery_app.broker import MAX_QUEUES, QueueLength
from workers.plants.foreign.celery_app.events import EventListener
from workers.plants.foreign.celery_app.remote_control import RemoteControl, WorkerPool
from workers.plants.foreign.stored_notes import Note, StoredNotes

ASKED_RETAINED_SECONDS = 90 * 24 * 3_600  # since a worker of the app was asked
MAX_NOTED = 1_000  # gone or silent workers whose request is recorded; live workers are recorded in addition
MISSED_SECONDS = 3_600.0
MAX_MISSED = 500
NOTE_SECONDS = 10.0  # interval at which an answering worker is recorded again
WHY = (
    "it did not report a shutdown: it was killed, is frozen, or lost its broker connection. Restart it on its host if"
    " it is still needed. Otherwise this note disappears within an hour"
)
BEATS = (
    "it still sends heartbeats: its remote control is disabled (worker_enable_remote_control), or its host is"
    " overloaded"
)
# A queue that its broker does not find for this long, because a node is away, is the same when it is back.
AWAY_SECONDS = 60.0


@dataclass(frozen=True)
class AskedLife:
    """The life of a worker that answered, by its pid and the time of the answer.

    is_ours: it sends events because Weir asked it to.
    """

    pid: int | None
    at: float
    is_ours: bool


class EventRequests:
    """The event requests of one app.

    Times are from `monotonic`, like those of the listener; times from `clock` are seconds since 1970. noted: worker →
    {pid, at}, of those that send events because Weir asked them to. A worker that is asked again only answers that it
    already sends events, whoever asked it first.
    """

    def __init__(
        self,
        control: RemoteControl,
        listener: EventListener,
        noted: StoredNotes,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._control, self._listener, self._noted = control, listener, noted
        self._clock, self._monotonic = clock, monotonic
        self._last: dict[str, tuple[float, WorkerPool]] = {}  # worker → (time of the request, its answer)
        self._asked: dict[str, AskedLife] = {}
        self._doubted: set[str] = set()  # workers that were asked and whose tasks are not known from events yet
        self._gaps = listener.gaps

    def observe(self, at: float, pools: Mapping[str, WorkerPool]) -> None:
        """Record the answers of workers that were asked at `at`."""
        with self._listener.lock:
            if self._gaps != self._listener.gaps:
                self._gaps = self._listener.gaps
                self._doubted |= self._asked.keys()
                self._asked.clear()
            for worker, pool in pools.items():
                before_at, before = self._last.get(worker, (at, pool))
                if not pool.is_continuation_of(before):
                    events = self._listener.events.pools.get(worker)
                    # Events since its online event belong to the new life.
                    if events is not None and (events.online_at is None or events.online_at < before_at):
                        self._listener.events.begin_anew(worker)
                    self._asked.pop(worker, None)
                    self._doubted.discard(worker)
                self._last[worker] = at, pool

    def retain(self, living: Collection[str]) -> None:
        """Forget other workers, except for what shows that they were restarted once they come back."""
        known = living | self._listener.events.pools.keys()
        self._last = {worker: last for worker, last in self._last.items() if worker in known}
        self._asked = {worker: life for worker, life in self._asked.items() if worker in living}
        self._doubted &= set(living)

    def ask(self, pools: Iterable[WorkerPool]) -> None:
        """Ask the workers that were not asked in this life, once each: one that refuses sends no events."""
        if not (fresh := [pool for pool in pools if not self._was_asked(pool)]):
            return
        noted, now, at = self._noted.load_all(), self._clock(), self._monotonic()
        answers = self._control.ask("enable_events", workers=[pool.worker for pool in fresh])
        answered = [pool for pool in fresh if isinstance(answers.get(pool.worker), Mapping)]
        for pool in answered:
            said = str(answers[pool.worker].get("ok", ""))
            is_new = bool(said) and "already" not in said
            before = noted.get(pool.worker)
            life = None if before is None else (before["pid"], before["at"])
            is_ours = is_new or pool.matches_recorded_life(life, now)
            self._asked[pool.worker] = AskedLife(pool.pid, at, is_ours)
            if not said:
                self._doubted.add(pool.worker)
        # This observer knows them even if recording fails. Of workers that are gone, the last MAX_NOTED are kept.
        ours = {pool.worker: {"pid": pool.pid, "at": now} for pool in answered if self._asked[pool.worker].is_ours}
        gone = sorted((note["at"], worker) for worker, note in noted.items() if worker not in self._asked)
        over = [worker for _, worker in gone[: max(0, len(gone) - MAX_NOTED)]]
        self._noted.forget([*over, *(pool.worker for pool in answered if pool.worker not in ours)])
        self._noted.put(ours)

    def ask_again(self) -> None:
        """Ask all workers once more: their events were switched off because Weir was away."""
        self._asked.clear()

    def stop(self) -> None:
        """Ask the workers that send events because of Weir to stop."""
        with suppress(WeirError, redis.RedisError):
            if ours := [worker for worker, life in self._asked.items() if life.is_ours]:
                self._noted.forget(self._control.ask("disable_events", workers=ours))

    def stop_all(self) -> list[str]:
        """Ask all workers that send events because of Weir to stop, whichever observer asked them; return them.

        Raise `PlantUnavailable`, naming a worker that is alive and does not answer.
        """
        noted = self._noted.load_all()
        pools = self._control.request_pools() if noted else {}
        alive = [worker for worker in noted if worker in pools]
        errors = self._control.order_all("disable_events", alive)
        self._noted.forget(worker for worker in noted if worker not in errors)
        for error in errors.values():
            raise error
        return alive

    def sends(self, worker: str) -> bool:
        """Return whether events of the worker's tasks arrive, or would arrive if it had any."""
        if self._listener.error is not None:
            return False
        events = self._listener.events.pools.get(worker)
        if events is not None and events.sends_tasks:
            return True
        return self._gaps == self._listener.gaps and worker in self._asked and worker not in self._doubted

    def _was_asked(self, pool: WorkerPool) -> bool:
        life, events = self._asked.get(pool.worker), self._listener.events.pools.get(pool.worker)
        if life is None or life.pid != pool.pid:
            return False
        return events is None or events.online_at is None or events.online_at < life.at


class MissedWorkers:
    """Workers that answered before and no longer do. Times: seconds since 1970.

    noted: worker → {at, queues}: when it last answered, and from which queues it took.
    """

    def __init__(self, noted: StoredNotes) -> None:
        self._noted = noted
        self._known: dict[str, Note] | None = None  # None: not read from the store yet
        self._noted_at = 0.0
        self.missed_seconds: dict[str, float] = {}  # worker → for how long it has not answered

    def observe(self, now: float, answering: Iterable[WorkerPool], left: Collection[str]) -> None:
        """Record which workers answer. left: workers that sent an offline event."""
        if self._known is None:
            self._known = self._noted.load_all()
        fresh = {pool.worker: {"at": now, "queues": pool.queues[:MAX_QUEUES]} for pool in answering}
        is_news = any(name not in self._known for name in fresh)
        self._known |= fresh
        if is_news or now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            self._noted.put(fresh)
        missed = sorted((note["at"], name) for name, note in self._known.items() if name not in fresh)
        over = [name for at, name in missed if name in left or now - at > MISSED_SECONDS]
        # If the names are too many, forget those that have been gone for longest.
        stay = [name for _, name in missed if name not in over]
        over += stay[: max(0, len(stay) - MAX_MISSED)]
        for name in over:
            del self._known[name]
        self._noted.forget(over)
        self.missed_seconds = {name: now - note["at"] for name, note in self._known.items() if name not in fresh}

    def list_queues(self) -> list[str]:
        """Return the queues of the workers that answer and of those that are missed."""
        return list(dict.fromkeys(queue for note in (self._known or {}).values() for queue in note["queues"]))

    def describe(self, beating: Collection[str], late_seconds: float, most: int) -> list[str]:
        """Return messages about workers that are not merely late, most recent answer first.

        beating: workers that send heartbeats.
        """
        missing = sorted((seconds, name) for name, seconds in self.missed_seconds.items() if seconds > late_seconds)
        said = [
            f"{name} has not responded for {f'{seconds:.0f} s' if seconds < 120 else f'{seconds / 60:.0f} min'},"
            f" and {BEATS if name in beating else WHY}."
            for seconds, name in missing[:most]
        ]
        more = len(missing) - most
        return [*said, f"Other workers that are not responding: {more:,}."] if more > 0 else said


class UnservedQueues:
    """The unserved queues of one app. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._waiting: dict[str, int] = {}

    def observe(
        self,
        at: float,
        lengths: Mapping[str, QueueLength],
        served: Collection[str],
        paused: Collection[str],
        is_sure: bool,
    ) -> dict[str, UnservedQueue]:
        """Return the unserved queues.

        served: queues of workers that answer; paused: queues that a person paused in Weir; is_sure: all live workers
        answer.
        """
        self._seen = {name: seen for name, seen in self._seen.items() if at - seen <= AWAY_SECONDS}
        self._seen |= dict.fromkeys(lengths, at)
        away = self._seen.keys() - lengths.keys()
        since: dict[str, float] = {}
        for name, length in lengths.items():
            if length.consumers is None:
                is_served = name in served or length.waiting < self._waiting.get(name, 0) or not is_sure
            else:
                is_served = length.consumers > 0
            if length.waiting and not is_served and name not in paused:
                since[name] = self._since.get(name, at)
        self._since = since | {name: began for name, began in self._since.items() if name in away}
        self._waiting = {name: length.waiting for name, length in lengths.items()}
        return {
            name: UnservedQueue(waiting=lengths[name].waiting, seconds=round(at - began, 1))
            for name, began in since.items()
        }
