"""TCC: throughput-guided concurrency control (Tang, section 3.1), as a state machine.

    base     w fewer threads than before; measure
    add      add p threads per step while each step brings q more throughput
    max      measure the highest configuration more exactly
    remove   remove r per step while `keep` of the best throughput remains; undo the last step
    steady   until a timeout, or until the throughput changes; then base again

A step that reduces throughput is undone at once: past a memory cliff (the dotted line of Figure 1) each further sample
is expensive. A step is at least one thread; then it has to bring what `scaled_q` gives for its real size.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from controllers.concurrency.steady import MAX_PER_SECOND, STEADY
from controllers.concurrency.throughput import (
    MAX_THREADS,
    MEASUREMENT,
    ThroughputMoments,
    brings,
    compute_first_samples,
    compute_second_samples,
)
from controllers.design.friendliness import scale_q
from controllers.framework.decision import Json
from controllers.framework.law import Values

PHASES = ("base", "add", "max", "remove", "steady")
STATE = (
    Parameter("phase", "choice", "Phase of the cycle.", kind="choice", choices=PHASES, required=True),
    # A pool that is not controlled may have no threads.
    Parameter("threads", "threads", "Threads in use.", None, 0, MAX_THREADS, "integer", required=True),
    Parameter(
        "before",
        "measurement",
        "Measurement that a step is compared with.",
        kind="object",
        required=True,
        or_null=True,
        items=MEASUREMENT,
    ),
    Parameter("best", "per second", "Maximum throughput of this cycle.", None, 0, MAX_PER_SECOND, required=True),
    Parameter(
        "back_to", "threads", "Size to return to if a step fails.", None, 0, MAX_THREADS, "integer", required=True
    ),
    *STEADY,
)


@dataclass(frozen=True)
class Cycle:
    """Position of the exploration.

    `before` is the configuration that a step is compared with, `best` the maximum throughput of this cycle, and
    `steady_per_second` the throughput at the start of the steady state.
    """

    phase: str
    threads: int
    before: ThroughputMoments | None = None
    best: float = 0.0
    back_to: int = 0
    steady_per_second: float = 0.0
    steady_seconds: float = 0.0
    doubted: bool = False  # the last check of the steady state differed
    steps: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the cycle as JSON for the law's state."""
        plain = dict(vars(self))
        plain["before"] = None if self.before is None else self.before.to_json()
        return plain


def cycle_from(document: Mapping[str, Any]) -> Cycle:
    """Build the cycle from a document that `to_json` wrote."""
    before = document["before"]
    return Cycle(**{**document, "before": None if before is None else ThroughputMoments(**before)})


def check_cycle(document: Mapping[str, Any], where: str) -> None:
    """Raise `BadInput` for a phase without its reference measurement or the size to return to."""
    if document["phase"] == "remove" and document["back_to"] < 1:
        raise BadInput(f"{where}.back_to", "must be at least 1 in the remove phase")


def increase_threads(threads: int, parameters: Values) -> int:
    """Return p more threads, at least one more, at most the maximum."""
    # Rounding belongs to the size of the step; the last bit of a product does not.
    wanted = max(threads + 1, math.ceil(threads * (1 + float(parameters["p"])) - 1e-9))
    return int(min(wanted, parameters["maximum"]))


def decrease_threads(threads: int, share: float, parameters: Values) -> int:
    """Return a share fewer threads, at least one fewer, never below the minimum."""
    wanted = min(threads - 1, math.floor(threads * (1 - share) + 1e-9))
    return int(max(wanted, parameters["minimum"]))


def count_needed_samples(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> float:
    """Return how many samples the phase needs, given those so far."""
    p, q, alpha, beta = (parameters[name] for name in ("p", "q", "alpha", "beta"))
    after = max(float(parameters["initial_samples"]), compute_first_samples(now.relative_deviation, q, alpha, beta))
    if cycle.phase == "max":
        after *= parameters["max_factor"]
    # If the range changed, there may be no step at all.
    if cycle.phase == "add" and cycle.before is not None and now.threads > cycle.before.threads:
        step = now.threads / cycle.before.threads - 1
        second = compute_second_samples(cycle.before, now, scale_q(p, q, step), alpha, beta)
        # A clear loss is visible long before a gain is known exactly.
        after = second if has_declined(cycle.before, now) else max(after, second)
    return min(max(after, float(parameters["initial_samples"])), float(parameters["most_samples"]))


def has_declined(before: ThroughputMoments, now: ThroughputMoments) -> bool:
    """Return whether a step reduced the throughput."""
    return now.throughput_per_second < before.throughput_per_second


def step(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    """Return the next configuration once there are enough samples."""
    phase_steps = {
        "base": _continue_after_base,
        "add": _continue_after_add,
        "max": _continue_after_max,
        "remove": _continue_after_remove,
    }
    best = max(cycle.best, now.throughput_per_second) if cycle.phase != "base" else now.throughput_per_second
    return phase_steps[cycle.phase](parameters, replace(cycle, best=best, steps=cycle.steps + 1), now)


def _continue_after_base(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    threads = increase_threads(now.threads, parameters)
    if threads == now.threads:
        return replace(cycle, phase="max", before=now)
    return replace(cycle, phase="add", threads=threads, before=now)


def _continue_after_add(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    before = cycle.before or now
    if has_declined(before, now):
        return replace(cycle, phase="max", threads=before.threads, before=now)
    size = now.threads / before.threads - 1
    threads = increase_threads(now.threads, parameters)
    if brings(before, now, scale_q(parameters["p"], parameters["q"], size)) and threads > now.threads:
        return replace(cycle, threads=threads, before=now)
    return replace(cycle, phase="max", before=now)


def _continue_after_max(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    return _start_removing(parameters, replace(cycle, phase="remove"), now)


def _continue_after_remove(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    if now.throughput_per_second >= parameters["keep"] * cycle.best:
        return _start_removing(parameters, cycle, now)
    return _settle(cycle, cycle.back_to, cycle.before or now)


def _start_removing(parameters: Values, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    threads = decrease_threads(now.threads, parameters["r"], parameters)
    if threads >= now.threads:
        return _settle(cycle, now.threads, now)
    return replace(cycle, threads=threads, back_to=now.threads, before=now)


def _settle(cycle: Cycle, threads: int, at: ThroughputMoments) -> Cycle:
    return replace(
        cycle,
        phase="steady",
        threads=threads,
        steady_per_second=at.throughput_per_second,
        steady_seconds=0.0,
        doubted=False,
        before=at,
    )


def start_cycle(parameters: Values, threads: int, steps: int) -> Cycle:
    """Return the base of the next cycle: w fewer threads."""
    return Cycle("base", decrease_threads(threads, parameters["w"], parameters), steps=steps)
