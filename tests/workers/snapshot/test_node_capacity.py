"""The capacity of nodes, measured while they are busy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.snapshots import snapshot_of
from workers.snapshot.node_capacity import BATCH_SAMPLES, MIN_BATCHES, CapacityWatch, estimate_capacities

DECLARED = 500.0


def observe(watch, samples, events=200.0, real=250.0, noise=0.0, seed=3):
    """Add samples of one node that really handles `real` events/s; return its status."""
    chance = np.random.default_rng(seed)
    for _ in range(samples):
        row = {"server_time_share": events / real, "in_per_second": events * (1 + noise * chance.normal())}
        queue = {"kind": "jobs", "containers": {"n1": {**row, "out_per_second": events}}}
        nodes = {"n1": {"state": "NORMAL", "capacity_events_per_second": DECLARED}}
        seen = watch.add(snapshot_of({"at": 1.0, "queues": {"alert": queue}, "nodes": nodes}))
    return seen.nodes["n1"]


def test_a_capacity_is_measured_after_enough_busy_samples_and_the_difference_is_shown():
    watch = CapacityWatch()
    early = observe(watch, BATCH_SAMPLES * MIN_BATCHES - 1)
    assert (early.measured_capacity_per_second, early.capacity_difference) == (None, None)
    node = observe(watch, 1)
    assert node.measured_capacity_per_second == pytest.approx(250.0)
    assert node.capacity_difference == (
        "The measured capacity is 50 % below the declared capacity. By default, loops use the measured one."
    )


def test_a_node_that_is_not_busy_is_not_measured():
    assert observe(CapacityWatch(), 2 * BATCH_SAMPLES * MIN_BATCHES, events=70.0).measured_capacity_per_second is None


def test_the_measured_capacity_is_a_lower_limit():
    node = observe(CapacityWatch(), BATCH_SAMPLES * MIN_BATCHES, noise=0.2)
    assert 235.0 < node.measured_capacity_per_second < 250.0


@pytest.mark.parametrize(("real", "word"), [(450.0, None), (550.0, None), (700.0, "above")])
def test_only_a_difference_of_more_than_20_percent_is_shown(real, word):
    said = observe(CapacityWatch(), BATCH_SAMPLES * MIN_BATCHES, events=300.0, real=real).capacity_difference
    assert said is None if word is None else word in said


def test_a_node_that_becomes_slower_is_measured_again():
    watch = CapacityWatch()
    observe(watch, BATCH_SAMPLES * MIN_BATCHES, real=450.0)
    assert observe(watch, 20 * BATCH_SAMPLES, real=250.0).measured_capacity_per_second == pytest.approx(250.0, rel=0.05)


def test_a_node_that_returns_after_its_removal_is_measured_anew():
    watch = CapacityWatch()
    observe(watch, BATCH_SAMPLES * MIN_BATCHES)
    for _ in range(BATCH_SAMPLES):
        watch.add(snapshot_of({"at": 1.0, "queues": {}, "nodes": {}}))
    assert observe(watch, 1).measured_capacity_per_second is None


@given(
    speeds=st.lists(st.floats(100, 1_000), min_size=2, max_size=5),
    costs=st.lists(st.floats(0.2, 5), min_size=1, max_size=4),
    data=st.data(),
)
def test_the_speed_of_nodes_and_the_cost_of_events_are_distinguished(speeds, costs, data):
    """Every queue is on every node, in any proportion; the unit is an event of mean cost."""
    events = np.array([[data.draw(st.floats(5, 500)) for _ in speeds] for _ in costs])
    share = events * np.array(costs)[:, None] / np.array(speeds)
    work = {
        (f"q{queue}", f"n{node}"): (share[queue, node], events[queue, node])
        for queue in range(len(costs))
        for node in range(len(speeds))
    }
    found = estimate_capacities(work)
    mean_cost = float((events.sum(axis=1) * np.array(costs)).sum() / events.sum())
    for node, speed in enumerate(speeds):
        assert found[f"n{node}"] == pytest.approx(speed / mean_cost, rel=0.03)
