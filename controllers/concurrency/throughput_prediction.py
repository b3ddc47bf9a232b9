"""What a fitted throughput curve predicts: what saturates, and what other sizes would bring.

A station curve is the closed network it was fitted as: n threads circulate through a delay Z = R0 - S and a station of
m servers with S = m/C (`controllers.design.queueing_models.closed`). The universal scalability law gives only the
throughput and its share of the maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.concurrency.throughput_curve import Curve, Point, ScalabilityCurve, StationCurve, fit
from controllers.design.queueing_models import Station, solve_closed

MIN_POINTS = 3  # a curve through fewer points means nothing


@dataclass(frozen=True)
class PredictedThroughput:
    """The predicted throughput for a number of threads.

    It has the completions per second, the utilization of the bottleneck (for the scalability law: share of the maximum
    throughput), and the wait for the bottleneck per completion (s; None: not known).
    """

    threads: int
    per_second: float
    utilisation: float
    wait_seconds: float | None


@dataclass(frozen=True)
class Saturation:
    """The saturated station: its servers, their service time, the delay elsewhere (s), and its maximum rate.

    The rate is per second. For the scalability law, `peak_threads` is the number above which more threads reduce
    throughput.
    """

    capacity_per_second: float
    servers: int | None = None
    service_seconds: float | None = None
    elsewhere_seconds: float | None = None
    peak_threads: float | None = None


def fit_curve_to_points(points: Sequence[Point]) -> Curve | None:
    """Return the curve fitted to the measurements, or None if there are too few."""
    known = [point for point in points if point.threads > 0 and point.per_second > 0]
    return fit(known) if len({point.threads for point in known}) >= MIN_POINTS else None


def predict_throughput(curve: Curve, threads: int) -> PredictedThroughput:
    if isinstance(curve, StationCurve):
        solution = solve_closed([_build_station(curve)], threads, _compute_elsewhere_seconds(curve))
        there = solution.stations["bottleneck"]
        return PredictedThroughput(threads, solution.throughput_per_second, there.utilisation, there.waiting_seconds)
    per_second = curve.evaluate(threads)
    return PredictedThroughput(threads, per_second, per_second / estimate_saturation(curve).capacity_per_second, None)


def estimate_saturation(curve: Curve) -> Saturation:
    if isinstance(curve, StationCurve):
        station = _build_station(curve)
        return Saturation(
            curve.capacity_per_second, curve.servers, station.service_seconds, _compute_elsewhere_seconds(curve)
        )
    assert isinstance(curve, ScalabilityCurve)
    if curve.peak_threads == float("inf"):
        # Without harm there is a limit, λ/σ, or none at all.
        most = curve.rate_per_second / curve.contention if curve.contention > 0 else float("inf")
        return Saturation(most, peak_threads=None)
    return Saturation(curve.evaluate(curve.peak_threads), peak_threads=curve.peak_threads)


def _build_station(curve: StationCurve) -> Station:
    return Station("bottleneck", curve.servers, curve.servers / curve.capacity_per_second)


def _compute_elsewhere_seconds(curve: StationCurve) -> float:
    return max(0.0, curve.empty_seconds - curve.servers / curve.capacity_per_second)
