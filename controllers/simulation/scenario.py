"""The definition of a scenario of the lab: its laws, its settings, and how it runs.

Arrival profiles of the lab: values between 0 and 1, one per step, to be multiplied by a rate.

Metrics of the lab: their units, and which of two values is better.

A metric without an entry is displayed without a comparison.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from common.errors import BadInput
from common.parameter import Parameter, read_values

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScenarioOutcome:
    """The result of one law: its metrics, and series by name, one value per `series_seconds`."""

    metrics: Mapping[str, float | int | None]
    series: Mapping[str, Floats] = field(default_factory=dict)
    series_seconds: float = 60.0


Run = Callable[[str, Mapping[str, Any], int, Floats | None], ScenarioOutcome]


@dataclass(frozen=True)
class SimulationCost:
    """The estimated cost of the simulation of one law, on a core of 2020."""

    cpu_seconds: float
    memory_bytes: float


@dataclass(frozen=True)
class SimulationSize:
    """The settings that make a simulation large: names of the settings, what to do about it, and an estimate."""

    names: tuple[str, ...]
    advice: str
    estimate: Callable[[Mapping[str, Any]], SimulationCost]


@dataclass(frozen=True)
class Scenario:
    """A scenario. `run(law, settings, seed, trace)` runs it; a trace of None means its own arrivals.

    `steers`: law of the lab → law of the plant and the parameters that make it this one. A law without an
    entry represents the plant's law of the same name. `size` is None for a scenario that is small with any settings.
    """

    name: str
    about: str
    laws: Sequence[str]
    settings: Sequence[Parameter]
    metrics: Sequence[str]
    run: Run
    steers: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    size: SimulationSize | None = None

    def read_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings, given or by default. Raise `BadInput` naming the setting."""
        try:
            return read_values(self.settings, settings, "--set")
        except BadInput as error:
            raise BadInput(error.field.replace("--set.", "--set "), error.message) from error

    def read_laws(self, names: Sequence[str]) -> list[str]:
        """Return the requested laws, or all. Raise `BadInput` for a law that the scenario does not have."""
        for name in names:
            if name not in self.laws:
                raise BadInput("--law", f"must be one of {', '.join(self.laws)}, not {name}")
        return list(dict.fromkeys(names)) or list(self.laws)


def create_random_generator(seed: int, *names: str) -> np.random.Generator:
    """Return a random generator for a seed and some names, so that laws don't share one."""
    return np.random.default_rng([seed, *(byte for name in names for byte in name.encode())])


def compute_day_sine(steps: int) -> Floats:
    """Return one day from its minimum, 0, over its peak, 1, and back: (1 - cos 2πt) / 2."""
    return np.asarray((1 - np.cos(2 * np.pi * np.arange(steps) / steps)) / 2)


def build_jump(steps: int, at: int, size: float) -> Floats:
    """Return 1 - size until the step `at`, and 1 from there on."""
    return np.where(np.arange(steps) < at, 1.0 - size, 1.0)


def resample(trace: Floats, steps: int) -> Floats:
    """Return a real trace, interpolated linearly to the number of steps and scaled to a maximum of 1.

    Raise `BadInput` if no value is above 0, or if any is negative or not finite.
    """
    _check(trace)
    at = np.linspace(0, trace.size - 1, steps)
    shape = np.interp(at, np.arange(trace.size), trace / trace.max())
    # All arrivals may lie between the steps.
    return np.asarray(shape / shape.max()) if shape.max() > 0 else resample_by_mean(trace, steps)


def resample_by_mean(trace: Floats, steps: int) -> Floats:
    """Return a real trace as `resampled`, but with the mean of each step if it has more values than steps.

    Raise `BadInput` as that function does.
    """
    _check(trace)
    if trace.size <= steps:
        return resample(trace, steps)
    edges = np.linspace(0, trace.size, steps + 1).astype(int)
    means = np.add.reduceat(trace / trace.max(), edges[:-1]) / np.diff(edges)
    return np.asarray(means / means.max())


def _check(trace: Floats) -> None:
    if trace.size == 0 or not np.all(np.isfinite(trace)) or trace.min() < 0 or trace.max() <= 0:
        raise BadInput("--trace", "must be numbers of at least 0, with at least one above 0")


def add_noise(rates: Floats, noise: float, chance: np.random.Generator) -> Floats:
    """Return rates times 1 + noise * N(0, 1), independently for each value, and never below 0."""
    if noise == 0:
        return rates
    return np.asarray(np.maximum(0.0, rates * (1 + noise * chance.standard_normal(rates.shape))))


@dataclass(frozen=True)
class Metric:
    """A metric.

    `better` is "lower", "higher", or "none" if the value says nothing about the quality of a law.
    """

    unit: str
    better: Literal["lower", "higher", "none"] = "lower"


UNKNOWN = Metric("", "none")
METRICS: Mapping[str, Metric] = {
    "waiting_5s_post": Metric("events (sum of 5 s samples)"),
    "waiting_1s_post": Metric("events (sum of 1 s samples)"),
    "waiting_greatest": Metric("events"),
    "wait_greatest_seconds": Metric("s"),
    "worker_runs": Metric("runs"),
    "minimum_runs": Metric("runs", "none"),
    "minimum_runs_in_time": Metric("runs", "none"),
    "toobusy_node_minutes": Metric("min"),
    "of_failures": Metric("min"),
    "points_moved": Metric("points"),
    "moved_share": Metric("share of all points per hour"),
    "decision_seconds_worst": Metric("s of CPU time"),
    "decision_seconds_mean": Metric("s of CPU time"),
    "moves": Metric("moves"),
    "containers_mean": Metric("containers", "none"),
    "nodes_used_mean": Metric("nodes"),
    "minutes_to_clear": Metric("min"),
    "chance": Metric("share of the trials", "higher"),
    "waiting_end": Metric("events"),
    "overshoot_rate": Metric("times the needed rate"),
    "seconds_to_restore": Metric("s"),
    "threads_last": Metric("threads", "none"),
    "linear_share": Metric("share of linear", "higher"),
    "deviation_seconds": Metric("s"),
    "events_lost": Metric("events"),
    "seconds_to_divert": Metric("s"),
    "points_restored": Metric("points", "higher"),
    "threads": Metric("threads", "none"),
    "threads_first": Metric("threads", "none"),
    "threads_later": Metric("threads", "none"),
    "utilisation": Metric("share", "none"),
    "steps": Metric("steps"),
    "seconds_to_first": Metric("s"),
    "warm_steps": Metric("steps"),
    "threads_least": Metric("threads", "none"),
    "threads_most": Metric("threads", "none"),
    "share": Metric("share of a contended station", "none"),
    "peak_fraction_before": Metric("share of the peak", "higher"),
    "peak_fraction_after": Metric("share of the peak", "higher"),
    "windows_to_recover": Metric("windows"),
    "settling_samples": Metric("samples"),
    "overshoot": Metric("share"),
    "minimum_free_mb": Metric("MB", "higher"),
    "drops": Metric("events"),
    "rms": Metric("MB"),
    "delay_mean_seconds": Metric("s"),
    "delay_max_seconds": Metric("s"),
    "spread": Metric("s"),
    "recall": Metric("share of the matches", "higher"),
    "latency_mean_seconds": Metric("s"),
    "bound_violations": Metric("share of the windows"),
    "realised_share": Metric("share of the expected value", "none"),
    "matches": Metric("matches", "higher"),
    "tasks_mean": Metric("tasks"),
    "error_rate": Metric("share"),
    "rescales": Metric("changes"),
    "rungs": Metric("levels", "none"),
    "lost_events": Metric("events"),
    "lost_orders": Metric("events"),
    "shed_too_early": Metric("events"),
    "shed_after_decisions": Metric("decisions"),
    "seconds_to_normal": Metric("s"),
    "cost": Metric("money"),
    "bad_seconds": Metric("s"),
    "actions": Metric("changes"),
    "undone_actions": Metric("changes"),
    "cost_bad_seconds": Metric("money"),
    "cost_lost_events": Metric("money"),
    "cost_bound": Metric("money", "none"),
    "cost_coverage": Metric("share of the plans", "none"),
    "waiting_coverage": Metric("share of the plans", "none"),
}


def get_metric(name: str) -> Metric:
    return METRICS.get(name, UNKNOWN)


def find_best_value(name: str, values: Iterable[float | None]) -> float | None:
    """Return the best of the known values; None if there are none, or if all are equal."""
    known = [value for value in values if value is not None]
    better = get_metric(name).better
    if better == "none" or len(set(known)) < 2:
        return None
    return min(known) if better == "lower" else max(known)


def list_metric_names(outcomes: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for metrics in outcomes for name in metrics))
