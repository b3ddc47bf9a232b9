"""Metrics of the lab: their units, and which of two values is better.

A metric without an entry is displayed without a comparison.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal


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
