"""A segment on a node whose clock is set, on a real server with a clock of its own."""

from collections.abc import Callable, Iterator

import pytest

from bench.faults.preloaded import CLOCK, write_number
from queues.segments.segment import Segment
from tests.queues.samples import blocks_of
from tests.servers import Server, new_server
from tests.waiting import until

MINUTE, SOON = 60.0, 0.1


@pytest.fixture
def clocked(tmp_path, monkeypatch) -> Iterator[tuple[Server, Callable[[int], None]]]:
    """A server, and what sets its clock: so many seconds ahead."""
    library, number = CLOCK.build(tmp_path), tmp_path / "clock"
    if library is None:
        pytest.skip("needs a C compiler (cc) for a clock of its own")
    write_number(number, 600)
    with monkeypatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv(CLOCK.variable, str(number))
        server = new_server(tmp_path / "node")
    yield server, lambda seconds: write_number(number, seconds)
    server.close()


@pytest.fixture
def segment(clocked) -> Segment:
    return Segment(clocked[0].client(), "alert")


def test_what_a_dead_worker_held_when_the_clock_was_set_back_is_claimed_as_soon_as_ever(clocked, segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("dead", 100, MINUTE)
    clocked[1](0)
    assert segment.claim("w2", 100, MINUTE) == []  # it may live: nobody knows until it has been silent
    (again,) = until(lambda: segment.claim("w2", 100, SOON))
    assert again.block_id == claimed.block_id


def test_a_retry_is_due_when_it_was(clocked, segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    assert segment.retry(claimed, "w1", SOON)
    clocked[1](0)
    (again,) = until(lambda: segment.claim("w2", 100, MINUTE))
    assert again.block_id == claimed.block_id


def test_a_worker_that_lives_keeps_what_it_has(clocked, segment):
    segment.publish(blocks_of(4))
    (claimed,) = segment.claim("w1", 100, MINUTE)
    clocked[1](0)
    assert segment.keep_alive("w1", [claimed.entry_id]) == [claimed.entry_id]
    assert segment.claim("w2", 100, MINUTE) == []


def test_what_is_stored_afterwards_has_an_age_that_is_yet_to_come(clocked, segment):
    segment.publish(blocks_of(4))
    segment.acknowledge([segment.claim("w1", 100, MINUTE)[0].entry_id])
    clocked[1](0)
    segment.publish(blocks_of(4))
    assert -601 < segment.measure()["oldest_seconds"] < -590
