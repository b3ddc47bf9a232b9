"""The bench of laws on a real plant: its arithmetic, and that a failure of one disturbance stops no other."""

import time
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.laws import laws
from bench.laws.on_plant import metrics, on_jobs, on_pipeline
from bench.laws.on_plant.disturbed_plant import Stream
from bench.laws.on_plant.metrics import Comparison, PublishedBlock
from common.errors import WeirError
from workers.pipeline.declaration.declaration import parse_application_text

POSITIVE = st.floats(0.01, 1e6)


@given(POSITIVE, POSITIVE, st.booleans())
def test_a_ratio_above_one_says_that_the_law_is_better(law, baseline, higher):
    ratio = Comparison("x", law, baseline, is_higher_better=higher).ratio
    assert (ratio > 1) == ((law > baseline) if higher else (law < baseline))


def test_a_ratio_needs_both_values_and_knows_zero():
    assert Comparison("x", None, 1.0).ratio is None
    assert Comparison("x", 0.0, 0.0).ratio == 1.0
    assert Comparison("x", 0.0, 5.0).ratio == float("inf")


def test_a_document_leaves_out_what_was_not_measured_and_is_json():
    rows = [Comparison("a", 2.0, 4.0), Comparison("b", None, 1.0), Comparison("c", 0.0, 3.0)]
    document = metrics.summarize(rows)
    assert document == {"figures": {"a": 2.0, "c": 0.0}, "peers": {"a": 4.0, "b": 1.0, "c": 3.0}, "ratio": {"a": 2.0}}


def test_queue_lengths_are_summed_every_five_seconds():
    assert metrics.sum_samples(list(range(1, 13))) == 5 + 10


def test_means_leave_out_unknown_values():
    assert metrics.compute_mean([1.0, None, 3.0]) == 2.0
    assert metrics.compute_mean([None]) is None
    assert metrics.compute_rms([3.0, None, -1.0], 1.0) == 2.0


def test_recall_is_a_share_and_unknown_without_possible_matches():
    assert metrics.compute_recall(5, 10) == 0.5
    assert metrics.compute_recall(11, 10) == 1.0
    assert metrics.compute_recall(0, 0) is None


def test_events_are_diverted_when_no_more_are_lost_or_when_the_slowest_was_stored():
    stored = [PublishedBlock(1.0, 1.1, True), PublishedBlock(5.0, 5.5, True), PublishedBlock(6.0, 6.1, True)]
    lost = PublishedBlock(7.0, 7.5, False)
    assert metrics.compute_divert_seconds(stored, 5.2) == pytest.approx(0.5)
    assert metrics.compute_divert_seconds([*stored, lost], 5.2) == pytest.approx(2.3)
    assert metrics.compute_divert_seconds(stored, 8.0) is None


def test_a_counter_that_was_reset_counts_from_zero():
    assert metrics.count_growth({"n1": 5, "n2": 7}, {"n1": 9, "n2": 3, "n3": 2}) == 4 + 3 + 2


def test_figures_are_read_from_a_snapshot():
    rows = {"n1": {"waiting_events": 3, "removed_events": 5, "workers_started": 2, "points": 600}}
    rows["n2"] = {"waiting_events": None, "removed_events": 1, "workers_started": None, "points": 400}
    snapshot = {"queues": {"q": {"containers": rows}}}
    assert (on_jobs.get_waiting_events(snapshot, "q"), on_jobs.count_removed(snapshot, "q")) == (3, 6)
    assert (on_jobs.count_workers(snapshot, "q"), on_jobs.count_points(snapshot, "q")) == ({"n1": 2, "n2": 0}, 600)
    replicas = {"iap1": {"response_seconds": 2.0}, "iap2": {"response_seconds": None}}
    row = {"replicas": replicas, "result_queue": {"free_bytes": 5_000_000}, "operators": {}}
    assert (on_pipeline.get_slowest_response(row), on_pipeline.get_free_megabytes(row)) == (2.0, 5.0)
    assert on_pipeline.get_tasks(row) is None and on_pipeline.get_slowest_response({}) is None


class Account:
    """Stands for a plant where one signs in."""

    def sign_in(self):
        """Nothing to do."""


def test_a_failed_disturbance_and_one_without_time_have_no_figures():
    def fail(plant, seconds):
        raise AssertionError("nothing moved")

    def measure(plant, seconds):
        return [Comparison("a", seconds, 2 * seconds)]

    document = laws.apply(Account(), {"fails": fail, "works": measure}, 40.0)
    assert document["failed"] == {"fails": "AssertionError: nothing moved"} and document["ratio"] == {"a": 2.0}
    late = count(0, int(10 * laws.MAX_SECONDS))
    assert laws.apply(Account(), {"late": measure}, 40.0, lambda: next(late))["failed"] == {"late": "no time was left"}


def test_the_application_is_valid():
    application = parse_application_text(on_pipeline.DECLARATION, Path())
    (pattern,) = application.patterns
    assert (application.queues, pattern.name, len(application.replicas)) == (
        (on_pipeline.QUEUE,),
        on_pipeline.PATTERN,
        2,
    )


class Store:
    """Stands for a client: keeps what is published."""

    def __init__(self):
        self.rows, self.calls = [], 0

    def publish(self, queue, events):
        self.calls += 1
        if self.calls == 1:
            raise WeirError("full")
        self.rows += events.to_pylist()


def test_a_stream_gives_each_key_every_type_in_turn_and_counts_what_was_stored():
    store = Store()
    stream = Stream(store, "q", lambda at: 100.0, ("A", "A", "B"))
    deadline = time.monotonic() + 20
    while len(store.rows) < 9 and time.monotonic() < deadline:
        time.sleep(0.01)
    stream.close()
    assert stream.published == len(store.rows) >= 9
    assert [row["type"] for row in store.rows[:3]] == ["A", "A", "B"]
    assert [row["key"] for row in store.rows[:4]] == ["k0", "k0", "k0", "k1"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_a_lost_node_costs_no_events_and_those_of_a_publisher_that_asks_every_five_seconds():
    document = laws.run(laws.MIN_SECONDS, ("lost_node",))
    assert document["failed"] == {}
    assert document["figures"]["lost_node_events_lost"] == 0 < document["peers"]["lost_node_events_lost"]
