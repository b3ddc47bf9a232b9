"""What one application finished when: the basis for judging its progress.

Thread-safe only under the status's lock.
"""

from collections import deque
from collections.abc import Mapping

from workers.pipeline.inter_event.finished_batch import InterEventBatch
from workers.pipeline.intra_event.finished_batch import ReplicaBatch
from workers.pipeline.status.progress import ChainStep, ProgressInputs, compute_elapsed, stall

Finished = tuple[float, float]  # when the last batch ended (monotonic), how long it took


class ProgressRecord:
    """Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.skipped: tuple[str, ...] = ()
        self._stall_reason: str | None = None
        self._idle_at = now
        self._unmatched: deque[float] = deque()
        self._inputs = ProgressInputs()
        self.begin(now)

    def begin(self, now: float) -> None:
        """Record that the application is started or restarted."""
        self._began = self._observed_at = self._dispatched_at = now
        self._unmatched.clear()
        self._replicas: dict[str, Finished] = {}
        self._combiner: Finished | None = None

    def record_dispatch(self, now: float, events: int, stall_reason: str | None, skipped: tuple[str, ...]) -> None:
        """Record that the dispatcher has dispatched this number of events.

        stall_reason, skipped: see `Dispatcher`.
        """
        self._observed_at, self._stall_reason, self.skipped = now, stall_reason, skipped
        if events:
            self._dispatched_at = now

    def record_replica(self, name: str, batch: ReplicaBatch) -> None:
        self._replicas[name] = (batch.at, batch.seconds)
        self._unmatched.append(batch.at)

    def record_combiner(self, batch: InterEventBatch) -> None:
        self._combiner = (batch.at, batch.seconds)
        while self._unmatched and self._unmatched[0] <= batch.at - batch.seconds:
            self._unmatched.popleft()

    @property
    def stuck_seconds(self) -> float:
        """Return the value of the last judgment."""
        return self._inputs.stuck_seconds

    def reset_state(self) -> None:
        """Record that it is not running: nothing is judged."""
        self._inputs = ProgressInputs()

    def judge(self, now: float, oldest_at: Mapping[str, float], waiting: int | None) -> tuple[str, str | None]:
        """Return the state (starting, running or stalled), and why nothing moves.

        oldest_at: replica → when it got the oldest piece that has no result yet. waiting: events in the containers.
        """
        if not waiting:
            self._idle_at = now
        self._inputs = ProgressInputs(
            tuple(self._compute_steps(now, oldest_at)),
            now - self._observed_at,
            0.0 if oldest_at or not waiting else compute_elapsed(now, self._dispatched_at, self._idle_at),
            self._stall_reason,
        )
        if (reason := stall(self._inputs)) is not None:
            return "stalled", reason
        return ("starting" if oldest_at and not self._replicas else "running"), None

    def _compute_steps(self, now: float, oldest_at: Mapping[str, float]) -> list[ChainStep]:
        steps = [
            self._step(f"replica {name}", now, at, self._replicas.get(name)) for name, at in sorted(oldest_at.items())
        ]
        if self._unmatched:
            steps.append(self._step("the combiner", now, self._unmatched[0], self._combiner))
        return steps

    def _step(self, name: str, now: float, given_at: float, last: Finished | None) -> ChainStep:
        """Return a step.

        Its time counts from its piece, its last batch, or the start, whichever is latest.
        """
        if last is None:
            return ChainStep(name, compute_elapsed(now, self._began, given_at), None)
        return ChainStep(name, compute_elapsed(now, self._began, given_at, last[0]), last[1])
