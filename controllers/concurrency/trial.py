"""A trial: a step more of threads in the steady state, to see whether it brings more by now.

A pool at its knee does not notice that what it calls can do more than before: the threads there are were
served all along, and throughput stays. So after each `trial_seconds` of the steady state p more threads are
tried. Where they bring what a friendly step has to bring (Tang, condition 1), the search goes on upwards from
there; else the pool goes back. Each search and each trial that ends with less than a step more than there was
doubles the time to the next trial, up to `steady_seconds`, when everything is explored again anyway.

Where other pools use the same, nothing is tried: a step of one takes from the others, and pays for that alone
(one of three that adds a quarter gets 15 % more of what has not grown). Only a pool with far fewer threads
than they have on average tries a step, and after one that was worth it the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from controllers.concurrency import explorer, tcc
from controllers.concurrency.explorer import CurveSearch
from controllers.concurrency.steady import MOST_PER_SECOND
from controllers.concurrency.tcc import Cycle, more
from controllers.concurrency.throughput import MOST_THREADS, Measurement, brings
from controllers.concurrency.throughput_curve import Point
from controllers.design.friendliness import scaled_q
from controllers.framework.decision import Json
from controllers.framework.law import Values
from controllers.framework.parameter import Parameter

MOST_FRUITLESS = 1_000
# A pool is behind where the mean is more than so many times its threads.
BEHIND = 1.5
TRIAL = (
    Parameter(
        "threads", "threads", "Tried now; 0: none are.", None, 0, MOST_THREADS, "integer", required=True
    ),
    Parameter("began_at", "s", "Of the steady state, when the last began.", None, 0, 1e15, required=True),
    Parameter(
        "fruitless",
        "times",
        "In a row without more threads.",
        None,
        0,
        MOST_FRUITLESS,
        "integer",
        required=True,
    ),
)
ORIGIN = (
    Parameter("threads", "threads", "There were.", None, 1, MOST_THREADS, "integer", required=True),
    Parameter("per_second", "per second", "They brought.", None, 0, MOST_PER_SECOND, required=True),
)


@dataclass(frozen=True)
class Origin:
    """What the pool had and brought when its exploration began."""

    threads: int
    per_second: float

    def to_json(self) -> dict[str, Json]:
        """As a law's state keeps it."""
        return dict(vars(self))


@dataclass(frozen=True)
class Trial:
    """The threads that are tried (0: none are), when in the steady state the last trial began, and how many
    trials and searches in a row have ended with no more threads than before."""

    threads: int = 0
    began_at: float = 0.0
    fruitless: int = 0

    def to_json(self) -> dict[str, Json]:
        """As a law's state keeps it."""
        return dict(vars(self))

    def ended(self, grown: bool) -> "Trial":
        """Nothing is tried any more; `grown`: there are more threads than before."""
        fruitless = 0 if grown else min(self.fruitless + 1, MOST_FRUITLESS)
        return replace(self, threads=0, fruitless=fruitless)


def trial_from(document: Mapping[str, Any] | None) -> Trial:
    """The trial that `to_json` made a document of; a state of an older Weir has none."""
    return Trial() if document is None else Trial(**document)


def origin_from(document: Mapping[str, Any] | None) -> Origin | None:
    """The origin that `to_json` made a document of."""
    return None if document is None else Origin(**document)


def is_due(parameters: Values, trial: Trial, rest: Cycle | CurveSearch) -> bool:
    """Whether a pool at rest is to try a step more."""
    every = float(parameters["trial_seconds"])
    step = step_from(parameters, rest.threads)
    if every <= 0 or rest.steady_per_second <= 0 or rest.doubted or step == rest.threads:
        return False
    wait = min(every * 2.0 ** min(trial.fruitless, 30), float(parameters["steady_seconds"]))
    return rest.steady_seconds - trial.began_at >= wait


def is_behind(
    parameters: Values, trial: Trial, rest: Cycle | CurveSearch, mean_threads: float | None
) -> bool:
    """Whether a pool at rest is to try a step more because those that use the same have far more: it stopped
    while they grew, and took what they took away for the end of its own growth. At once where nothing was
    tried yet.
    """
    if mean_threads is None or BEHIND * rest.threads >= mean_threads or rest.doubted:
        return False
    if float(parameters["trial_seconds"]) <= 0 or rest.steady_per_second <= 0:
        return False
    step = step_from(parameters, rest.threads)
    first = trial.began_at == 0.0
    return step > rest.threads and (first or is_due(parameters, trial, rest))


def begun(parameters: Values, trial: Trial, rest: Cycle | CurveSearch) -> Trial:
    """A step more than a pool at rest has."""
    return replace(trial, threads=step_from(parameters, rest.threads), began_at=rest.steady_seconds)


def step_from(parameters: Values, threads: int) -> int:
    """A step more than so many, as far as the range goes."""
    return max(threads, more(threads, parameters))


def needed_samples(parameters: Values, rest: Cycle | CurveSearch, now: Measurement) -> float:
    """Samples until the step is known to bring enough, or not to; few where it clearly does harm."""
    return tcc.needed_samples(parameters, _as_step(parameters, rest, now.threads), now)


def is_worth(parameters: Values, rest: Cycle | CurveSearch, now: Measurement) -> bool:
    """Whether the threads tried bring what a friendly step of this size has to bring."""
    before = _before(parameters, rest)
    return brings(before, now, asked_share(parameters, before.threads, now.threads))


def asked_share(parameters: Values, before: int, after: int) -> float:
    """The share of the throughput that a step from `before` threads to `after` has to bring."""
    return scaled_q(float(parameters["p"]), float(parameters["q"]), after / before - 1)


def upwards(parameters: Values, rest: Cycle | CurveSearch, now: Measurement) -> Cycle | CurveSearch:
    """The search that goes on from the threads that were worth it."""
    if isinstance(rest, Cycle):
        return tcc.step(parameters, _as_step(parameters, rest, now.threads), now)
    here = Point(rest.threads, rest.steady_per_second)
    return explorer.step(parameters, CurveSearch("probe", now.threads, (here,), steps=rest.steps), now)


def _as_step(parameters: Values, rest: Cycle | CurveSearch, threads: int) -> Cycle:
    before = _before(parameters, rest)
    return Cycle("add", threads, before=before, best=rest.steady_per_second, steps=rest.steps)


def _before(parameters: Values, rest: Cycle | CurveSearch) -> Measurement:
    """What the pool brings at rest; its own error counts for nothing beside that of the trial."""
    return Measurement(rest.threads, 1 / rest.steady_per_second, 0.0, int(parameters["initial_samples"]))
