"""What a fitted curve promises is what the closed network it stands for gives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln

from controllers.concurrency.throughput_curve import (
    SERVERS,
    Point,
    ScalabilityCurve,
    StationCurve,
    compute_station_throughput,
    estimate_saturation,
    fit_curve_to_points,
    predict_throughput,
)

# Four servers of 20 ms behind 60 ms elsewhere: at most 200 a second.
STATION = StationCurve(capacity_per_second=200.0, servers=4, empty_seconds=0.08, error=0.0)


def test_two_points_are_no_curve():
    assert fit_curve_to_points([Point(1, 10.0), Point(2, 19.0), Point(2, 18.5), Point(0, 0.0)]) is None


def test_a_curve_through_measured_points_meets_them():
    points = [Point(n, predict_throughput(STATION, n).per_second) for n in (1, 4, 8, 16, 32, 64)]
    curve = fit_curve_to_points(points)
    assert curve is not None and curve.error < 0.02
    for point in points:
        assert predict_throughput(curve, point.threads).per_second == pytest.approx(point.per_second, rel=0.05)


def test_one_thread_never_waits_and_many_saturate_the_station():
    alone, many = predict_throughput(STATION, 1), predict_throughput(STATION, 200)
    assert alone.per_second == pytest.approx(1 / 0.08) and alone.wait_seconds == pytest.approx(0, abs=1e-9)
    assert many.per_second == pytest.approx(200, rel=0.01) and many.utilisation == pytest.approx(1, abs=0.01)
    assert many.wait_seconds == pytest.approx(200 / 200 - 0.08, rel=0.02)


@given(
    threads=st.integers(1_001, 30_000),
    servers=st.sampled_from(SERVERS),
    capacity=st.floats(0.1, 1e5),
    share=st.floats(1.0001, 1e4),
)
def test_of_very_many_threads_those_that_count_give_the_sum_over_all(threads, servers, capacity, share):
    service = servers / capacity
    empty = service * share
    there = np.arange(threads + 1)
    busy = np.minimum(there, servers)
    # Births and deaths, as products of factorials: independent of the recurrence that is summed there.
    deaths = gammaln(np.minimum(there, servers) + 1) + np.maximum(0, there - servers) * math.log(servers)
    births = gammaln(threads + 1) - gammaln(threads - there + 1)
    logs = births - deaths - there * math.log(share - 1)
    chances = np.exp(logs - logs.max())
    expected = float(chances @ busy / chances.sum() / service)
    assert compute_station_throughput(threads, servers, capacity, empty) == pytest.approx(expected, rel=1e-7)


def test_what_saturates_is_named_with_its_servers_and_times():
    found = estimate_saturation(STATION)
    assert (found.capacity_per_second, found.servers) == (200.0, 4)
    assert found.service_seconds == pytest.approx(0.02) and found.elsewhere_seconds == pytest.approx(0.06)


def test_of_the_scalability_law_the_peak_is_known_and_beyond_it_threads_do_harm():
    curve = ScalabilityCurve(rate_per_second=10.0, contention=0.02, coherence=0.001, error=0.0)
    found = estimate_saturation(curve)
    assert found.peak_threads == pytest.approx((0.98 / 0.001) ** 0.5)
    at_peak = predict_throughput(curve, round(found.peak_threads))
    assert at_peak.utilisation == pytest.approx(1, abs=0.001) and at_peak.wait_seconds is None
    assert predict_throughput(curve, 200).per_second < at_peak.per_second


@pytest.mark.parametrize(("contention", "most"), [(0.05, 200.0), (0.0, float("inf"))])
def test_without_harm_the_limit_is_what_contention_leaves(contention, most):
    curve = ScalabilityCurve(rate_per_second=10.0, contention=contention, coherence=0.0, error=0.0)
    assert estimate_saturation(curve).capacity_per_second == pytest.approx(most)
    assert estimate_saturation(curve).peak_threads is None
