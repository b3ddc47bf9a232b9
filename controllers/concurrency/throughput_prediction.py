"""What a fitted curve of throughput over threads promises: what saturates, what other numbers would bring.

A station curve is the closed network it was fitted as: n threads go round a delay Z = R0 - S and a station of
m servers with S = m/C (`controllers.design.queueing_models.closed`). Of the universal scalability law only
the throughput is known, and its share of the greatest there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controllers.concurrency.throughput_curve import Curve, Point, ScalabilityCurve, StationCurve, fit
from controllers.design.queueing_models import Station, closed

FEWEST_POINTS = 3  # a curve through fewer says nothing


@dataclass(frozen=True)
class PredictedThroughput:
    """With so many threads: completions per second, the bottleneck's utilisation (of the scalability law: the
    share of the greatest throughput), and the wait for it per completion (s; None: not known)."""

    threads: int
    per_second: float
    utilisation: float
    wait_seconds: float | None


@dataclass(frozen=True)
class Saturation:
    """What saturates: so many servers, each taking so long, after a delay elsewhere (s); at most so many per
    second. Of the scalability law: `peak_threads`, beyond which more do harm."""

    capacity_per_second: float
    servers: int | None = None
    service_seconds: float | None = None
    elsewhere_seconds: float | None = None
    peak_threads: float | None = None


def curve_through(points: Sequence[Point]) -> Curve | None:
    """The curve fitted to what was measured; None where that is too little."""
    known = [point for point in points if point.threads > 0 and point.per_second > 0]
    return fit(known) if len({point.threads for point in known}) >= FEWEST_POINTS else None


def predicted_throughput(curve: Curve, threads: int) -> PredictedThroughput:
    """What so many threads would bring."""
    if isinstance(curve, StationCurve):
        found = closed([_station(curve)], threads, _elsewhere_seconds(curve))
        there = found.stations["bottleneck"]
        return PredictedThroughput(
            threads, found.throughput_per_second, there.utilisation, there.waiting_seconds
        )
    per_second = curve.at(threads)
    return PredictedThroughput(threads, per_second, per_second / bottleneck(curve).capacity_per_second, None)


def bottleneck(curve: Curve) -> Saturation:
    """What the curve says of it."""
    if isinstance(curve, StationCurve):
        station = _station(curve)
        return Saturation(
            curve.capacity_per_second,
            curve.servers,
            station.service_seconds,
            _elsewhere_seconds(curve),
        )
    assert isinstance(curve, ScalabilityCurve)
    if curve.peak_threads == float("inf"):
        # Without harm there is a limit, λ/σ, or none at all.
        most = curve.rate_per_second / curve.contention if curve.contention > 0 else float("inf")
        return Saturation(most, peak_threads=None)
    return Saturation(curve.at(curve.peak_threads), peak_threads=curve.peak_threads)


def _station(curve: StationCurve) -> Station:
    return Station("bottleneck", curve.servers, curve.servers / curve.capacity_per_second)


def _elsewhere_seconds(curve: StationCurve) -> float:
    return max(0.0, curve.empty_seconds - curve.servers / curve.capacity_per_second)
