"""The progress of a running application, and if it makes none, what it waits for. Pure.

A process that exists and sends heartbeats proves nothing: with a frozen worker, a query that waits forever, or a limit
of 0, events wait while everything seems to run. What counts is therefore what was finished last.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workers.pipeline.declaration.replicas import ProcessRole, get_process_name
from workers.pipeline.tiers.finished_batch import InterEventBatch, ReplicaBatch

STALLED_SECONDS = 15.0
FIRST_SECONDS = 60.0  # Spark compiles in the first batch
FIRST_BATCH_GRACE_SECONDS = 240.0  # a restart would have to process the first batch, too
SLOW_BATCHES = 3.0  # a batch may take this many times as long as the previous one


@dataclass(frozen=True)
class ChainStep:
    """One worker of the chain with something to do.

    seconds: for how long it has finished nothing. batch_seconds: how long its last batch took (None: it has finished
    none since the start). is_here: whether a restart of this process restarts it.
    """

    name: str
    seconds: float
    batch_seconds: float | None
    is_here: bool = True

    @property
    def is_stalled(self) -> bool:
        if self.batch_seconds is None:
            return self.seconds > FIRST_SECONDS
        return self.seconds > max(STALLED_SECONDS, SLOW_BATCHES * self.batch_seconds)

    @property
    def stuck_seconds(self) -> float:
        """Return for how long a restart has been worthwhile."""
        if not self.is_stalled or not self.is_here:
            return 0.0
        return self.seconds if self.batch_seconds is not None else max(0.0, self.seconds - FIRST_BATCH_GRACE_SECONDS)


@dataclass(frozen=True)
class ProgressInputs:
    """The inputs of a judgment at one instant.

    steps: the workers with something to do. silent_seconds: since the dispatcher checked last.
    undispatched_seconds: for how long events have waited while none was dispatched. stall_reason: why the dispatcher
    dispatches nothing, as far as it knows.
    """

    steps: tuple[ChainStep, ...] = ()
    silent_seconds: float = 0.0
    undispatched_seconds: float = 0.0
    stall_reason: str | None = None

    @property
    def stuck_seconds(self) -> float:
        """Return for how long a worker that has all it needs has finished nothing."""
        steps = [step.stuck_seconds for step in self.steps]
        return max([*steps, self.silent_seconds if self.silent_seconds > STALLED_SECONDS else 0.0])


def stall(inputs: ProgressInputs) -> str | None:
    """Return what the application waits for, as a sentence; None while it makes progress."""
    for step in sorted(inputs.steps, key=lambda step: -step.seconds):
        if step.is_stalled:
            batch = "first batch since the start" if step.batch_seconds is None else "batch"
            return f"{step.name} has not finished its {batch} for {step.seconds:.0f} s"
    if inputs.silent_seconds > STALLED_SECONDS:
        return f"the dispatcher has not responded for {inputs.silent_seconds:.0f} s"
    if inputs.undispatched_seconds > STALLED_SECONDS:
        why = inputs.stall_reason or "events are waiting"
        return f"no events were dispatched for {inputs.undispatched_seconds:.0f} s: {why}"
    return None


def compute_elapsed(now: float, *moments: float) -> float:
    """Return the seconds since the latest of these instants."""
    return max(0.0, now - max(moments))


Finished = tuple[float, float]  # when the last batch ended (monotonic), how long it took


class ProgressRecord:
    """The times when one application finished work: the basis for judging its progress. Times are monotonic seconds.

    inputs: those of the last judgment; the default while it is not running. Thread-safe only under the status's lock.
    """

    def __init__(self, now: float) -> None:
        self.skipped: tuple[str, ...] = ()
        self._stall_reason: str | None = None
        self._idle_at = now
        self._unmatched: deque[float] = deque()
        self.inputs = ProgressInputs()
        self.begin(now)

    def begin(self, now: float) -> None:
        """Record that the application is started or restarted."""
        self._began = self._observed_at = self._dispatched_at = now
        self._unmatched.clear()
        self._replicas: dict[str, Finished] = {}
        self._combiner: Finished | None = None

    def record_dispatch(self, now: float, events: int, stall_reason: str | None, skipped: tuple[str, ...]) -> None:
        """Record that the dispatcher has dispatched this number of events. stall_reason, skipped: see `Dispatcher`."""
        self._observed_at, self._stall_reason, self.skipped = now, stall_reason, skipped
        if events:
            self._dispatched_at = now

    def record_replica(self, name: str, batch: ReplicaBatch) -> None:
        self._replicas[name] = (batch.at, batch.seconds)
        # The combiner may have read the result before the report of another process arrives.
        if self._combiner is None or batch.at > self._combiner[0] - self._combiner[1]:
            self._unmatched.append(batch.at)

    def record_combiner(self, batch: InterEventBatch) -> None:
        self._combiner = (batch.at, batch.seconds)
        while self._unmatched and self._unmatched[0] <= batch.at - batch.seconds:
            self._unmatched.popleft()

    def judge(
        self, now: float, oldest_at: Mapping[str, float], waiting: int | None, role: ProcessRole
    ) -> tuple[str, str | None]:
        """Return the state (starting, running or stalled), and why nothing moves.

        oldest_at: replica → when it got the oldest piece that has no result yet. waiting: events in the containers.
        role: of this process.
        """
        if not waiting:
            self._idle_at = now
        steps = [self._build_replica_step(name, now, at, role) for name, at in sorted(oldest_at.items())]
        if self._unmatched and role.is_main:
            steps.append(self._step("the combiner", now, self._unmatched[0], self._combiner))
        self.inputs = ProgressInputs(
            tuple(steps),
            now - self._observed_at if role.is_main else 0.0,
            0.0 if oldest_at or not waiting else compute_elapsed(now, self._dispatched_at, self._idle_at),
            self._stall_reason,
        )
        if (reason := stall(self.inputs)) is not None:
            return "stalled", reason
        has_work = bool(oldest_at) or bool(waiting and self._stall_reason is None)
        return ("starting" if has_work and not self._replicas else "running"), None

    def _build_replica_step(self, name: str, now: float, assigned_at: float, role: ProcessRole) -> ChainStep:
        step = self._step(f"replica {name}", now, assigned_at, self._replicas.get(name))
        if role.runs(name):
            return step
        return replace(step, name=f"{step.name} (process {get_process_name(name)})", is_here=False)

    def _step(self, name: str, now: float, given_at: float, last: Finished | None) -> ChainStep:
        """Return a step. Its time counts from its piece, its last batch, or the start, whichever is latest."""
        if last is None:
            return ChainStep(name, compute_elapsed(now, self._began, given_at), None)
        return ChainStep(name, compute_elapsed(now, self._began, given_at, last[0]), last[1])
