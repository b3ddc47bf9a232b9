"""A trial: one more step of threads in the steady state, to see whether it now brings more.

A pool at its knee cannot notice that the service it calls has grown: all its threads are served, and throughput stays
the same. So after each `trial_seconds` of the steady state, p more threads are tried. If they bring what a friendly
step requires (Tang, condition 1), the search continues upward from there; otherwise the pool goes back. Each search and
each trial that ends with less than one step more than before doubles the time to the next trial, up to
`steady_seconds`, when everything is explored again anyway.

Where other pools share the resource, nothing is tried: a step of one pool takes throughput from the others and pays off
for that reason alone (one of three pools that adds a quarter gets 15 % more of an unchanged total). Only a pool with
far fewer threads than the average tries a step, and after a useful one the next.
"""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from common.parameter import value
from controllers.concurrency import explorer, tcc
from controllers.concurrency.explorer import CurveSearch
from controllers.concurrency.parameters import MAX_PER_SECOND, MAX_THREADS, ConcurrencyParameters
from controllers.concurrency.tcc import Cycle, increase_threads
from controllers.concurrency.throughput import ThroughputMoments, brings
from controllers.concurrency.throughput_curve import Point
from controllers.design.friendliness import scale_q

MAX_FRUITLESS = 1_000
# A pool is behind if the mean is more than this multiple of its threads.
BEHIND = 1.5


class Origin(msgspec.Struct, frozen=True):
    threads: Annotated[int, value("threads", "Threads at the start.", 1, MAX_THREADS)]
    per_second: Annotated[float, value("per second", "Throughput at the start.", 0, MAX_PER_SECOND)]


class Trial(msgspec.Struct, frozen=True):
    threads: Annotated[int, value("threads", "Threads being tested; 0: none.", 0, MAX_THREADS, required=True)] = 0
    began_at: Annotated[
        float, value("s", "Time in the steady state when the last trial started.", 0, 1e15, required=True)
    ] = 0.0
    fruitless: Annotated[
        int, value("times", "Consecutive trials and searches without more threads.", 0, MAX_FRUITLESS, required=True)
    ] = 0

    def end(self, grown: bool) -> "Trial":
        """End the trial; `grown` tells whether there are more threads than before."""
        fruitless = 0 if grown else min(self.fruitless + 1, MAX_FRUITLESS)
        return replace(self, threads=0, fruitless=fruitless)


def is_due(parameters: ConcurrencyParameters, trial: Trial, rest: Cycle | CurveSearch) -> bool:
    """Return whether a steady pool has to try one more step."""
    every = parameters.trial_seconds
    step = step_from(parameters, rest.threads)
    if every <= 0 or rest.steady_per_second <= 0 or rest.doubted or step == rest.threads:
        return False
    wait = min(every * 2.0 ** min(trial.fruitless, 30), parameters.steady_seconds)
    return rest.steady_seconds - trial.began_at >= wait


def is_behind(
    parameters: ConcurrencyParameters, trial: Trial, rest: Cycle | CurveSearch, mean_threads: float | None
) -> bool:
    """Return whether a steady pool has to try one more step because pools on the same resource have far more.

    Such a pool stopped while the others grew, and mistook what they took for the end of its own growth. The step is due
    at once if nothing was tried yet.
    """
    if mean_threads is None or BEHIND * rest.threads >= mean_threads or rest.doubted:
        return False
    if parameters.trial_seconds <= 0 or rest.steady_per_second <= 0:
        return False
    step = step_from(parameters, rest.threads)
    first = trial.began_at == 0.0
    return step > rest.threads and (first or is_due(parameters, trial, rest))


def start_trial(parameters: ConcurrencyParameters, trial: Trial, rest: Cycle | CurveSearch) -> Trial:
    return replace(trial, threads=step_from(parameters, rest.threads), began_at=rest.steady_seconds)


def step_from(parameters: ConcurrencyParameters, threads: int) -> int:
    """Return one step more than `threads`, within the range."""
    return max(threads, increase_threads(threads, parameters))


def count_needed_samples(parameters: ConcurrencyParameters, rest: Cycle | CurveSearch, now: ThroughputMoments) -> float:
    """Return the samples needed to know whether the step pays off; few if it clearly does harm."""
    return tcc.count_needed_samples(parameters, _as_step(parameters, rest, now.threads), now)


def is_worth(parameters: ConcurrencyParameters, rest: Cycle | CurveSearch, now: ThroughputMoments) -> bool:
    """Return whether the threads on trial bring what a friendly step of this size requires."""
    before = _estimate_rest(parameters, rest)
    return brings(before, now, compute_required_share(parameters, before.threads, now.threads))


def compute_required_share(parameters: ConcurrencyParameters, before: int, after: int) -> float:
    return scale_q(parameters.p, parameters.q, after / before - 1)


def search_upward(
    parameters: ConcurrencyParameters, rest: Cycle | CurveSearch, now: ThroughputMoments
) -> Cycle | CurveSearch:
    if isinstance(rest, Cycle):
        return tcc.step(parameters, _as_step(parameters, rest, now.threads), now)
    here = Point(rest.threads, rest.steady_per_second)
    return explorer.step(
        parameters, CurveSearch(phase="probe", threads=now.threads, points=(here,), steps=rest.steps), now
    )


def _as_step(parameters: ConcurrencyParameters, rest: Cycle | CurveSearch, threads: int) -> Cycle:
    before = _estimate_rest(parameters, rest)
    return Cycle(phase="add", threads=threads, before=before, best=rest.steady_per_second, steps=rest.steps)


def _estimate_rest(parameters: ConcurrencyParameters, rest: Cycle | CurveSearch) -> ThroughputMoments:
    """Return the steady measurement; its own error is negligible next to that of the trial."""
    return ThroughputMoments(rest.threads, 1 / rest.steady_per_second, 0.0, parameters.initial_samples)
