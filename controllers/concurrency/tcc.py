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
from typing import Annotated

from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import value
from controllers.concurrency.parameters import MAX_PER_SECOND, MAX_THREADS, ConcurrencyParameters, Exploration
from controllers.concurrency.throughput import ThroughputMoments, brings, compute_first_samples, compute_second_samples
from controllers.design.friendliness import scale_q

PHASES = ("base", "add", "max", "remove", "steady")


class Cycle(Exploration, frozen=True, kw_only=True, tag_field="kind", tag="tcc"):
    phase: Annotated[str, value("choice", "Phase of the cycle.", choices=PHASES)]
    before: Annotated[
        ThroughputMoments | None,
        value("measurement", "Measurement that a step is compared with.", required=True, or_null=True),
    ] = None
    best: Annotated[
        float, value("per second", "Maximum throughput of this cycle.", 0, MAX_PER_SECOND, required=True)
    ] = 0.0
    back_to: Annotated[int, value("threads", "Size to return to if a step fails.", 0, MAX_THREADS, required=True)] = 0


def check_cycle(cycle: Cycle, where: str) -> None:
    """Raise `BadInput` for a phase without its reference measurement or the size to return to."""
    if cycle.phase == "remove" and cycle.back_to < 1:
        raise BadInput(f"{where}.back_to", "must be at least 1 in the remove phase")


def increase_threads(threads: int, parameters: ConcurrencyParameters) -> int:
    """Return p more threads, at least one more, at most the maximum."""
    # Rounding belongs to the size of the step; the last bit of a product does not.
    wanted = max(threads + 1, math.ceil(threads * (1 + parameters.p) - 1e-9))
    return min(wanted, parameters.maximum)


def decrease_threads(threads: int, share: float, parameters: ConcurrencyParameters) -> int:
    """Return a share fewer threads, at least one fewer, never below the minimum."""
    wanted = min(threads - 1, math.floor(threads * (1 - share) + 1e-9))
    return max(wanted, parameters.minimum)


def count_needed_samples(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> float:
    p, q, alpha, beta = parameters.p, parameters.q, parameters.alpha, parameters.beta
    after = max(parameters.initial_samples, compute_first_samples(now.relative_deviation, q, alpha, beta))
    if cycle.phase == "max":
        after *= parameters.max_factor
    # If the range changed, there may be no step at all.
    if cycle.phase == "add" and cycle.before is not None and now.threads > cycle.before.threads:
        step = now.threads / cycle.before.threads - 1
        second = compute_second_samples(cycle.before, now, scale_q(p, q, step), alpha, beta)
        # A clear loss is visible long before a gain is known exactly.
        after = second if has_declined(cycle.before, now) else max(after, second)
    return min(max(after, parameters.initial_samples), parameters.most_samples)


def has_declined(before: ThroughputMoments, now: ThroughputMoments) -> bool:
    return now.throughput_per_second < before.throughput_per_second


def step(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    phase_steps = {
        "base": _continue_after_base,
        "add": _continue_after_add,
        "max": _continue_after_max,
        "remove": _continue_after_remove,
    }
    best = max(cycle.best, now.throughput_per_second) if cycle.phase != "base" else now.throughput_per_second
    return phase_steps[cycle.phase](parameters, replace(cycle, best=best, steps=cycle.steps + 1), now)


def _continue_after_base(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    threads = increase_threads(now.threads, parameters)
    if threads == now.threads:
        return replace(cycle, phase="max", before=now)
    return replace(cycle, phase="add", threads=threads, before=now)


def _continue_after_add(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    before = cycle.before or now
    if has_declined(before, now):
        return replace(cycle, phase="max", threads=before.threads, before=now)
    size = now.threads / before.threads - 1
    threads = increase_threads(now.threads, parameters)
    if brings(before, now, scale_q(parameters.p, parameters.q, size)) and threads > now.threads:
        return replace(cycle, threads=threads, before=now)
    return replace(cycle, phase="max", before=now)


def _continue_after_max(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    return _start_removing(parameters, replace(cycle, phase="remove"), now)


def _continue_after_remove(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    if now.throughput_per_second >= parameters.keep * cycle.best:
        return _start_removing(parameters, cycle, now)
    return _settle(cycle, cycle.back_to, cycle.before or now)


def _start_removing(parameters: ConcurrencyParameters, cycle: Cycle, now: ThroughputMoments) -> Cycle:
    threads = decrease_threads(now.threads, parameters.r, parameters)
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


def start_cycle(parameters: ConcurrencyParameters, threads: int, steps: int) -> Cycle:
    """Return the base of the next cycle: w fewer threads."""
    return Cycle(phase="base", threads=decrease_threads(threads, parameters.w, parameters), steps=steps)
