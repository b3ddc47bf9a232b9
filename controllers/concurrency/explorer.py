"""The fitted explorer: a few probes, a curve through them, and the stop rule of TCC applied to the curve.

    probe    1, 2, 4, … threads, until doubling no longer brings the gain that a friendly step requires;
             later, from a known curve, only the sizes that show whether the curve still holds
    verify   run with the size that the stop rule selects; a point off the curve joins the fit
    steady   until a timeout, or until the throughput changes

The stop rule is that of TCC, walked along the curve from the same base, so the share of a contended bottleneck has the
same bound. Where the points bend down, the curve is the universal scalability law, and the explorer never uses more
threads than reach `peak_share` of its maximum throughput. If no curve fits within `fit_tolerance`, TCC takes over for
the cycle.

With `aim` set to peak, other processes need no consideration: probing continues until throughput falls, and the pool
runs with the smallest size within `peak_share` of the maximum throughput.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import value
from controllers.concurrency.parameters import MAX_THREADS, ConcurrencyParameters, Exploration
from controllers.concurrency.tcc import decrease_threads, increase_threads
from controllers.concurrency.throughput import MIN_SAMPLES, ThroughputMoments
from controllers.concurrency.throughput_curve import BEND, Curve, Point, ScalabilityCurve, fit, is_past_peak
from controllers.design.friendliness import scale_q

LOSS_ERRORS = 3.0  # standard errors by which a loss must stand out
DOUBLING_ERROR = 0.05  # a tenth of the gain that a doubling has to bring
MAX_POINTS = 1_000


class CurveSearch(Exploration, frozen=True, kw_only=True, tag_field="kind", tag="explorer"):
    phase: Annotated[str, value("choice", "Phase of the search.", choices=("probe", "verify", "steady"))]
    points: Annotated[tuple[Point, ...], value("points", "Measured points.", required=True, most=MAX_POINTS)] = ()
    pending: Annotated[
        tuple[int, ...], value("threads", "Sizes still to be probed.", 1, MAX_THREADS, required=True, most=MAX_POINTS)
    ] = ()
    doubling: Annotated[bool, value("flag", "True: each probe doubles the threads.", required=True)] = True
    verified: Annotated[int, value("times", "Points that were off the curve.", 0, 1e9, required=True)] = 0
    curve: Annotated[Curve | None, value("curve", "Curve that the last choice used.", or_null=True)] = None


def check_search(search: CurveSearch, where: str) -> None:
    threads = [point.threads for point in search.points]
    for at, count in enumerate(threads):
        if count in threads[:at]:
            raise BadInput(f"{where}.points[{at}].threads", f"must be unique; {count} appears twice")


def count_needed_samples(
    parameters: ConcurrencyParameters, search: CurveSearch, now: ThroughputMoments, waiting: bool = False
) -> float:
    """Return the samples needed until the relative standard error of the mean is `probe_error`.

    Return the minimum if more threads clearly reduced the throughput: past a memory cliff, each further sample is
    expensive. While work waits, the gain of a doubling need not be known as exactly as a point of a curve.
    """
    least, error_allowed = parameters.initial_samples, parameters.probe_error
    if waiting and search.doubling:
        least, error_allowed = min(least, MIN_SAMPLES), max(error_allowed, DOUBLING_ERROR)
    # Fewer threads brought more, by more than a bend and more than chance.
    best = max((p.per_second for p in search.points if p.threads < now.threads), default=0.0)
    error = now.relative_deviation / now.samples**0.5
    if now.throughput_per_second * (1 + LOSS_ERRORS * error) < (1 - BEND) * best:
        return least
    wanted = (now.relative_deviation / error_allowed) ** 2
    return min(max(wanted, least), parameters.most_samples)


def step(
    parameters: ConcurrencyParameters, search: CurveSearch, now: ThroughputMoments, waiting: bool = False
) -> CurveSearch:
    """Return the search after a measurement; while work waits, it ends near the best throughput that was measured."""
    if now.threads > parameters.maximum:
        return _leave_ceiling(parameters, replace(search, steps=search.steps + 1), now)
    # For the same number of threads the newest point wins.
    fresh = Point(now.threads, now.throughput_per_second, now.relative_deviation / now.samples**0.5)
    others = (point for point in search.points if point.threads != now.threads)
    search = replace(search, points=(*others, fresh), steps=search.steps + 1)
    if search.phase == "verify":
        return _continue_after_verify(parameters, search, now)
    if search.doubling and _goes_on_doubling(parameters, search, now):
        return replace(search, threads=min(2 * now.threads, parameters.maximum))
    if not search.doubling and search.pending:
        return replace(search, threads=search.pending[0], pending=search.pending[1:])
    search = replace(search, doubling=False)
    if waiting:
        best = max(point.per_second for point in search.points)
        near = min(point.threads for point in search.points if point.per_second >= parameters.keep * best)
        parameters = replace(parameters, minimum=max(parameters.minimum, near))
    return _choose_threads(parameters, search)


def _leave_ceiling(parameters: ConcurrencyParameters, search: CurveSearch, now: ThroughputMoments) -> CurveSearch:
    """Continue below a size whose throughput collapsed, which is on no curve."""
    search = replace(search, points=tuple(point for point in search.points if point.threads < now.threads))
    most = max((point.threads for point in search.points), default=parameters.maximum)
    if search.doubling and most < parameters.maximum:
        return replace(search, threads=parameters.maximum)
    pending = tuple(threads for threads in search.pending if threads <= parameters.maximum)
    if pending:
        return replace(search, threads=pending[0], pending=pending[1:])
    return _choose_threads(parameters, replace(search, doubling=False, pending=()))


def _goes_on_doubling(parameters: ConcurrencyParameters, search: CurveSearch, now: ThroughputMoments) -> bool:
    before = max((p for p in search.points if p.threads < now.threads), key=lambda p: p.threads, default=None)
    size = 1.0 if before is None else now.threads / before.threads - 1
    asked = scale_q(parameters.p, parameters.q, size)
    if parameters.aim == "peak":
        goes_on = len(search.points) < 4 or not is_past_peak(search.points)
    else:
        goes_on = before is None or now.throughput_per_second >= (1 + asked) * before.per_second
    return goes_on and now.threads < parameters.maximum


def _choose_threads(parameters: ConcurrencyParameters, search: CurveSearch) -> CurveSearch:
    """Verify the size that the curve suggests, or leave the cycle to TCC if there is no curve."""
    if len(search.points) < 3:
        return _handle_few_points(parameters, search)
    curve = fit(search.points)
    if curve.error > parameters.fit_tolerance + 2 * _compute_mean_error(search.points):
        return replace(search, phase="tcc")
    search, threads = replace(search, curve=curve), compute_target_threads(parameters, curve)
    known = next((point for point in search.points if point.threads == threads), None)
    if known is not None:
        return settle(search, threads, known.per_second)
    return replace(search, phase="verify", threads=threads)


def _handle_few_points(parameters: ConcurrencyParameters, search: CurveSearch) -> CurveSearch:
    """Handle too few points for a fit.

    Probe half of the smallest size too, because the search may have started above the knee. Where the range ends, use
    the fewest threads that reach `keep` of the best throughput.
    """
    fewest = min(point.threads for point in search.points)
    lower = max(parameters.minimum, fewest // 2)
    if lower < fewest:
        return replace(search, phase="probe", threads=lower, pending=())
    best = max(point.per_second for point in search.points)
    enough = [point for point in search.points if point.per_second >= parameters.keep * best]
    chosen = min(enough, key=lambda point: point.threads)
    return settle(search, chosen.threads, chosen.per_second)


def _continue_after_verify(
    parameters: ConcurrencyParameters, search: CurveSearch, now: ThroughputMoments
) -> CurveSearch:
    before = fit([point for point in search.points if point.threads != now.threads] or search.points)
    off = abs(before.evaluate(now.threads) / now.throughput_per_second - 1)
    tolerated = parameters.verify_tolerance + 2 * _compute_mean_error(search.points)
    if off <= tolerated or search.verified >= parameters.verifications:
        return settle(search, now.threads, now.throughput_per_second)
    return _choose_threads(parameters, replace(search, verified=search.verified + 1))


def _compute_mean_error(points: Sequence[Point]) -> float:
    return sum(point.error for point in points) / len(points)


def settle(search: CurveSearch, threads: int, per_second: float) -> CurveSearch:
    return replace(
        search,
        phase="steady",
        threads=threads,
        pending=(),
        doubling=False,
        verified=0,
        steady_per_second=per_second,
        steady_seconds=0.0,
        doubted=False,
    )


def compute_target_threads(parameters: ConcurrencyParameters, curve: Curve) -> int:
    """Return the size at which the stop rule ends on a curve, within the range."""
    if not isinstance(curve, ScalabilityCurve):
        return _compute_friendly_threads(parameters, curve)
    peak = _find_near_peak(parameters, curve)
    return peak if parameters.aim == "peak" else min(peak, _compute_friendly_threads(parameters, curve))


def _compute_friendly_threads(parameters: ConcurrencyParameters, curve: Curve) -> int:
    """Return the size at which TCC would settle on the curve."""
    threads, maximum = parameters.minimum, parameters.maximum
    while threads < maximum:
        after = increase_threads(threads, parameters)
        gain = curve.evaluate(after) / curve.evaluate(threads) - 1
        enough = gain >= scale_q(parameters.p, parameters.q, after / threads - 1)
        threads = after
        if not enough:
            break
    keep = parameters.keep * curve.evaluate(threads)
    while (lower := decrease_threads(threads, parameters.r, parameters)) < threads and curve.evaluate(lower) >= keep:
        threads = lower
    return threads


def _find_near_peak(parameters: ConcurrencyParameters, curve: ScalabilityCurve) -> int:
    least, most = parameters.minimum, parameters.maximum
    peak = min(max(curve.peak_threads, least), most)
    wanted = parameters.peak_share * curve.evaluate(peak)
    threads = round(peak)
    while threads > least and curve.evaluate(threads - 1) >= wanted:
        threads -= 1
    return min(max(threads, least), most)


def explore_upward(parameters: ConcurrencyParameters, search: CurveSearch) -> CurveSearch:
    """Start the next cycle with twice the current threads; the throughput at the current size is known."""
    here = Point(search.threads, search.steady_per_second)
    threads = min(2 * search.threads, parameters.maximum)
    return CurveSearch(phase="probe", threads=threads, points=(here,), steps=search.steps)


def explore_again(parameters: ConcurrencyParameters, search: CurveSearch, changed: bool) -> CurveSearch:
    """Start the next cycle.

    After a timeout, check the curve at one size below and one above. After a change, discard all points and double from
    a quarter of the current size.
    """
    if changed or len(search.points) < 3:
        start = max(parameters.minimum, search.threads // 4)
        return CurveSearch(phase="probe", threads=start, steps=search.steps)
    low = decrease_threads(search.threads, parameters.w, parameters)
    high = increase_threads(search.threads, parameters)
    probes = [threads for threads in (low, high) if threads != search.threads] or [search.threads]
    here = Point(search.threads, search.steady_per_second)
    return CurveSearch(
        phase="probe", threads=probes[0], points=(here,), pending=tuple(probes[1:]), doubling=False, steps=search.steps
    )
