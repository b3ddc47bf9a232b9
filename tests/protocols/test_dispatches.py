"""The pipeline between its stages: entries dispatched to replicas, their results combined in event-time
order, states and complex events written. Dispatchers, attempts at batches, combiners that stop anywhere, go on when
others have taken over, or never hear an answer; each event counts once.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queues import keys
from queues.events.block import decode
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.protocols.exploring import DEPTHS, explore
from tests.queues.samples import batch_of, blocks_of
from tests.servers import Server
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.assignment import Assignment, DispatcherOvertaken, Dispatches
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.dispatcher import Dispatcher
from workers.pipeline.dispatch.result_queue import AttemptOvertaken, Blob, Result, ResultQueue
from workers.pipeline.events.layout import encode
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.planned_batches import PlannedBatch, PlannedBatches
from workers.pipeline.tiers.state import NewerState, StateStore, WrittenState

APPLICATION, QUEUE = "app", "telemetry"
REPLICAS = ("iap1", "iap2")
REPLICA = st.sampled_from(REPLICAS)
PLACE = st.integers(0, 2)


class LostAnswers(Dispatches):
    """Whose next answer gets lost, when it is told so."""

    is_lost = False

    def commit(self, *arguments: Any) -> None:
        super().commit(*arguments)
        if self.is_lost:
            raise redis.TimeoutError("nothing heard")


@dataclass
class Attempt:
    """At a replica's batch: what it was given, how it cuts that, and the blobs that it has put already."""

    replica: str
    tick: int
    name: str
    given: list[Assignment]
    pieces: list[pa.RecordBatch]
    blobs: list[Blob] = field(default_factory=list)


@dataclass(frozen=True)
class Given:
    """What a replica has read: its assignments after those that are published."""

    replica: str
    after: int
    assignments: list[Assignment]


@dataclass
class Combining:
    """At a combiner's batch: the state it starts from (None: not read yet)."""

    planned: PlannedBatch
    before: list[str] | None = None

    @property
    def batch(self) -> int:
        return self.planned.batch


class Pipeline(RuleBasedStateMachine):
    """Everything but Spark."""

    def __init__(self, server: Server, nodes: dict[str, Server], topology: Topology) -> None:
        super().__init__()
        self.url, self.control = server.url, server.client()
        self.at = {name: Segment(each.client(), QUEUE) for name, each in nodes.items()}
        for each in (self.control, *(segment.node for segment in self.at.values())):
            each.flushall()
        self.control.set(keys.TOPOLOGY, topology.to_json())
        self.now = 1_000.0
        self.results, self.store = (ResultQueue(self.control, APPLICATION), StateStore(self.control, APPLICATION))
        self.dispatches = Dispatches(self.control, APPLICATION)
        self.dispatchers = [self.dispatcher()]  # the last is the one that is wanted
        self.batches = self.planner()
        self.old_plans: list[PlannedBatch | None] = [None]  # as combiners that were thought dead have read them
        self.given: list[Given] = []
        self.attempts: list[Attempt] = []
        self.combinings: list[Combining] = []
        self.published = 0
        self.emitted: Counter[str] = Counter()

    def dispatcher(self) -> Dispatcher:
        made = Dispatcher(self.url, APPLICATION, (QUEUE,), REPLICAS, Controls(), monotonic=lambda: self.now)
        made._dispatches = LostAnswers(self.control, APPLICATION)
        return made

    def planner(self) -> PlannedBatches:
        return PlannedBatches(self.control, APPLICATION, REPLICAS)

    def teardown(self) -> None:
        """Everybody who was thought dead ends; what is left is worked to its end."""
        try:
            self.attempts.clear()
            self.combinings.clear()
            self.given.clear()
            for _ in range(60):
                if len(self.counted()) == self.published and not self.control.exists(*self.leftovers()):
                    break
                self.now += 3.0
                self.dispatchers[-1].step()
                for replica in REPLICAS:
                    self.works_all(replica)
                self.combines_all()
            assert self.counted() == self.events()
            assert self.emitted == Counter(self.events())
            assert self.results.measure_room().used_bytes == self.results.measure_room().in_flight_events == 0
            assert list(self.control.scan_iter("weir:pipeline:result:*")) == [], "no rows are left behind"
        finally:
            for each in self.dispatchers:
                each.close()

    def leftovers(self) -> list[str]:
        return [*self.control.scan_iter("weir:pipeline:result:*"), keys.PIPELINE_OUTBOX.build(APPLICATION)]

    def events(self) -> list[str]:
        return [f"e{row}" for row in range(self.published)]

    def counted(self) -> list[str]:
        """What the state has counted, in the order of counting."""
        value = self.control.hget(keys.PIPELINE_STATE.build(APPLICATION), "op/0")
        return json.loads(value) if value else []

    def rows(self, given: list[Assignment]) -> pa.RecordBatch:
        """The events of assignments, read from their containers."""
        parts = [part for each in given for part in each.parts]
        read = [
            decode(block_id, data).batch
            for part in parts
            for _, block_id, data, _ in self.at[part.container.split("/")[1]].read(part.after, part.through)
        ]
        table = pa.Table.from_batches(read).sort_by("time").combine_chunks()
        assert table.num_rows == sum(each.events for each in given), "nothing that is given was trimmed"
        return table.to_batches()[0].select(["id", "time"])

    @rule(node=st.sampled_from(("n1", "n2", "n3")), blocks=st.integers(1, 4))
    def events_are_published(self, node: str, blocks: int) -> None:
        self.at[node].publish(blocks_of(2 * blocks, 2, self.published))
        self.published += 2 * blocks

    @rule(answer_is_lost=st.booleans(), seconds=st.integers(1, 3))
    def it_is_dispatched(self, answer_is_lost: bool, seconds: int) -> None:
        self.now += seconds
        dispatcher = self.dispatchers[-1]
        dispatcher._dispatches.is_lost = answer_is_lost
        try:
            dispatcher.step()
        except redis.TimeoutError:
            assert answer_is_lost
        finally:
            dispatcher._dispatches.is_lost = False

    @precondition(lambda self: len(self.dispatchers) < 3)
    @rule()
    def another_dispatcher_is_started(self) -> None:
        self.dispatchers.append(self.dispatcher())

    @precondition(lambda self: len(self.dispatchers) > 1)
    @rule()
    def a_dispatcher_that_was_thought_dead_goes_on(self) -> None:
        before = self.dispatches.load_cursor() or Cursor()
        self.now += 1
        try:
            self.dispatchers[0].step()
        except DispatcherOvertaken:
            self.dispatchers.pop(0).close()
            assert (self.dispatches.load_cursor() or Cursor()).to_document() == before.to_document()
        else:
            if (self.dispatches.load_cursor() or Cursor()).tick != before.tick:
                # It was not overtaken yet: whoever was to follow is.
                for each in self.dispatchers[1:]:
                    each.close()
                self.dispatchers = self.dispatchers[:1]

    @rule(replica=REPLICA, pieces=st.integers(1, 3))
    def an_attempt_begins(self, replica: str, pieces: int) -> None:
        """At the next batch; earlier attempts may still be at it, and may have ended it elsewhere."""
        self.begins(self.reads(replica), pieces)

    def reads(self, replica: str) -> Given:
        published = self.results.measure_room().published.get(replica, 0)
        return Given(replica, published, self.dispatches.list_batch(replica, published))

    def begins(self, given: Given, pieces: int) -> None:
        if not given.assignments:
            return
        tick = given.assignments[-1].tick
        if name := self.results.begin(given.replica, given.after, tick):
            rows = self.rows(given.assignments)
            size = -(-rows.num_rows // pieces)
            cut = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
            self.attempts.append(Attempt(given.replica, tick, name, given.assignments, cut))

    @rule(replica=REPLICA)
    def a_replica_reads_its_assignments_and_stands_still(self, replica: str) -> None:
        self.given.append(self.reads(replica))

    @precondition(lambda self: self.given)
    @rule(place=PLACE, pieces=st.integers(1, 2))
    def a_replica_that_stood_still_begins(self, place: int, pieces: int) -> None:
        """Others may have published what it was given, or a part of it."""
        self.begins(self.given.pop(place % len(self.given)), pieces)

    @precondition(lambda self: self.attempts)
    @rule(place=PLACE, answer_is_lost=st.booleans())
    def an_attempt_goes_on(self, place: int, answer_is_lost: bool) -> None:
        """One piece more, or its publishing. An attempt that was overtaken ends."""
        attempt = self.attempts[place % len(self.attempts)]
        try:
            for _ in range(1 + answer_is_lost):
                is_done = self.goes_on(attempt)
        except AttemptOvertaken:
            is_done = True
        if is_done:
            self.attempts.remove(attempt)

    def goes_on(self, attempt: Attempt) -> bool:
        number = len(attempt.blobs)
        if number < len(attempt.pieces):
            rows = attempt.pieces[number]
            name, data = f"{number}:key:-1", encode(rows)
            self.results.put(attempt.replica, attempt.tick, attempt.name, {name: data})
            times = rows.column("time").cast(pa.int64()).to_pylist()
            attempt.blobs.append(Blob(name, "key", -1, min(times), max(times), rows.num_rows, len(data)))
            return False
        watermark_us = attempt.given[0].watermark_us
        result = Result(attempt.replica, attempt.tick, watermark_us, tuple(attempt.blobs))
        self.results.publish(result, attempt.name, sum(each.events for each in attempt.given))
        return True

    @rule(node=st.sampled_from(("n1", "n2", "n3")), replica=REPLICA)
    def an_attempt_is_overtaken(self, node: str, replica: str) -> None:
        """What random steps come to too seldom: it is in the middle, and another cuts the batch otherwise."""
        self.events_are_published(node, 4)
        self.it_is_dispatched(False, 3)
        self.an_attempt_begins(replica, 3)
        if self.attempts:
            self.an_attempt_goes_on(len(self.attempts) - 1, False)
        self.an_attempt_begins(replica, 2)

    @rule(node=st.sampled_from(("n1", "n2", "n3")), replica=REPLICA)
    def an_attempt_is_overtaken_by_a_longer_one(self, node: str, replica: str) -> None:
        self.an_attempt_is_overtaken(node, replica)
        self.events_are_published(node, 4)
        self.it_is_dispatched(False, 3)
        self.an_attempt_begins(replica, 2)

    @rule(node=st.sampled_from(("n1", "n2", "n3")), replica=REPLICA)
    def a_replica_stands_still_while_another_publishes_a_part(self, node: str, replica: str) -> None:
        """What it has read begins with dispatches that another publishes, and ends with those that it does not."""
        self.events_are_published(node, 4)
        self.it_is_dispatched(False, 3)
        given = self.reads(replica)
        self.works_all(replica)
        self.events_are_published(node, 4)
        self.it_is_dispatched(False, 3)
        longer = [*given.assignments, *self.reads(replica).assignments]
        self.begins(Given(replica, given.after, longer), 1)

    @rule(replica=REPLICA)
    def a_replica_works(self, replica: str) -> None:
        self.works_all(replica)

    @rule()
    def a_combining_is_overtaken(self) -> None:
        """It has read its state, and another writes the batch and is done before it goes on."""
        self.a_combiner_s_batch_is_planned()
        if (planned := self.unfinished()) is not None:
            old = Combining(planned)
            if not self.combines(old):
                self.combinings.append(old)
                self.combines_all()

    @precondition(lambda self: self.attempts)
    @rule(place=PLACE)
    def an_attempt_dies(self, place: int) -> None:
        self.attempts.pop(place % len(self.attempts))

    def works_all(self, replica: str) -> None:
        """Attempt and publish, without anything in between."""
        before = len(self.attempts)
        self.an_attempt_begins(replica, 1)
        for attempt in self.attempts[before:]:
            while not self.goes_on(attempt):
                continue
        del self.attempts[before:]

    def unfinished(self) -> PlannedBatch | None:
        """The planned batch that is not finished, if there is one."""
        planned = self.batches.load()
        return None if planned is None or planned.is_done else planned

    @rule()
    def a_combiner_s_batch_is_planned(self) -> None:
        """The next when this one is done; what it has read is released then."""
        if self.unfinished() is None:
            planned = self.batches.load()
            self.old_plans.append(planned)
            self.batches.plan_after(planned)

    @rule()
    def the_combiner_is_started_again(self) -> None:
        self.batches = self.planner()

    @rule(place=PLACE)
    def a_combiner_that_was_thought_dead_plans(self, place: int) -> None:
        """From the batch that it finished last: no plan that was made in the meantime changes."""
        before = self.batches.load()
        old = self.old_plans[place % len(self.old_plans)]
        found = self.planner().plan_after(old)
        if before is not None and (old is None or old.batch < before.batch):
            assert self.batches.load() == before
            assert found in (None, before)

    @precondition(lambda self: self.unfinished() is not None)
    @rule()
    def a_combining_begins(self) -> None:
        self.combinings.append(Combining(self.unfinished()))

    @precondition(lambda self: self.combinings)
    @rule(place=PLACE)
    def a_combining_goes_on(self, place: int) -> None:
        combining = self.combinings[place % len(self.combinings)]
        try:
            is_done = self.combines(combining)
        except NewerState:
            assert combining.batch < self.batches.load().batch
            is_done = True
        except KeyError:
            assert self.is_over(combining), "what is read is there until its batch is done"
            is_done = True
        if is_done:
            self.combinings.remove(combining)

    def is_over(self, combining: Combining) -> bool:
        newest = self.batches.load()
        return combining.batch < newest.batch or newest.is_done

    def combines(self, combining: Combining) -> bool:
        """Read the state, then write it with what was found: an operator that emits what it counts."""
        if combining.before is None:
            loaded = self.store.load(["op/0"], combining.batch)
            if loaded is None:
                self.batches.finish(combining.planned)
                return True
            combining.before = json.loads(loaded["op/0"]) if loaded else []
            return False
        due = self.due(combining.planned.offset)
        state = json.dumps([*combining.before, *due]).encode()
        outbox = {f"alert|{combining.batch}/op/0/0/{len(due)}": ids_of(due)} if due else {}
        self.store.write(combining.batch, WrittenState({"op/0": (state, None)}, outbox=outbox))
        self.batches.finish(combining.planned)
        return True

    def due(self, combined: CombinedOffset) -> list[str]:
        """The ids of the rows that the watermark passes in this batch, in event-time order."""
        rows: list[tuple[int, str]] = []
        for result in combined.read:
            names = [blob.name for blob in result.blobs if combined.wants(blob.first_us)]
            for each in self.results.read(result, names):
                times = each.column("time").cast(pa.int64()).to_pylist()
                rows += zip(times, each.column("id").to_pylist(), strict=True)
        least, most = combined.previous_watermark_us, combined.watermark_us
        return [name for at, name in sorted(rows) if most is not None and at <= most and (least is None or at > least)]

    @precondition(lambda self: self.combinings)
    @rule(place=PLACE)
    def a_combining_dies(self, place: int) -> None:
        self.combinings.pop(place % len(self.combinings))

    def combines_all(self) -> None:
        self.a_combiner_s_batch_is_planned()
        while (planned := self.unfinished()) is not None:
            combining = Combining(planned)
            while not self.combines(combining):
                continue
        self.complex_events_are_taken()

    @rule()
    def complex_events_are_taken(self) -> None:
        """By their queue, which answers; what is taken once is never put there again."""
        outputs = self.store.load_outputs(self.store.list_output_names())
        for data in outputs.values():
            for rows in pa.ipc.open_stream(data):
                self.emitted.update(rows.column("id").to_pylist())
        if outputs:
            self.store.record_published(list(outputs))

    @invariant()
    def every_event_is_counted_once_and_in_order(self) -> None:
        counted = self.counted()
        assert len(counted) == len(set(counted))
        assert counted == sorted(counted, key=lambda name: int(name[1:]))
        assert all(number == 1 for number in self.emitted.values())

    @invariant()
    def room_is_what_is_on_its_way_and_what_is_in_the_queue(self) -> None:
        room, results = self.results.measure_room(), self.results.read_after("0-0")
        outstanding = [
            each.events for name in REPLICAS for each in self.dispatches.list_after(name, room.published.get(name, 0))
        ]
        assert room.in_flight_events == sum(outstanding)
        assert room.used_bytes == sum(result.size_bytes for result in results)

    @invariant()
    def a_result_holds_exactly_what_was_given(self) -> None:
        found: Counter[str] = Counter()
        for result in self.results.read_after("0-0"):
            for rows in self.results.read(result, [blob.name for blob in result.blobs]):
                found.update(rows.column("id").to_pylist())
        assert all(number == 1 for number in found.values())

    @invariant()
    def what_was_not_worked_is_still_in_its_container(self) -> None:
        waiting = {
            name
            for segment in self.at.values()
            for _, block_id, data, _ in segment.read("0-0", "+")
            for name in decode(block_id, data).get_event_ids().to_pylist()
        }
        for result in self.results.read_after("0-0"):
            for rows in self.results.read(result, [blob.name for blob in result.blobs]):
                waiting |= set(rows.column("id").to_pylist())
        assert set(self.events()) <= waiting | set(self.counted())


def ids_of(names: list[str]) -> pa.RecordBatch:
    return batch_of(len(names)).set_column(0, "id", pa.array(names))


@pytest.fixture
def pipeline(control_server, nodes, plant_topology):
    return lambda: Pipeline(control_server, nodes, plant_topology)


@pytest.mark.parametrize("depth", DEPTHS)
def test_every_event_is_dispatched_worked_and_counted_once(pipeline, depth):
    explore(pipeline, depth)
