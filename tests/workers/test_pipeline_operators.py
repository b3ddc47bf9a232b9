"""The inter-event stage on a real control server: the same matches, however it is cut and repeated."""

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workers.test_pipeline_matcher import batch_of, pattern_of
from workers.pipeline.matcher import match_all
from workers.pipeline.operators import BatchCount, Stage, by_group
from workers.pipeline.state import GroupState, StateFromTheFuture, StateStore, Written

PATTERNS = (pattern_of("SEQ(A; B; A)", within_us=12),)
GROUPS = {"x": 3, "y": 40, "z": 3}
EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from("AB"), st.just(1.0), st.sampled_from("xyz")),
    min_size=1,
    max_size=40,
)


def stage(batch: int, watermark_us: int | None, previous_us: int | None) -> Stage:
    return Stage("", "test", "run", batch, watermark_us, previous_us, PATTERNS, ("source",))


def arriving(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as Spark hands them to the stage."""
    sources = rows.column("source")
    groups = pa.array([GROUPS[source] for source in sources.to_pylist()], pa.int32())
    route = pa.array([0] * rows.num_rows, pa.int32())
    names = [*rows.schema.names, "match_key", "route", "group"]
    return pa.RecordBatch.from_arrays([*rows.columns, sources, route, groups], names=names)


def work(store: StateStore, at: Stage, rows: pa.RecordBatch, settled: bool = True) -> BatchCount:
    count = BatchCount()
    found = at.candidates(arriving(rows), count)
    if found.num_rows:
        at.work(store, by_group([found]), count)
    if settled:
        at.settle(store, count)
    return count


def told(store: StateStore) -> set[tuple]:
    events = [json.loads(text) for text in store.outputs(10_000).values()]
    return {
        (event["source"], tuple(each["id"] for each in event["attributes"]["events"])) for event in events
    }


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, st.randoms(use_true_random=False))
def test_any_cut_into_batches_with_any_replays_and_copies_gives_the_matches_of_one_look(
    control, events, chance
):
    control.flushall()
    store = StateStore(control, "test")
    everything = batch_of(events)
    order = sorted(range(len(events)), key=lambda place: events[place][0] + chance.uniform(0, 10))
    number, before_us, through = 0, None, 0
    while through < len(order):
        start, through = through, through + chance.randint(1, 8)
        rows = everything.take(pa.array(order[max(0, start - chance.randint(0, 3)) : through]))
        # No event still to come is older than this: what is taken twice is in the buffer, or late.
        to_come = [events[place][0] for place in order[through:]]
        watermark_us = max(before_us or -1, min(to_come, default=100) - 1)
        at = stage(number, watermark_us, before_us)
        for _ in range(chance.randint(0, 2)):
            work(store, at, rows, settled=chance.random() < 0.5)  # was killed before it was finished
        work(store, at, rows)
        number, before_us = number + 1, watermark_us
    expected = {
        (match.key, tuple(event[1] for event in match.events)) for match in match_all(PATTERNS[0], everything)
    }
    assert told(store) == expected
    assert len(store.outputs(10_000)) == len(expected)


def test_a_group_that_gets_nothing_new_still_lets_go_what_the_watermark_has_passed(control):
    store = StateStore(control, "test")
    work(store, stage(0, 0, None), batch_of([(5, "A", 1.0, "x"), (6, "B", 1.0, "x"), (7, "A", 1.0, "x")]))
    assert not told(store)
    work(store, stage(1, 10, 0), batch_of([]))
    assert told(store) == {("x", ("e0000", "e0001", "e0002"))}
    assert store.due(100, 2) == []


def test_an_event_behind_the_watermark_is_counted_as_late_and_matched_no_more(control):
    store = StateStore(control, "test")
    work(store, stage(0, 10, None), batch_of([(10, "A", 1.0, "x")]))
    count = work(store, stage(1, 20, 10), batch_of([(10, "B", 1.0, "x"), (11, "B", 1.0, "x")]))
    assert (count.late, count.kept) == (1, 2)


def test_a_batch_older_than_the_state_is_refused_and_changes_nothing(control):
    store = StateStore(control, "test")
    store.write(5, [Written(3, b"new", None, ())])
    with pytest.raises(StateFromTheFuture):
        store.write(4, [Written(3, b"old", None, (("id", b"{}"),))])
    with pytest.raises(StateFromTheFuture, match="--reset"):
        store.load([3], 4)
    assert store.outputs(10) == {}
    assert control.hget("weir:pipeline:state:test", "3") == b"new"


def test_a_batch_worked_again_starts_from_the_state_before_it(control):
    store = StateStore(control, "test")
    first, second = GroupState({"p": {"k": 1}}), GroupState({"p": {"k": 2}})
    store.write(1, [Written(3, first.encode(), None, ())])
    store.write(2, [Written(3, second.encode(), None, ())])
    store.write(2, [Written(3, second.encode(), None, ())])
    assert store.load([3], 2)[3].machines == first.machines
    assert store.load([3], 3)[3].machines == second.machines


def test_a_pattern_that_was_changed_starts_anew_and_the_buffer_is_kept():
    changed = pattern_of("SEQ(A; B)", within_us=12)
    old = stage(0, None, None)
    buffer = old.candidates(arriving(batch_of([(5, "A", 1.0, "x")])), BatchCount())
    new = Stage("", "test", "run", 1, None, None, (changed,), ("source",))
    kept = new._buffered(buffer, None)
    assert kept.num_rows == 1
    assert kept.column(changed.signature).to_pylist() == [0]
