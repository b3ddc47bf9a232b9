"""The inter-event stage on a real control server: the same matches, however cut, repeated and killed."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.workers.pipeline.matching.patterns import match_all, pattern_of, rows_of
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.dispatch.result_queue import Result, ResultQueue
from workers.pipeline.events.layout import decode, encode
from workers.pipeline.matching.complex_event import complete_match_rows
from workers.pipeline.matching.retained import order_rows
from workers.pipeline.patterns.graph import KEY_GROUPS, Graph, Operator, compute_key_group, distribute_groups
from workers.pipeline.patterns.shedding import ShedCounts
from workers.pipeline.tiers.combining import Barrier, CombinedOffset, combine_arrived_results
from workers.pipeline.tiers.finished_batch import OperatorCount
from workers.pipeline.tiers.operators import Unit, Work
from workers.pipeline.tiers.outbox import Outbox
from workers.pipeline.tiers.result_writer import ResultWriter
from workers.pipeline.tiers.state import NewerState, StateStore, WrittenState

PATTERN = replace(pattern_of("SEQ(A; B; A)", within_us=12), name="aba", emits="aba")
GRAPH = Graph((Operator("low", "source", (PATTERN,)),))
EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from("AB"), st.just(1.0), st.sampled_from("xyz")), min_size=1, max_size=40
)
APPLICATION = "test"


def batch_of(events: list[tuple]) -> pa.RecordBatch:
    """Rows as the rules let them through."""
    rows = rows_of(events).drop_columns(["match_key", "group"])
    return rows.append_column("key", pa.array(["k"] * rows.num_rows, pa.string()))


class Tier:
    """Replicas that publish rows, and a combiner with its operators: all but Spark."""

    def __init__(self, control, graph: Graph, most_rows: int = 1_000) -> None:
        self.control, self.graph, self.most_rows = control, graph, most_rows
        self.results, self.store = ResultQueue(control, APPLICATION), StateStore(control, APPLICATION)
        self.offset, self.batch, self.tick = CombinedOffset(), -1, 0
        self.counts: list[OperatorCount] = []
        self.controls = Controls()
        self.shed: ShedCounts = {}  # what replicas did not let travel

    def publish(self, rows: pa.RecordBatch, watermark_us: int | None, cut: bool = True) -> None:
        """A replica's result; watermark_us: how far event time was settled before it."""
        self.tick += 1
        attempt = self.results.begin("iap1", self.tick - 1, self.tick)
        batch = (self.tick, attempt, self.graph, cut, self.controls.shedder)
        writer = ResultWriter("", APPLICATION, "iap1", *batch)
        parts = {route: [wanted] for route, wanted in writer.select_wanted(rows, self.shed)}
        blobs, data = writer.build_blobs(parts, 0)
        self.results.put("iap1", self.tick, attempt, data)
        self.results.publish(Result("iap1", self.tick, watermark_us, tuple(blobs)), attempt, rows.num_rows)

    def plan(self, watermark_us: int | None) -> bool:
        arrived = self.results.read_after(self.offset.taken)
        end = combine_arrived_results(self.offset, arrived, Barrier(watermark_us), self.controls, self.most_rows)
        if end is self.offset:
            return False
        for each in self.offset.list_finished():
            self.results.release(each)
        self.offset, self.batch = end, self.batch + 1
        return True

    def work(self, tasks: int = 2, most: int | None = None) -> None:
        """The planned batch; only `most` of its units, as if it was killed then."""
        done = 0
        sinks = {event_type: ("alert",) for p in self.graph.patterns for event_type in [p.emits]}
        for level, operators in enumerate(self.graph.levels):
            offset = CombinedOffset.from_document(json.loads(json.dumps(self.offset.to_document())))
            work = Work("", APPLICATION, "run", self.batch, offset, self.graph, sinks, level)
            for operator in operators:
                for groups in distribute_groups(tasks, range(KEY_GROUPS)):
                    if done == most:
                        return
                    self.counts.append(work.process_unit(self.control, Unit(operator.name, groups)))
                    done += 1
        self.store.forget_between(self.batch)

    def emitted(self, event_type: str = "aba") -> list[tuple]:
        """(key, ids) of every complex event in the outbox."""
        found = []
        for data in self.store.load_outputs(self.store.list_output_names()).values():
            for event in (row for rows in decode(data) for row in complete_match_rows(rows).to_pylist()):
                if event["type"] == event_type:
                    ids = tuple(each["id"] for each in json.loads(event["attributes"])["events"])
                    found.append((event["source"], ids))
        return found


def expected(pattern, events: list[tuple]) -> set[tuple]:
    found = match_all(pattern, rows_of(events)).list_emitted()
    return {(key, tuple(event[1] for event in taken)) for key, taken in found}


@pytest.mark.thorough
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS, st.randoms(use_true_random=False))
def test_any_cut_into_results_and_batches_with_kills_and_copies_gives_the_matches_of_one_pass(control, events, chance):
    control.flushall()
    tier = Tier(control, GRAPH, most_rows=chance.choice([1, 5, 1000]))
    events = sorted(events, key=lambda event: event[0])  # as they are numbered
    everything = batch_of(events)
    order = sorted(range(len(events)), key=lambda place: events[place][0] + chance.uniform(0, 10))
    through, before_us = 0, None
    while through < len(order) or tier.plan(100):
        if through < len(order):
            start, through = through, through + chance.randint(1, 8)
            # No event still to come is older than the watermark: a copy is due with the first, or late.
            rows = everything.take(pa.array(order[max(0, start - chance.randint(0, 3)) : through]))
            tier.publish(rows, before_us, cut=chance.random() < 0.5)
            to_come = [events[place][0] for place in order[through:]]
            before_us = max(before_us or -1, min(to_come, default=100) - 1)
            if chance.random() < 0.3 or not tier.plan(before_us):
                continue
        tasks = chance.randint(1, 4)
        for _ in range(chance.randint(0, 2)):
            tier.work(tasks, most=chance.randint(0, tasks))  # was killed before it was finished
        tier.work(tasks)
    found = tier.emitted()
    assert len(set(found)) == len(found), "a match was told twice"
    assert set(found) == expected(PATTERN, events)
    tier.plan(200)
    tier.plan(201)
    assert tier.results.measure_room().used_bytes == 0, "what was worked is gone from the queue"


def test_event_time_ends_no_attempt_of_another_task_before_the_task_has_its_events(control):
    tier = Tier(control, GRAPH)
    (_, ahead), (border, behind) = sorted((compute_key_group(key), key) for key in "xy")
    split = (tuple(range(border)), tuple(range(border, KEY_GROUPS)))
    tier.publish(batch_of([(0, "A", 1.0, behind), (1, "B", 1.0, behind)]), None)
    tier.plan(1)
    tier.work(tasks=1)
    tier.publish(batch_of([(12, "A", 1.0, behind), (30, "A", 1.0, ahead)]), 1)
    tier.plan(30)
    work = Work("", APPLICATION, "run", tier.batch, tier.offset, GRAPH, {"aba": ("alert",)}, 0)
    for own in split:
        work.process_unit(control, Unit("low", own))
    assert len(tier.emitted()) == 1


def test_an_event_behind_the_watermark_is_counted_and_kept_as_late_and_matched_no_more(control):
    tier = Tier(control, GRAPH)
    tier.publish(batch_of([(10, "A", 1.0, "x")]), None)
    tier.plan(10)
    tier.work()
    tier.publish(batch_of([(10, "B", 1.0, "x"), (11, "B", 1.0, "x")]), 10)
    tier.plan(20)
    tier.work()
    assert sum(count.late for count in tier.counts) == 1
    ((_, entry),) = control.xrange(f"weir:pipeline:late:{APPLICATION}")
    (late,) = decode(entry[b"d"])
    assert late.column("time").to_pylist() == [10]


def test_complex_events_of_one_level_are_matched_by_the_next_in_the_same_batch(control):
    twice = replace(pattern_of("SEQ(aba; aba)", within_us=50), name="twice", emits="twice")
    graph = Graph((*GRAPH.operators, Operator("high", "source", (twice,))))
    tier = Tier(control, graph)
    rows = [(place, "ABA"[place % 3], 1.0, "x") for place in range(12)]
    for start, watermark_us in ((0, 5), (6, 20)):
        tier.publish(batch_of(rows)[start : start + 6], None)
        tier.plan(watermark_us)
        tier.work(most=1)  # killed between the levels
        tier.work()
    assert len(tier.emitted("aba")) == 4
    assert len(tier.emitted("twice")) == 2
    assert not list(control.scan_iter("weir:pipeline:between:*"))


def test_measures_of_complex_events_are_compared_by_the_next_level_in_any_batches(control):
    text = """
name: doors
queues: [telemetry]
sink: alert
operators:
  - name: low
    key: source
    patterns:
      - name: rise
        pattern: SEQ(A; B)
        within_seconds: 60
        define: {B: 'type == "B" and value > A.value'}
        measures: {by: B.value - A.value}
  - name: high
    key: source
    patterns:
      - {name: steeper, pattern: SEQ(rise; R), within_seconds: 60, define: {R: 'type == "rise" and by > rise.by'}}
"""
    graph = parse_application_text(text, Path()).graph
    values = [("A", 1.0), ("B", 0.5), ("B", 3.0), ("A", 2.0), ("B", 3.5), ("A", 1.0), ("B", 9.0)]
    rows = [(place, kind, value, "x") for place, (kind, value) in enumerate(values)]
    for size in (1, 3, 7):
        control.flushall()
        tier = Tier(control, graph)
        for start in range(0, len(rows), size):
            tier.publish(batch_of(rows)[start : start + size], None if start == 0 else start - 1)
            tier.plan(min(start + size, len(rows)) - 1)
            tier.work()
        # The three rises are by 2.0, 1.5, and 8.0.
        ((_, ids),) = tier.emitted("steeper")
        assert len(tier.emitted("rise")) == 3 and len(ids) == 2


def test_results_of_an_earlier_version_have_their_keys_and_are_matched_with_new_ones(control):
    tier = Tier(control, GRAPH)
    tier.publish(batch_of([(1, "A", 1.0, "x")]), None)
    (result,) = tier.results.read_after("0-0")
    (blob,) = control.hkeys(f"weir:pipeline:result:{APPLICATION}:iap1:{result.tick}")
    (rows,) = tier.results.read(result, [blob.decode()])
    earlier = rows.append_column("match_key", rows.column("source"))
    control.hset(f"weir:pipeline:result:{APPLICATION}:iap1:{result.tick}", blob, encode(earlier))
    tier.publish(batch_of([(2, "B", 1.0, "x"), (3, "A", 1.0, "x")]), None)
    tier.plan(5)
    tier.work()
    assert len(tier.emitted()) == 1


def test_a_batch_older_than_the_state_is_refused_and_changes_nothing(control):
    store = StateStore(control, APPLICATION)
    store.write(5, WrittenState({"op/3": (b"new", None)}))
    with pytest.raises(NewerState):
        store.write(4, WrittenState({"op/3": (b"old", None), "op/4": (b"x", None)}))
    with pytest.raises(NewerState, match="--reset"):
        store.load(["op/3"], 4)
    assert store.load(["op/3"], 5) is None
    assert store.load(["op/3", "op/4"], 6) == {"op/3": b"new"}


def test_a_batch_that_was_written_is_not_written_again_by_an_attempt_that_was_thought_dead(control):
    store = StateStore(control, APPLICATION)
    late = pa.record_batch({"id": ["e1"]})
    made = WrittenState({"op/3": (b"new", None)}, outbox={"alert|5/op/3/0/1": late}, late=late)
    store.write(5, made)
    store.record_published(["alert|5/op/3/0/1"])
    store.write(5, made)
    assert store.list_output_names() == []
    assert len(store.list_late_events(10)) == 1


def test_an_operator_that_was_taken_out_and_comes_back_knows_nothing_of_before(control):
    """What came while it was out is unknown to it: an alarm that something did not come would be false."""
    gone = replace(pattern_of("SEQ(A; NOT B)", within_us=50), name="gone", emits="gone")
    first = Graph((*GRAPH.operators, Operator("op", "source", (gone,))))
    tier = Tier(control, first)
    tier.publish(batch_of([(1, "A", 1.0, "x")]), None)
    tier.plan(5)
    tier.work()
    tier.graph = GRAPH
    tier.store.forget_others([each.name for each in GRAPH.operators])
    tier.publish(batch_of([(10, "B", 1.0, "x"), (60, "A", 1.0, "y")]), 5)
    tier.plan(100)
    tier.work()
    tier.graph = first
    tier.publish(batch_of([(200, "A", 1.0, "z")]), 100)
    tier.plan(201)
    tier.work()
    assert tier.emitted("gone") == []


@pytest.mark.parametrize(
    ("before", "after", "found"), [("number", "integer", 3), ("integer", "number", 3), ("text", "number", 1)]
)
def test_an_attribute_that_has_another_type_since_stops_nothing(control, before, after, found):
    """Rows of both versions are worked together; what is no number is unknown."""
    tier = Tier(control, speeds(before))
    kinds = {"number": pa.float64(), "integer": pa.int64(), "text": pa.string()}
    old = pa.array(["fast", "slow"] if before == "text" else [2, 2], kinds[before])
    tier.publish(batch_of([(1, "A", 1.0, "x"), (30, "A", 1.0, "x")]).append_column("speed", old), None)
    tier.plan(5)
    if before != "text":
        tier.work()
    tier.graph = speeds(after)
    new = pa.array([2], kinds[after])
    tier.publish(batch_of([(31, "A", 1.0, "x")]).append_column("speed", new), 5)
    tier.plan(40)
    tier.work()
    assert len(tier.emitted("p")) == found


def speeds(kind: str) -> Graph:
    condition = 'speed = "fast"' if kind == "text" else "speed > 1"
    text = (
        f"name: doors\nqueues: [telemetry]\nsink: alert\nattributes: {{speed: {kind}}}\npatterns:\n"
        f"  - {{name: p, pattern: SEQ(A), define: {{A: '{condition}'}}, key: source, within_seconds: 60}}\n"
    )
    return parse_application_text(text, Path()).graph


def test_a_value_that_is_no_number_is_unknown_and_holds_nothing_up(control):
    """A rule may compute one: exp() of a large value, a division by zero."""
    text = (
        "name: doors\nqueues: [telemetry]\nsink: alert\n"
        "patterns:\n  - {name: p, pattern: SEQ(A), key: source, within_seconds: 60}\n"
    )
    tier = Tier(control, parse_application_text(text, Path()).graph)
    tier.publish(batch_of([(1, "A", float("inf"), "x"), (2, "A", float("nan"), "x")]), None)
    tier.plan(5)
    tier.work()
    sent: list[dict] = []
    client = SimpleNamespace(publish_batches=lambda _, some: [sent.extend(each.to_pylist()) for each in some])
    outbox = Outbox(StateStore(control, APPLICATION), client)
    outbox.publish()
    assert [each["value"] for each in sent] == [None, None]
    assert all(json.loads(each["attributes"])["events"][0]["value"] is None for each in sent)
    assert not tier.store.list_output_names()


def test_a_pattern_that_was_changed_starts_anew(control):
    tier = Tier(control, GRAPH)
    tier.publish(batch_of([(5, "A", 1.0, "x"), (6, "B", 1.0, "x")]), None)
    tier.plan(6)
    tier.work()
    changed = replace(pattern_of("SEQ(B; A)", within_us=12), name="aba", emits="aba")
    tier.graph = Graph((Operator("low", "source", (changed,)),))
    tier.publish(batch_of([(7, "A", 1.0, "x")]), 6)
    tier.plan(8)
    tier.work()
    assert not tier.emitted()


@given(st.integers(1, 64), st.sets(st.integers(0, 63)))
def test_every_group_is_on_exactly_one_task(tasks, groups):
    shares = distribute_groups(tasks, groups)
    assert sorted(group for share in shares for group in share) == sorted(groups)
    assert len(shares) <= tasks


@given(st.text())
def test_a_key_has_one_group_for_ever(key):
    assert 0 <= compute_key_group(key) < KEY_GROUPS
    assert compute_key_group("host-17") == 41


def test_events_are_taken_for_one_where_id_and_time_are_equal_and_only_there():
    """As docs/start/publish.md says: who sends again sends the time, too."""
    rows = pa.table({"time": pa.array([3, 1, 3, 2, 3]), "id": ["a", "a", "a", "b", "b"]})
    assert order_rows(rows).to_pylist() == [
        {"time": 1, "id": "a"},
        {"time": 2, "id": "b"},
        {"time": 3, "id": "a"},
        {"time": 3, "id": "b"},
    ]
