"""What a metric of the lab measures: its unit, and which of two values is the better one.

A metric that isn't named here is shown as it is, and nobody is called the best by it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """`better`: "lower", "higher", or "none" where a value says nothing about how well a law does."""

    unit: str
    better: Literal["lower", "higher", "none"] = "lower"


UNKNOWN = Metric("", "none")
METRICS: Mapping[str, Metric] = {
    "waiting_5s_post": Metric("events, summed every 5 s"),
    "waiting_1s_post": Metric("events, summed every second"),
    "waiting_greatest": Metric("events"),
    "wait_greatest_seconds": Metric("s"),
    "worker_runs": Metric("runs"),
    "minimum_runs": Metric("runs", "none"),
    "minimum_runs_in_time": Metric("runs", "none"),
    "toobusy_node_minutes": Metric("min"),
    "of_failures": Metric("min"),
    "points_moved": Metric("points"),
    "moved_share": Metric("share of all points, an hour"),
    "decision_seconds_worst": Metric("s of the processor"),
    "decision_seconds_mean": Metric("s of the processor"),
    "moves": Metric("moves"),
    "containers_mean": Metric("containers", "none"),
    "nodes_used_mean": Metric("nodes"),
    "minutes_to_clear": Metric("min"),
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
    "realised_share": Metric("share of what was promised", "none"),
    "matches": Metric("matches", "higher"),
    "tasks_mean": Metric("tasks"),
    "error_rate": Metric("share"),
    "rescales": Metric("changes"),
    "rungs": Metric("rungs", "none"),
    "lost_events": Metric("events"),
    "lost_orders": Metric("events"),
    "shed_too_early": Metric("events"),
    "shed_after_decisions": Metric("decisions"),
    "seconds_to_normal": Metric("s"),
}


def metric(name: str) -> Metric:
    return METRICS.get(name, UNKNOWN)


def best(name: str, values: Iterable[float | None]) -> float | None:
    """The best of the values that are known; None where there is none, or where all are alike."""
    known = [value for value in values if value is not None]
    better = metric(name).better
    if better == "none" or len(set(known)) < 2:
        return None
    return min(known) if better == "lower" else max(known)


def names_of(outcomes: Iterable[Mapping[str, object]]) -> list[str]:
    """All metrics of some outcomes, in the order in which they come."""
    return list(dict.fromkeys(name for metrics in outcomes for name in metrics))
