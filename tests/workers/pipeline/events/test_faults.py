"""Events that can't be worked go to the dead letters of their container, once; the others go on."""

import threading
import time

import pytest

from bench.queues.bit_flips import flip_bit, rewrite_entries
from common.errors import NodeUnavailable
from queues import keys
from queues.publishing.client import Client
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from tests.servers import new_server
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import (
    Faults,
    Nodes,
    Range,
    apply_layout,
    connect_to_control,
    merge_blocks,
    read_range,
)
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.events.layout import Attribute, Layout

LAYOUT = Layout(
    ("id", "time", "type", "source", "key", "value"),
    (Attribute("level", "number", required=True), Attribute("site", "text"), Attribute("user", "integer")),
)


@pytest.fixture
def read(control_server, nodes, plant_topology):
    """Publishes events to one node, and reads them as a task of a replica does: (rows, faults)."""
    segment = Segment(nodes["n1"].client(), "telemetry")

    def reading(events: list[dict]):
        with Client(control_server.url, "test") as client:
            client.publish("telemetry", events)
        faults = Faults(60_000_000, time.time_ns() // 1000)
        connected = Nodes(5.0)
        blocks = []
        for name, node in plant_topology.nodes.items():
            blocks += read_range(connected, Range("telemetry", name, node.url, "0-0", "+"), 1.0, faults)
        rows = [row for lot in merge_blocks(blocks) for row in apply_layout(lot, LAYOUT, faults).to_pylist()]
        return rows, faults

    yield reading
    segment.node.close()


def letters(nodes) -> list:
    found = [DeadLetters(Segment(server.client(), "telemetry")).read() for server in nodes.values()]
    return [letter for each in found for letter in each]


def kept(control, faults: Faults) -> FaultStore:
    """The store that keeps them, of a replica's first batch."""
    store = FaultStore(control, "app")
    store.keep("iap1", 1, ResultQueue(control, "app").begin("iap1", 0, 1), faults)
    return store


def event(name: str, attributes: object, **more) -> dict:
    return {"id": name, "type": "t", "source": "s", "attributes": attributes, **more}


@pytest.mark.parametrize(
    ("attributes", "cause"),
    [
        ({"site": "a"}, "attribute level is missing"),
        ({"level": "high"}, 'attribute level must be a number, not "high"'),
        ({"level": True}, "attribute level must be a number, not true"),
        ({"level": 1, "site": 7}, "attribute site must be a string, not 7"),
        ({"level": 1, "user": 1.5}, "attribute user must be a 64-bit whole number, not 1.5"),
        ({"level": 1, "user": 2**63}, "attribute user must be a 64-bit whole number, not 9223372036854775808"),
    ],
)
def test_an_event_whose_attributes_are_not_as_declared_is_a_dead_letter_with_the_cause(
    attributes, cause, read, control, nodes
):
    good = event("good", {"level": 3.5, "site": "a"})
    rows, faults = read([good, event("bad", attributes)])
    assert [(row["id"], row["level"], row["site"]) for row in rows] == [("good", 3.5, "a")]
    store, connected = FaultStore(control, "app"), Nodes(5.0)
    attempt = ResultQueue(control, "app").begin("iap1", 0, 7)
    store.keep("iap1", 7, attempt, faults)
    assert store.deliver(connected, {"iap1": 6}) == 0, "before the batch is published nothing is told"
    store.keep("iap1", 7, attempt, faults)  # the batch is worked again
    assert store.deliver(connected, {"iap1": 7}) == 1
    assert store.deliver(connected, {"iap1": 7}) == 0
    (letter,) = letters(nodes)
    assert letter.error == cause
    assert letter.batch.column("id").to_pylist() == ["bad"]
    store.keep("iap1", 7, attempt, faults)  # who died after the delivery delivers again
    store.deliver(connected, {"iap1": 7})
    assert len(letters(nodes)) == 1


def test_a_cause_that_quotes_each_events_value_makes_a_few_dead_letters_of_many_events(read, control, nodes):
    _, faults = read([event(f"e{place}", {"level": f"{place} kB"}) for place in range(100)])
    store = kept(control, faults)
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 100
    found = letters(nodes)
    assert len(found) == 8 and {each for one in found for each in one.batch.column("id").to_pylist()} == {
        f"e{place}" for place in range(100)
    }
    assert any(one.error.endswith("similar causes: 93") for one in found)


def test_what_an_attempt_that_died_has_refused_is_no_dead_letter_of_the_one_that_worked_it(read, control, nodes):
    _, faults = read([event("bad", {})])
    store, results = FaultStore(control, "app"), ResultQueue(control, "app")
    died = results.begin("iap1", 0, 1)
    store.keep("iap1", 1, died, faults)
    results.begin("iap1", 0, 1)
    store.abandon("iap1", 1)
    store.keep("iap1", 1, died, faults)  # it goes on, though it was thought dead
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 0 and letters(nodes) == []


def test_a_clock_that_is_far_ahead_makes_dead_letters_and_not_everybody_late(read, control, nodes):
    ahead = time.time() + 3_600
    rows, faults = read([event("now", {"level": 1}), event("ahead", {"level": 1}, time=ahead)])
    assert [row["id"] for row in rows] == ["now"]
    store = kept(control, faults)
    store.deliver(Nodes(5.0), {"iap1": 1})
    assert "clock" in letters(nodes)[0].error


def test_what_can_not_be_delivered_now_is_delivered_when_the_node_is_back(read, control, nodes):
    _, faults = read([event("bad", {})])
    ((_, node, _, _),) = faults.rows
    store = kept(control, faults)
    nodes[node].kill()
    assert store.deliver(Nodes(0.3), {"iap1": 1}) == 0
    nodes[node].start()
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 1
    assert len(letters(nodes)) == 1
    assert Segment(nodes[node].client(), "telemetry").get_counters()["dead_events"] == 1


def test_what_is_kept_is_found_without_going_through_all_keys_of_the_server(read, control, nodes):
    _, faults = read([event("bad", {})])
    store = FaultStore(control, "app")
    store.deliver(Nodes(5.0), {})
    before = control.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"]
    store.keep("iap1", 1, ResultQueue(control, "app").begin("iap1", 0, 1), faults)
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 1
    assert control.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"] == before
    assert control.smembers(keys.PIPELINE_FAULTY.build("app")) == set()


def test_what_an_older_version_has_kept_is_delivered_too(read, control, nodes):
    store = kept(control, read([event("bad", {})])[1])
    control.delete(keys.PIPELINE_FAULTY.build("app"))
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 1
    assert len(letters(nodes)) == 1


def test_a_reset_forgets_what_is_kept(read, control, nodes):
    store = kept(control, read([event("bad", {})])[1])
    store.clear()
    store.clear()
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 0 and letters(nodes) == []


def test_only_declared_columns_are_read_and_whole_numbers_of_64_bits_are_exact(read):
    rows, _ = read([event("e", {"level": 2**63 - 1, "user": 2**63 - 1}, value=2.0)])
    assert set(rows[0]) == {*LAYOUT.columns, "level", "site", "user"}
    assert (rows[0]["level"], rows[0]["user"]) == (float(2**63), 2**63 - 1)


def test_a_node_that_does_not_answer_is_asked_once_a_call_however_much_is_for_it(read, control, monkeypatch):
    for place in range(6):
        _, faults = read([event(f"bad{place}", {})])
    where = [node for _, node, _, _ in faults.rows]
    assert len(where) == 6
    store, asked = FaultStore(control, "app"), []
    store.keep("iap1", 1, ResultQueue(control, "app").begin("iap1", 0, 1), faults)

    def silent(letters, *_):
        asked.append(letters)
        raise NodeUnavailable("it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "add", silent)
        assert store.deliver(Nodes(5.0), {"iap1": 1}) == 0
    assert len(asked) == len(set(where))
    assert store.deliver(Nodes(5.0), {"iap1": 1}) == 6


AWAY_SECONDS = 5.0  # longer than redis-py tries by itself


@pytest.mark.slow
def test_a_control_server_that_is_started_again_is_waited_for(tmp_path):
    server = new_server(tmp_path)
    try:
        with connect_to_control(server.url) as control:
            control.set("weir:kept", "1")
            server.kill()
            later = threading.Timer(AWAY_SECONDS, server.start)
            later.start()
            assert control.get("weir:kept") == b"1"
            later.join()
    finally:
        server.close()


def test_a_damaged_block_is_a_dead_letter_at_once_and_no_attempt_reads_it_again(read, nodes):
    rows, _ = read([{"type": "a", "attributes": {"level": 1}}])
    assert len(rows) == 1
    (holder,) = [server for server in nodes.values() if server.client().exists(keys.SEGMENT.build("telemetry"))]
    segment = Segment(holder.client(), "telemetry")
    rewrite_entries(segment.node, segment.stream, lambda place, parts: [*parts[:-1], flip_bit(parts[-1], 777)])
    rows, faults = read([])
    assert (rows, faults.rows) == ([], {})
    (letter,) = letters(nodes)
    assert (letter.kind, letter.worker, letter.events) == ("damaged", "pipeline", 1)
    rows, faults = read([])
    assert (rows, faults.rows, len(letters(nodes))) == ([], {}, 1)
    assert segment.trim("+").blocks == 0
    counters = segment.get_counters()
    assert counters["inserted_events"] == counters["removed_events"] == 1
