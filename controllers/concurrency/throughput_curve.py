"""Curves of throughput over threads, fitted to a few measured points.

Station: n threads circulate through a delay Z and a station of m servers with service time S (the machine repairman
model; Tang, Figure 4a). π_j, the probability of j threads at the station, follows from births (n - j)/Z and deaths
min(j, m)/S:

    X(n) = Σ_j π_j min(j, m)/S,      capacity C = m/S,   time without queueing R0 = Z + S

Universal scalability law (Gunther), where more threads reduce throughput:

    X(n) = λ n / (1 + σ (n - 1) + κ n (n - 1)),   maximum at n = √((1 - σ)/κ)

Residuals are relative; `error` is their root mean square.

A station curve predicts as the closed network it was fitted as, with Z = R0 - S and S = m/C
(`controllers.design.queueing_models`). The universal scalability law gives only the throughput and its share of the
maximum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import scipy

from common.parameter import value
from controllers.concurrency.parameters import MAX_PER_SECOND, MAX_THREADS
from controllers.design.queueing_models import Station, solve_closed

Floats = npt.NDArray[np.float64]
SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
FEW_THREADS = 1_000  # each state up to this number of threads is counted; above it, those with a relevant probability
# A bend counts when the last point lies this far below the best, in shares and in errors of the points.
BEND, BEND_ERRORS = 0.03, 2.0
MIN_POINTS = 3  # a curve through fewer points means nothing


class Point(msgspec.Struct, frozen=True):
    threads: Annotated[int, value("threads", "Threads at the measurement.", 1, MAX_THREADS)]
    per_second: Annotated[float, value("per second", "Throughput.", 1e-9, MAX_PER_SECOND)]
    error: Annotated[float, value("share", "Relative standard error of the throughput.", 0, 1e36, required=True)] = 0.0


class StationCurve(msgspec.Struct, frozen=True, tag_field="kind", tag="station"):
    """A delay and one saturating station: throughput as a function of threads."""

    servers: Annotated[int, value("servers", "Number of servers.", 1, 1e6)]
    capacity_per_second: Annotated[float, value("per second", "Capacity of the station.", 0, 1e36)]
    empty_seconds: Annotated[float, value("s", "Response time without queueing.", 0, 1e36)]  # R0
    error: Annotated[float, value("share", "Root mean square of the residuals.", 0, 1e36)]

    def evaluate(self, threads: float) -> float:
        """Return X(n), interpolated between whole numbers."""
        below = math.floor(threads)
        low = compute_station_throughput(below, self.servers, self.capacity_per_second, self.empty_seconds)
        if below == threads:
            return low
        high = compute_station_throughput(below + 1, self.servers, self.capacity_per_second, self.empty_seconds)
        return low + (threads - below) * (high - low)


class ScalabilityCurve(msgspec.Struct, frozen=True, tag_field="kind", tag="scalability"):
    """The universal scalability law: throughput as a function of threads."""

    rate_per_second: Annotated[float, value("per second", "Throughput of one thread.", 0, 1e36)]
    contention: Annotated[float, value("1", "σ.", 0, 1e36)]
    coherence: Annotated[float, value("1", "κ.", 0, 1e36)]
    error: Annotated[float, value("share", "Root mean square of the residuals.", 0, 1e36)]

    def evaluate(self, threads: float) -> float:
        """Return X(n)."""
        below = 1 + self.contention * (threads - 1) + self.coherence * threads * (threads - 1)
        return self.rate_per_second * threads / below

    @property
    def peak_threads(self) -> float:
        if self.coherence <= 0:
            return math.inf
        return max(1.0, math.sqrt(max(0.0, 1 - self.contention) / self.coherence))


Curve = StationCurve | ScalabilityCurve


def compute_station_throughput(threads: int, servers: int, capacity_per_second: float, empty_seconds: float) -> float:
    service = servers / capacity_per_second
    thinking = max(0.0, empty_seconds - service)
    if threads <= 0:
        return 0.0
    if thinking <= 1e-12 * empty_seconds:
        return min(threads, servers) / service
    least, most = _estimate_thread_range(threads, servers, thinking / service)
    there = np.arange(least + 1, most + 1)
    logs = np.cumsum(np.log((threads - there + 1) / thinking * service / np.minimum(there, servers)))
    logs = np.concatenate([[0.0], logs])
    chances = np.exp(logs - logs.max())
    busy = chances[1:] @ np.minimum(there, servers) + chances[0] * min(least, servers)
    return float(busy / chances.sum() / service)


def _estimate_thread_range(threads: int, servers: int, thinking: float) -> tuple[int, int]:
    """Return the range of threads that are probably at the station; `thinking` is Z/S.

    π_j is greatest where (n - j)/Z = min(j, m)/S. Away from there the logarithm of the ratio of neighbors grows by at
    least 1/n per step, so at 12 √n the probability is below exp(-72) of the maximum.
    """
    if threads <= FEW_THREADS:
        return 0, threads
    free, full = threads / (1 + thinking), threads - servers * thinking
    likeliest = min(threads, max(0, round(free if free <= servers else full)))
    reach = math.ceil(12 * math.sqrt(threads))
    return max(0, likeliest - reach), min(threads, likeliest + reach)


def fit(points: Sequence[Point]) -> Curve:
    """Return the better of the two curves.

    It is the scalability curve only where the points bend down, and otherwise the station's.
    """
    if not is_past_peak(points):
        return fit_station(points)
    # A station's curve never falls. Its fit is slow, so it is computed only where the other fit is poor.
    scalability = fit_scalability(points)
    if scalability.error <= BEND + BEND_ERRORS * max(point.error for point in points):
        return scalability
    station = fit_station(points)
    return scalability if scalability.error <= station.error else station


def is_past_peak(points: Sequence[Point]) -> bool:
    """Return whether the largest measured configuration is clearly worse than the best below it."""
    ordered = sorted(points, key=lambda point: point.threads)
    best, last = max(ordered, key=lambda point: point.per_second), ordered[-1]
    margin = max(BEND, BEND_ERRORS * math.hypot(best.error, last.error))
    return last.per_second < (1 - margin) * best.per_second


def fit_station(points: Sequence[Point]) -> StationCurve:
    """Fit capacity and R0 by relative least squares, for each number of servers that R0 allows."""
    ordered = sorted(points, key=lambda point: point.threads)
    fewest = ordered[0]
    empty = fewest.threads / fewest.per_second
    capacity = max(point.per_second for point in ordered) * 1.02
    best: StationCurve | None = None
    for servers in SERVERS:
        # The service time of a server is a part of R0.
        if best is not None and servers > 1.5 * capacity * empty:
            break
        fitted = _fit_servers(ordered, servers, capacity, empty)
        if best is None or fitted.error < best.error * (1 - 1e-9):
            best = fitted
    assert best is not None
    return best


def _fit_servers(points: Sequence[Point], servers: int, capacity: float, empty: float) -> StationCurve:
    start = np.log([max(capacity, 1.01 * servers / empty), empty])

    def compute_residuals(logs: Floats) -> Floats:
        guess = np.exp(logs)
        return np.asarray(
            [compute_station_throughput(p.threads, servers, guess[0], guess[1]) / p.per_second - 1 for p in points]
        )

    solution = scipy.optimize.least_squares(compute_residuals, start, bounds=(start - 1.5, start + 1.5), max_nfev=60)
    error = math.sqrt(float(np.mean(solution.fun**2)))
    capacity, empty = np.exp(solution.x).tolist()
    return StationCurve(servers, capacity, empty, error)


def fit_scalability(points: Sequence[Point]) -> ScalabilityCurve:
    """Fit n/X = a + b (n - 1) + c n (n - 1) with a = 1/λ, b = σ/λ, c = κ/λ, none negative, in relative terms."""
    threads = np.asarray([point.threads for point in points], dtype=float)
    measured = threads / np.asarray([point.per_second for point in points])
    columns = np.column_stack([np.ones_like(threads), threads - 1, threads * (threads - 1)])
    solution, _ = scipy.optimize.nnls(columns / measured[:, None], np.ones_like(threads))
    a, b, c = solution.tolist()
    # One thread takes some time, however little the points leave for it.
    a = max(a, 1e-6 * float(measured.min()))
    curve = ScalabilityCurve(1 / a, b / a, c / a, 0.0)
    errors = [curve.evaluate(point.threads) / point.per_second - 1 for point in points]
    return ScalabilityCurve(1 / a, b / a, c / a, math.sqrt(float(np.mean(np.square(errors)))))


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
        (there,) = solution.stations.values()
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
