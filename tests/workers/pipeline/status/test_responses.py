"""The response time of a replica is that of the events that arrive now, however late its batches are reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.pipeline.status.measures import RESPONSE_SECONDS, OutstandingPiece, estimate_response
from workers.pipeline.tiers.finished_batch import ReplicaBatch

NOW = 100.0


def build_batch(at: float, events: int, seconds: float, response: float) -> ReplicaBatch:
    return ReplicaBatch(at, 0, events, events, 0, seconds, [], response)


def build_pieces_until_now(every: float, events: int, seconds: float, response: float):
    """Return pieces at regular times. Each is processed for some seconds, and finished after its response time."""
    times = [NOW - every * number for number in range(int(60 / every), -1, -1)]
    batches = [build_batch(at + response, events, seconds, response) for at in times if at + response <= NOW]
    return batches, [OutstandingPiece(at, events) for at in times if at + response > NOW]


@given(
    every=st.floats(0.1, 1.0), events=st.integers(100, 10_000), busy=st.floats(0.5, 1.0), response=st.floats(1.0, 20.0)
)
def test_a_constant_response_time_is_estimated(every, events, busy, response):
    batches, outstanding = build_pieces_until_now(every, events, busy * every, response)
    estimated = estimate_response(batches, outstanding, NOW)
    assert estimated == pytest.approx(response, rel=0.35, abs=every)


@given(rate=st.floats(100.0, 1_000.0), hog=st.floats(1.0, 9.0), seconds=st.floats(5.0, 60.0))
def test_the_response_time_of_an_overloaded_replica_is_the_time_that_its_backlog_takes(rate, hog, seconds):
    """A piece arrives every second, and takes 1 + `hog` seconds: finished pieces have waited far less."""
    events, began = round(rate), NOW - seconds
    ends = [began + (1 + hog) * (number + 1) for number in range(int(seconds) + 1)]
    pieces = [(began + number, end) for number, end in enumerate(ends) if began + number <= NOW]
    batches = [build_batch(NOW - seconds, events, 1 + hog, 1 + hog)]
    batches += [build_batch(end, events, 1 + hog, end - at) for at, end in pieces if end <= NOW]
    outstanding = [OutstandingPiece(at, events) for at, end in pieces if end > NOW]
    backlog_seconds = (1 + hog) * len(outstanding)
    estimated = estimate_response(batches, outstanding, NOW)
    assert 0.4 * backlog_seconds <= estimated <= 1.6 * backlog_seconds + 2 * hog


def test_a_replica_that_finishes_nothing_responds_later_every_second():
    batches = [build_batch(NOW - 30.0, 1_000, 0.5, 1.0)]
    stuck = [OutstandingPiece(NOW - 20.0, 10)]
    assert estimate_response(batches, stuck, NOW) == pytest.approx(20.0)
    assert estimate_response([], stuck, NOW) == pytest.approx(20.0)


def test_an_idle_replica_has_the_response_time_of_its_last_batches():
    old = build_batch(NOW - RESPONSE_SECONDS - 2.0, 10, 0.2, 0.8)
    assert estimate_response([old], [], NOW) == pytest.approx(0.8)
    assert estimate_response([], [], NOW) is None
