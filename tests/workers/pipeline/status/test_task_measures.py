"""What is measured of a task over a window, from its batches."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.parallelism.measured_topology import NAMES
from workers.pipeline.status.measures import WorkSample, compute_measures

SAMPLES = st.builds(
    WorkSample,
    elapsed_seconds=st.floats(0.01, 5),
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
        assert close(found["arrival_interval_seconds"] * sum(each.inputs for each in samples), window_seconds)


def test_variances_are_those_of_the_batches_values():
    samples = [WorkSample(1.0, 10, 10, 1, 0.1), WorkSample(1.0, 20, 10, 3, 0.3)]
    found = compute_measures(samples, 10.0)
    assert found["service_variance"] == pytest.approx(0.01**2 + 0.01**2)
    assert found["latency_variance"] == pytest.approx(0.02)
    assert found["outputs_variance"] == pytest.approx(2.0)
    assert found["arrival_interval_variance"] == pytest.approx(2 * 0.025**2)
    assert compute_measures(samples[:1], 10.0)["service_variance"] is None
