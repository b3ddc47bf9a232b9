"""Which workers send events of tasks, and which ones are asked to: once in each worker's life.

The pid does not identify a worker's life: in containers all lives have the same pid. A new life has started if a
counter that only grows within a life is lower than before (the uptime, the tasks that it has started), or if the worker
sends an online event. Its taken and running tasks are then counted from zero. For a worker that was killed there is no
other sign.

Anyone who can ask a worker to send events can also ask it to stop (Flower, an operator). If a worker starts tasks and
no task event arrives for UNHEARD_SECONDS, it is asked again. Its tasks are requested (`reserved`, `active`) until
events arrive again, because the state from earlier events would stay unchanged for the rest of its life. The same
applies to all workers after the connection that their events arrive on was interrupted.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import redis

from common.errors import WeirError
from workers.plants.foreign.celery_app.asking.asked_workers import AskedWorkers
from workers.plants.foreign.celery_app.listener import EventListener
from workers.plants.foreign.celery_app.remote_control import Life, RemoteControl, WorkerPool

# Events of tasks arrive in batches, and late from a busy host.
UNHEARD_SECONDS = 5.0
# Maximum number of gone or silent workers; live workers are recorded in addition.
MAX_NOTED = 1_000


@dataclass(frozen=True)
class AskedLife:
    """The life of a worker that answered, by its pid and the time of the answer.

    is_ours: it sends events because Weir asked it to.
    """

    pid: int | None
    at: float
    is_ours: bool


@dataclass(frozen=True)
class MissingTaskEvents:
    """Tasks were started after `since`, which was noticed at `at`; no task event has arrived since."""

    since: float
    at: float


class EventRequests:
    """The event requests of one app.

    Times are from `monotonic`, like those of the listener; times from `clock` are seconds since 1970.
    """

    def __init__(
        self,
        control: RemoteControl,
        listener: EventListener,
        noted: AskedWorkers,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._control, self._listener, self._noted = control, listener, noted
        self._clock, self._monotonic = clock, monotonic
        self._last: dict[str, tuple[float, WorkerPool]] = {}  # worker → (time of the request, its answer)
        self._asked: dict[str, AskedLife] = {}
        self._unheard: dict[str, MissingTaskEvents] = {}
        self._doubted: set[str] = set()  # workers that send no events although they were asked to
        self._gaps = listener.gaps

    def observe(self, at: float, pools: Mapping[str, WorkerPool]) -> None:
        """Record the answers of workers that were asked at `at`."""
        with self._listener.lock:
            if self._gaps != self._listener.gaps:
                self._gaps = self._listener.gaps
                self._doubt(list(self._asked))
            for worker, pool in pools.items():
                before_at, before = self._last.get(worker, (at, pool))
                if pool.is_continuation_of(before):
                    self._notice_silence(worker, MissingTaskEvents(before_at, at), pool.begun > before.begun)
                else:
                    self._begin_life(worker, before_at)
                self._last[worker] = at, pool

    def retain(self, living: Collection[str]) -> None:
        """Forget other workers, except for what shows that they were restarted once they come back."""
        self._last = {
            worker: each
            for worker, each in self._last.items()
            if worker in living or worker in self._listener.events.pools
        }
        self._asked = {worker: each for worker, each in self._asked.items() if worker in living}
        self._unheard = {worker: each for worker, each in self._unheard.items() if worker in living}
        self._doubted &= set(living)

    def ask(self, pools: Iterable[WorkerPool]) -> None:
        """Ask the workers that were not asked in this life.

        A worker that refuses sends no events, and is not asked again.
        """
        if not (fresh := [pool for pool in pools if not self._was_asked(pool)]):
            return
        noted, now, at = self._noted.load_all(), self._clock(), self._monotonic()
        answers = self._control.ask("enable_events", workers=[pool.worker for pool in fresh])
        answered = [pool for pool in fresh if isinstance(answers.get(pool.worker), Mapping)]
        for pool in answered:
            said = str(answers[pool.worker].get("ok", ""))
            is_new = bool(said) and "already" not in said
            is_ours = is_new or pool.matches_recorded_life(noted.get(pool.worker), now)
            self._asked[pool.worker] = AskedLife(pool.pid, at, is_ours)
            # A doubted worker stays doubted until a task event arrives (`sends`): its running tasks started
            # earlier.
            if not said:
                self._doubted.add(pool.worker)
        self._note(answered, noted, now)

    def stop(self) -> None:
        """Ask the workers that send events because of Weir to stop."""
        with suppress(WeirError, redis.RedisError):
            if ours := [worker for worker, life in self._asked.items() if life.is_ours]:
                self._noted.forget(self._control.ask("disable_events", workers=ours))

    def sends(self, worker: str) -> bool:
        """Return whether events of the worker's tasks arrive, or would arrive if it had any."""
        if self._listener.error is not None:
            return False
        events = self._listener.events.pools.get(worker)
        if events is not None and events.sends_tasks:
            return True
        is_whole = self._gaps == self._listener.gaps
        return is_whole and worker in self._asked and worker not in self._doubted

    def _was_asked(self, pool: WorkerPool) -> bool:
        life, events = self._asked.get(pool.worker), self._listener.events.pools.get(pool.worker)
        if life is None or life.pid != pool.pid:
            return False
        return events is None or events.online_at is None or events.online_at < life.at

    def _note(self, pools: Sequence[WorkerPool], noted: Mapping[str, Life], now: float) -> None:
        """Record the workers, after this observer knows them: it knows them even if recording fails.

        noted: the workers recorded before. Of those that are no longer alive, the last MAX_NOTED are kept.
        """
        ours = {pool.worker: (pool.pid, now) for pool in pools if self._asked[pool.worker].is_ours}
        gone = sorted((at, worker) for worker, (_, at) in noted.items() if worker not in self._asked)
        over = [worker for _, worker in gone[: max(0, len(gone) - MAX_NOTED)]]
        self._noted.forget([*over, *(pool.worker for pool in pools if pool.worker not in ours)])
        self._noted.note(ours)

    def _begin_life(self, worker: str, before_at: float) -> None:
        """Start a new life of the worker.

        before_at: when the previous life was last asked. Events since its online event belong to the new life.
        """
        events = self._listener.events.pools.get(worker)
        if events is not None and (events.online_at is None or events.online_at < before_at):
            self._listener.events.begin_anew(worker)
        self._asked.pop(worker, None)
        self._unheard.pop(worker, None)
        self._doubted.discard(worker)

    def _notice_silence(self, worker: str, now: MissingTaskEvents, has_begun: bool) -> None:
        """Notice a worker that starts tasks and sends no events.

        has_begun: whether tasks were started between the two answers.
        """
        if not self.sends(worker):
            self._unheard.pop(worker, None)
            return
        unheard = self._unheard.get(worker) or (now if has_begun else None)
        events = self._listener.events.pools.get(worker)
        task_at = -math.inf if events is None or events.task_at is None else events.task_at
        if unheard is None or task_at >= unheard.since:
            self._unheard.pop(worker, None)
        elif now.at - unheard.at < UNHEARD_SECONDS:
            self._unheard[worker] = unheard
        else:
            self._listener.events.begin_anew(worker)
            self._doubt([worker])

    def _doubt(self, workers: Iterable[str]) -> None:
        """Ask these workers again, and request their tasks until events arrive."""
        for worker in workers:
            self._asked.pop(worker, None)
            self._unheard.pop(worker, None)
            self._doubted.add(worker)
