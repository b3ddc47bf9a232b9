"""Whether a running application makes progress, and if not, what it waits for. Pure.

A process that exists and sends heartbeats proves nothing: with a frozen worker, a query that waits forever, or a limit
of 0, events wait while everything seems to run. What counts is therefore what was finished last.
"""

from collections.abc import Iterator
from dataclasses import dataclass

STALLED_SECONDS = 15.0
FIRST_SECONDS = 60.0  # Spark compiles in the first batch
FIRST_BATCH_GRACE_SECONDS = 240.0  # a restart would have to process the first batch, too
SLOW_BATCHES = 3.0  # a batch may take this many times as long as the previous one


@dataclass(frozen=True)
class ChainStep:
    """One worker of the chain with something to do.

    seconds: for how long it has finished nothing. batch_seconds: how long its last batch took (None: it has finished
    none since the start).
    """

    name: str
    seconds: float
    batch_seconds: float | None

    @property
    def is_stalled(self) -> bool:
        if self.batch_seconds is None:
            return self.seconds > FIRST_SECONDS
        return self.seconds > max(STALLED_SECONDS, SLOW_BATCHES * self.batch_seconds)

    @property
    def stuck_seconds(self) -> float:
        """Return for how long a restart has been worthwhile."""
        if not self.is_stalled:
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
    return next(_iterate_reasons(inputs), None)


def _iterate_reasons(inputs: ProgressInputs) -> Iterator[str]:
    for step in sorted(inputs.steps, key=lambda step: -step.seconds):
        if step.is_stalled:
            batch = "first batch since the start" if step.batch_seconds is None else "batch"
            yield f"{step.name} has not finished its {batch} for {step.seconds:.0f} s"
    if inputs.silent_seconds > STALLED_SECONDS:
        yield f"the dispatcher has not responded for {inputs.silent_seconds:.0f} s"
    if inputs.undispatched_seconds > STALLED_SECONDS:
        why = inputs.stall_reason or "events are waiting"
        yield f"no events were dispatched for {inputs.undispatched_seconds:.0f} s: {why}"


def compute_elapsed(now: float, *moments: float) -> float:
    """Return the seconds since the latest of these instants."""
    return max(0.0, now - max(moments))
