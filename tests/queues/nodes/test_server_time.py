"""A node's CPU time divided among the queues it serves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.nodes.measures import CommandTime, compute_time_shares

COUNTS = st.fixed_dictionaries(
    {name: st.integers(0, 10**6) for name in ("inserted_blocks", "inserted_bytes", "removed_blocks", "removed_bytes")}
)
BUSY = CommandTime(9_000, 1_000)


def counters(inserted=0, removed=0, size=100):
    return {
        "inserted_blocks": inserted,
        "inserted_bytes": inserted * size,
        "removed_blocks": removed,
        "removed_bytes": removed * size,
    }


@given(st.dictionaries(st.sampled_from("abcd"), COUNTS, min_size=1), st.floats(0, 2))
def test_the_shares_add_up_to_what_the_server_used(now, cpu):
    found = compute_time_shares({}, now, CommandTime(), BUSY, cpu)
    assert all(share >= 0 for share in found.values())
    # Nothing is attributed when nothing moved in the half that took the time.
    assert sum(found.values()) == pytest.approx(cpu) or sum(found.values()) < cpu


def test_the_queue_that_writes_gets_the_writing_time_and_the_one_that_is_read_the_reading_time():
    found = compute_time_shares(
        {"a": counters(), "b": counters(removed=5)},
        {"a": counters(inserted=10), "b": counters(removed=15)},
        CommandTime(),
        BUSY,
        0.5,
    )
    assert found == {"a": pytest.approx(0.45), "b": pytest.approx(0.05)}


def test_large_blocks_cost_more_than_small_ones():
    now = {"large": counters(inserted=10, size=900), "small": counters(inserted=10, size=100)}
    found = compute_time_shares({}, now, CommandTime(), CommandTime(1_000, 0), 1.0)
    assert found == {"large": pytest.approx(0.7), "small": pytest.approx(0.3)}


def test_where_nothing_moved_nothing_is_attributed():
    assert compute_time_shares({}, {"a": counters()}, CommandTime(), BUSY, 0.3) == {"a": 0.0}


def test_counters_that_were_reset_count_from_zero():
    before, now = {"a": counters(inserted=100)}, {"a": counters(inserted=10), "b": counters(inserted=10)}
    found = compute_time_shares(before, now, CommandTime(5, 5), CommandTime(15, 5), 0.4)
    assert found == {"a": pytest.approx(0.2), "b": pytest.approx(0.2)}


def test_command_times_are_read_from_commandstats():
    stats = {
        "cmdstat_xadd": {"usec": 70},
        "cmdstat_hincrby": {"usec": 20},
        "cmdstat_evalsha": {"usec": 5},
        "cmdstat_get": {"usec": 999},
    }
    assert CommandTime.parse(stats) == CommandTime(90, 5)
