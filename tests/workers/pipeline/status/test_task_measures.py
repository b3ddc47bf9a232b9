"""What is measured of a task over a window, from its batches."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.parallelism.measured_topology import NAMES
from workers.pipeline.status.measures import (
    MAX_CV2,
    MIN_BATCHES,
    WorkSample,
    compute_measures,
    estimate_arrival_cv2,
    estimate_service_variance,
)

SAMPLES = st.builds(
    WorkSample,
    elapsed_seconds=st.none() | st.floats(0.01, 5),
    inputs=st.just(0.0) | st.floats(1e-3, 1e6),
    executions=st.integers(0, 100_000),
    outputs=st.integers(0, 100_000),
    seconds=st.floats(0, 5),
)


def close(one, other):
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-9)


@given(st.lists(SAMPLES, max_size=20), st.floats(1, 60))
def test_counts_are_sums_times_are_of_an_event_and_nothing_is_out_of_range(samples, window_seconds):
    found = compute_measures(samples, window_seconds)
    assert set(found) == set(NAMES)
    assert all(value is None or (math.isfinite(value) and value >= 0) for value in found.values())
    events = sum(each.executions for each in samples)
    assert close(found["executions"], events)
    assert close(found["outputs"], sum(each.outputs for each in samples))
    assert found["utilisation"] <= 1
    if events:
        assert close(found["service_seconds"] * events, sum(each.seconds for each in samples))
        worked = [each.seconds for each in samples if each.executions]
        assert min(worked) * (1 - 1e-4) <= found["latency_seconds"] <= max(worked) * (1 + 1e-4)
    else:
        assert found["latency_seconds"] is None and found["service_seconds"] is None
    if found["arrival_interval_seconds"] is not None:
        assert close(found["arrival_interval_seconds"] * found["inputs"], window_seconds)
    known = [each for each in samples if each.elapsed_seconds is not None]
    if known and len(known) == len(samples):
        rate = sum(each.inputs for each in known) / sum(each.elapsed_seconds for each in known)
        assert close(found["inputs"], rate * window_seconds)


def test_variances_of_counts_and_latency_are_those_of_the_batches_values():
    samples = [WorkSample(1.0, 10, 10, 1, 0.1), WorkSample(1.0, 20, 10, 3, 0.3)]
    found = compute_measures(samples, 10.0)
    assert found["latency_variance"] == pytest.approx(0.02)
    assert found["outputs_variance"] == pytest.approx(2.0)


def batches_of(sizes, service_cv2, chance, overhead_seconds=0.0, service_seconds=50e-6):
    """Batches of events whose service has a gamma distribution; the sum of n such values has one, too."""
    shape = 1 / service_cv2
    works = overhead_seconds + chance.gamma(shape * np.asarray(sizes), service_seconds / shape)
    return [WorkSample(0.1, size, size, 0, seconds) for size, seconds in zip(sizes, works.tolist(), strict=True)]


@pytest.mark.parametrize("service_cv2", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("size", [1, 200, 2_000])
@given(st.integers(0, 2**32), st.floats(0, 0.1), st.booleans())
@settings(max_examples=10)
def test_the_variability_of_an_event_is_recovered_from_batches_of_any_size(size, service_cv2, seed, overhead, equal):
    """The values of single events are unknown; a fixed time of each batch must not count."""
    chance = np.random.default_rng(seed)
    sizes = [size] * 20_000 if equal else chance.integers(max(1, size // 2), 2 * size + 1, 20_000).tolist()
    variance = estimate_service_variance(batches_of(sizes, service_cv2, chance, overhead))
    assert variance / 50e-6**2 == pytest.approx(service_cv2, rel=0.2)


def test_the_variability_of_a_window_is_within_its_statistical_error():
    """60 batches, as many as a minute has, give an error of 18 % (one standard deviation)."""
    chance = np.random.default_rng(4)
    found = [
        estimate_service_variance(batches_of(chance.integers(100, 400, 60), 1.0, chance)) / 50e-6**2 for _ in range(200)
    ]
    assert np.mean(found) == pytest.approx(1.0, rel=0.05) and np.std(found) < 0.22


def test_few_batches_and_single_pauses_have_limits():
    chance = np.random.default_rng(5)
    few = batches_of([200] * (MIN_BATCHES - 1), 1.0, chance)
    assert estimate_service_variance(few) is None and estimate_arrival_cv2(few) is None
    paused = [*few, WorkSample(0.1, 200, 200, 0, 7.4)]  # the first batch of a process waits for Spark
    mean = sum(each.seconds for each in paused) / sum(each.executions for each in paused)
    assert estimate_service_variance(paused) == pytest.approx(MAX_CV2 * mean**2)
    steady = [WorkSample(0.1, 7, 7, 0, round(7 * 3.3e-6 + chance.uniform(-5e-7, 5e-7), 6)) for _ in range(500)]
    assert estimate_service_variance(steady) < 0.01 * 3.3e-6**2 * 7  # only the clock varies


@pytest.mark.parametrize(("arrivals", "cv2"), [("even", 0.0), ("random", 1.0), ("tens", 10.0)])
def test_the_variability_of_arrivals_is_that_of_single_events_and_not_of_a_batch(arrivals, cv2):
    chance = np.random.default_rng(6)
    elapsed = chance.uniform(0.5, 2.0, 5_000)
    draw = {"even": lambda: 400 * elapsed, "random": lambda: chance.poisson(400 * elapsed)}
    counts = 10 * chance.poisson(40 * elapsed) if arrivals == "tens" else draw[arrivals]()
    samples = [WorkSample(d, float(i), 1, 0, 0.1) for d, i in zip(elapsed, counts, strict=True)]
    assert estimate_arrival_cv2(samples) == pytest.approx(cv2, rel=0.1, abs=1e-6)
