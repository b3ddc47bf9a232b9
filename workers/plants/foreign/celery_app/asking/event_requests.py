"""Which workers send events of tasks, and which are asked to: each once in its life.

A worker's life is not its pid alone: in containers each life has the same. Another one has begun where what
only grows in one is less than before (its uptime, the tasks that it has begun), or where it says that it is
online; what it has taken and what runs there is then counted anew. Of a worker that was killed nothing else
says so.

Whoever can ask a worker to send events can ask it to stop (Flower, an operator). Where one begins tasks and
no event of any comes for UNHEARD_SECONDS it is asked once more, and what it does is asked for (`reserved`,
`active`) until events come again: what they said before would stay as it was for the rest of its life. So it
is with all of them where the line that their events come by was broken for a time.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import redis

from queues.errors import WeirError
from workers.plants.foreign.celery_app.asking.asked_workers import AskedWorkers
from workers.plants.foreign.celery_app.listener import EventListener
from workers.plants.foreign.celery_app.remote_control import Life, RemoteControl, WorkerPool

# Events of tasks come in batches, and late from a host that is busy.
UNHEARD_SECONDS = 5.0
# Of workers that are gone or silent; those that live are noted besides.
MOST_NOTED = 1_000


@dataclass(frozen=True)
class AskedLife:
    """Of a worker that answered: by its pid; at: when. is_ours: it sends events because Weir asked it to."""

    pid: int | None
    at: float
    is_ours: bool


@dataclass(frozen=True)
class Unheard:
    """Tasks were begun after `since`, which was noticed at `at`; no event of a task has come since."""

    since: float
    at: float


class EventRequests:
    """Of one app. Times are of `monotonic`, as the listener's; those of `clock` s since 1970."""

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
        self._last: dict[str, tuple[float, WorkerPool]] = {}  # worker → when it was asked, what it answered
        self._asked: dict[str, AskedLife] = {}
        self._unheard: dict[str, Unheard] = {}
        self._doubted: set[str] = set()  # of these no events come, though they were asked
        self._gaps = listener.gaps

    def observe(self, at: float, pools: Mapping[str, WorkerPool]) -> None:
        """What workers answered that were asked at `at`."""
        with self._listener.lock:
            if self._gaps != self._listener.gaps:
                self._gaps = self._listener.gaps
                self._doubt(list(self._asked))
            for worker, pool in pools.items():
                before_at, before = self._last.get(worker, (at, pool))
                if pool.goes_on_from(before):
                    self._notice_silence(worker, Unheard(before_at, at), pool.begun > before.begun)
                else:
                    self._begin_life(worker, before_at)
                self._last[worker] = at, pool

    def retain(self, living: Collection[str]) -> None:
        """Of others only what shows that they were started anew, once they come back."""
        self._last = {
            worker: each
            for worker, each in self._last.items()
            if worker in living or worker in self._listener.events.pools
        }
        self._asked = {worker: each for worker, each in self._asked.items() if worker in living}
        self._unheard = {worker: each for worker, each in self._unheard.items() if worker in living}
        self._doubted &= set(living)

    def ask(self, pools: Iterable[WorkerPool]) -> None:
        """Those that were not asked in this life. One that refuses sends none, and is not asked again."""
        if not (fresh := [pool for pool in pools if not self._was_asked(pool)]):
            return
        noted, now, at = self._noted.load_all(), self._clock(), self._monotonic()
        answers = self._control.ask("enable_events", workers=[pool.worker for pool in fresh])
        answered = [pool for pool in fresh if isinstance(answers.get(pool.worker), Mapping)]
        for pool in answered:
            said = str(answers[pool.worker].get("ok", ""))
            is_new = bool(said) and "already" not in said
            is_ours = is_new or pool.lives_on(noted.get(pool.worker), now)
            self._asked[pool.worker] = AskedLife(pool.pid, at, is_ours)
            # Who is in doubt stays so until an event of a task comes (`sends`): what runs now began before.
            if not said:
                self._doubted.add(pool.worker)
        self._note(answered, noted, now)

    def stop(self) -> None:
        """Those that send events because they were asked to are asked to stop."""
        with suppress(WeirError, redis.RedisError):
            if ours := [worker for worker, life in self._asked.items() if life.is_ours]:
                self._noted.forget(self._control.ask("disable_events", workers=ours))

    def sends(self, worker: str) -> bool:
        """Whether events of its tasks come, or would if it had any."""
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
        """Once they are known here: where it can't be noted, this observer knows it all the same. noted:
        before; of those that do not live the last MOST_NOTED stay so.
        """
        ours = {pool.worker: (pool.pid, now) for pool in pools if self._asked[pool.worker].is_ours}
        gone = sorted((at, worker) for worker, (_, at) in noted.items() if worker not in self._asked)
        over = [worker for _, worker in gone[: max(0, len(gone) - MOST_NOTED)]]
        self._noted.forget([*over, *(pool.worker for pool in pools if pool.worker not in ours)])
        self._noted.note(ours)

    def _begin_life(self, worker: str, before_at: float) -> None:
        """before_at: when the life before was asked last. What was heard since it came online is its own."""
        events = self._listener.events.pools.get(worker)
        if events is not None and (events.online_at is None or events.online_at < before_at):
            self._listener.events.begin_anew(worker)
        self._asked.pop(worker, None)
        self._unheard.pop(worker, None)
        self._doubted.discard(worker)

    def _notice_silence(self, worker: str, now: Unheard, has_begun: bool) -> None:
        """has_begun: tasks, between the two answers."""
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
        """They are asked once more, and what they do is asked for until events come."""
        for worker in workers:
            self._asked.pop(worker, None)
            self._unheard.pop(worker, None)
            self._doubted.add(worker)
