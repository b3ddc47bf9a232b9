"""The combiner's arithmetic: how far event time is settled, by whom it is held, and what is read when."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.result_queue import Blob, Result
from workers.pipeline.tiers.combining import (
    Barrier,
    CombinedOffset,
    OutstandingDispatch,
    build_barrier,
    combine_arrived_results,
)


def result(place: int, first_us: int, last_us: int, watermark_us: int | None = None, rows: int = 10) -> Result:
    return Result("iap1", place, watermark_us, (Blob("b", "k", -1, first_us, last_us, rows, 100),), f"{place}-0")


def test_the_slowest_replica_holds_event_time_and_is_named():
    waiting = {"iap1": OutstandingDispatch(7, 70), "iap2": OutstandingDispatch(4, 40)}
    assert build_barrier(90, waiting) == Barrier(40, "iap2")
    assert build_barrier(90, {}) == Barrier(90)


def test_what_was_dispatched_while_the_replicas_were_asked_is_not_passed():
    """The first of two was asked, then it got a dispatch, and then the other one got the next."""
    assert build_barrier(50, {"iap2": OutstandingDispatch(7, 60)}) == Barrier(50, "iap2")
    assert build_barrier(None, {"iap2": OutstandingDispatch(7, 60)}) == Barrier(None, "iap2")


def test_a_result_is_held_until_the_watermark_has_passed_its_last_row():
    first = combine_arrived_results(CombinedOffset(), [result(1, 5, 30)], Barrier(20), Controls(), 1_000)
    assert [each.tick for each in first.compute_remaining()] == [1]
    second = combine_arrived_results(first, [], Barrier(30), Controls(), 1_000)
    assert [each.tick for each in second.left_over] == [1]
    assert [each.tick for each in second.list_finished()] == [1]
    assert combine_arrived_results(second, [], Barrier(30), Controls(), 1_000) is second


def test_a_result_that_is_left_for_the_next_batch_holds_the_watermark():
    results = [result(1, 0, 9, None), result(2, 10, 19, 9), result(3, 20, 29, 19)]
    first = combine_arrived_results(CombinedOffset(), results, Barrier(29), Controls(), 15)
    assert (first.taken, first.watermark_us) == ("1-0", 9)


def test_a_batch_takes_a_small_share_of_the_result_queue_and_one_result_at_least():
    results = [result(place, 0, place, None) for place in range(1, 6)]  # of 100 bytes each
    for result_bytes, taken in ((32 * 250, 2), (32 * 10, 1), (2**20, 5)):
        end = combine_arrived_results(CombinedOffset(), results, Barrier(9), Controls(result_bytes=result_bytes), 1_000)
        assert len(end.fresh) == taken


def test_a_batch_with_too_many_due_rows_sheds_more_and_does_so_again_when_it_is_repeated():
    few, many = {"pair": {"A": 0.2}}, {"pair": {"A": 0.6}}
    controls = Controls(shed=few, shed_reduced=many, shed_rows=100.0)
    for rows, dropped in ((100, 0.2), (150, 0.2 + 0.4 * 2 / 3), (200, 0.6), (900, 0.6)):
        end = combine_arrived_results(CombinedOffset(), [result(1, 0, 9, rows=rows)], Barrier(9), controls, 1_000)
        assert end.controls.shed["pair"]["A"] == pytest.approx(dropped, abs=1e-6)
        assert CombinedOffset.from_document(json.loads(json.dumps(end.to_document()))) == end


def test_a_table_that_has_expired_limits_no_batch():
    controls = Controls(shed={}, shed_reduced={"pair": {"A": 0.6}}, shed_rows=1.0, shed_until_seconds=50.0)
    assert controls.freeze(49.0).limit_batch(10).shed and not controls.freeze(50.0).limit_batch(10).shed


def test_only_the_due_part_of_a_held_result_counts():
    first = combine_arrived_results(CombinedOffset(), [result(1, 0, 99, rows=100)], Barrier(39), Controls(), 1_000)
    second = combine_arrived_results(first, [], Barrier(99), Controls(), 1_000)
    assert (first.due_rows, second.due_rows) == (40, 60)


RESULTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 30)), max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(RESULTS, st.integers(0, 80)), max_size=6), st.integers(1, 60))
def test_the_watermark_never_goes_back_and_no_result_is_lost_or_taken_twice(steps, most_rows):
    offset, number, waiting, taken = CombinedOffset(), 0, [], []
    for made, settled in steps:
        for first, length, rows in made:
            number += 1
            waiting.append(result(number, first, first + length, offset.watermark_us, rows))
        end = combine_arrived_results(offset, waiting, Barrier(settled), Controls(), most_rows)
        if end is offset:
            continue
        assert CombinedOffset.from_document(json.loads(json.dumps(end.to_document()))) == end
        assert offset.watermark_us is None or end.watermark_us >= offset.watermark_us
        assert set(end.left_over) == set(offset.compute_remaining())
        assert set(end.read) == set(end.compute_remaining()) | set(end.list_finished())
        taken += end.fresh
        waiting = [each for each in waiting if each not in end.fresh]
        offset = end
    assert len(set(taken)) == len(taken)
    assert [each.tick for each in taken] == list(range(1, len(taken) + 1))
