"""Baselines for the number of threads; each sees threads, throughput, and response time, step by step.

| baseline | rule |
|---|---|
| vegas+ | one more while n - X·minRTT < α, one fewer above β (Tang, 4.8); minRTT the minimum response time |
| vegas++ | the same with the mean response time of an idle system, measured offline |
| gradient2 | L ← .8 L + .2 (L · clip(1.5 · long/short, .5, 1) + 4), long a mean over 600 steps (Netflix) |
| aimd | one more while the response time is below twice the minimum, else nine tenths (TCP) |
| envoy | L ← L · clip((1 + B) minRTT / RTT, .5, 2) + √L, minRTT measured with 3 threads every 60 steps |
| hill-climber | continues by a tenth while throughput rises, reverses when it falls (.NET's thread pool) |
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

VEGAS_ALPHA, VEGAS_BETA = 1.0, 3.0
ENVOY_BUFFER, ENVOY_PERIOD, ENVOY_PROBE = 0.1, 60, 3
HILL_SHARE = 0.1


@dataclass(frozen=True)
class LimitStep:
    """Measurements of one step; times in s."""

    threads: int
    throughput_per_second: float
    response_seconds: float
    least_response_seconds: float
    idle_response_seconds: float


@dataclass(frozen=True)
class Limit:
    """A baseline's limit, rounded only when it is set, and its memory."""

    value: float = 1.0
    long_seconds: float | None = None
    best_seconds: float | None = None
    last_per_second: float = 0.0
    direction: int = 1
    step: int = 0

    @property
    def threads(self) -> int:
        return max(1, round(self.value))


def apply_vegas(limit: Limit, seen: LimitStep, base_seconds: float) -> Limit:
    """Apply TCP Vegas with a given response time without contention."""
    queued = seen.threads - seen.throughput_per_second * base_seconds
    change = 1 if queued < VEGAS_ALPHA else -1 if queued > VEGAS_BETA else 0
    return replace(limit, value=max(1.0, limit.value + change))


def apply_vegas_plus(limit: Limit, seen: LimitStep) -> Limit:
    return apply_vegas(limit, seen, seen.least_response_seconds)


def apply_vegas_plus_plus(limit: Limit, seen: LimitStep) -> Limit:
    return apply_vegas(limit, seen, seen.idle_response_seconds)


def apply_gradient2(limit: Limit, seen: LimitStep) -> Limit:
    short = seen.response_seconds
    long = short if limit.long_seconds is None else limit.long_seconds + (short - limit.long_seconds) * 2 / 601
    gradient = min(1.0, max(0.5, 1.5 * long / short))
    return replace(limit, value=0.8 * limit.value + 0.2 * (limit.value * gradient + 4), long_seconds=long)


def apply_aimd(limit: Limit, seen: LimitStep) -> Limit:
    if seen.response_seconds > 2 * seen.least_response_seconds:
        return replace(limit, value=max(1.0, 0.9 * limit.value))
    return replace(limit, value=limit.value + 1)


def apply_envoy(limit: Limit, seen: LimitStep) -> Limit:
    """Apply Envoy's adaptive concurrency: the gradient to a minimum response time, measured periodically."""
    if limit.step % ENVOY_PERIOD == 0:
        # The value is kept while the probe runs with few threads.
        return replace(limit, step=limit.step + 1, best_seconds=None)
    if limit.best_seconds is None:
        return replace(limit, step=limit.step + 1, best_seconds=seen.response_seconds)
    gradient = min(2.0, max(0.5, (1 + ENVOY_BUFFER) * limit.best_seconds / seen.response_seconds))
    value = limit.value * gradient
    return replace(limit, step=limit.step + 1, value=max(float(ENVOY_PROBE), value + math.sqrt(value)))


def get_envoy_threads(limit: Limit) -> int:
    return ENVOY_PROBE if limit.best_seconds is None else limit.threads


def apply_hill_climber(limit: Limit, seen: LimitStep) -> Limit:
    rises = seen.throughput_per_second > limit.last_per_second
    direction = limit.direction if rises else -limit.direction
    step = max(1.0, HILL_SHARE * limit.value)
    value = max(1.0, limit.value + direction * step)
    return replace(limit, value=value, direction=direction, last_per_second=seen.throughput_per_second)


BASELINES: Mapping[str, Callable[[Limit, LimitStep], Limit]] = {
    "vegas+": apply_vegas_plus,
    "vegas++": apply_vegas_plus_plus,
    "gradient2": apply_gradient2,
    "aimd": apply_aimd,
    "envoy": apply_envoy,
    "hill-climber": apply_hill_climber,
}
