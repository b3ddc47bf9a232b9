"""A container's record worked once more: nothing that came is lost, and every run is counted."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controllers.simulation.recorded_container import compute_arrivals, replay
from controllers.worker_rate.shared import WorkerRateParameters

VALUES = WorkerRateParameters(events_per_worker=1_000, upper_limit=2_000, max_wait_seconds=60.0, interval_seconds=2.0)
EVEN = np.full(400, 30.0)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=2, max_size=30), st.integers(0, 9))
def test_all_that_was_removed_or_waits_has_come(ticks, begin):
    lengths = list(itertools.accumulate((came - gone for came, gone in ticks), initial=20_000))
    removed = [0, *(gone for _, gone in ticks)]
    at = [float(begin + 2 * number) for number in range(len(lengths))]
    found = compute_arrivals(at, lengths, removed)
    assert found.size == 2 * len(ticks)
    assert found.sum() == pytest.approx(sum(came for came, _ in ticks))


def test_what_comes_to_an_empty_queue_came_just_before_it_was_seen():
    """A manager at rest is not recorded until something waits."""
    found = compute_arrivals([0.0, 20.0, 21.0], [0, 600, 900], [0, 0, 100])
    assert found.size == 21
    assert found[:18].sum() == 0.0
    assert found[18:].tolist() == [300.0, 300.0, 400.0]


def test_full_workers_run_once_and_those_that_must_not_wait_run_more_often():
    assert replay(VALUES, EVEN).runs == 400 * 30 / 1_000
    # Every 4 s one that takes 1,000 finds 120.
    assert replay(replace(VALUES, max_wait_seconds=4.0), EVEN).runs == pytest.approx(100, rel=0.05)


def test_events_beyond_the_limit_are_counted_by_the_second():
    assert replay(VALUES, EVEN).over_limit_seconds == 0
    assert replay(replace(VALUES, upper_limit=100.0), EVEN, "static").over_limit_seconds > 100
