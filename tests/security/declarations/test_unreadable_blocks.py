"""What somebody else wrote into a queue, or what was stored before it was checked, stops nobody: it becomes a
dead letter, which is shown, downloaded and discarded.
"""

import functools
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import MalformedEvent
from console.actions.dead_letters import find
from queues import keys
from queues.events.block import SCHEMA, BlockIds, cut, from_events
from queues.segments.dead_letters import DeadLetters
from queues.segments.segment import Segment
from queues.topology import QueueSpec
from workers.consumer.handler import Place
from workers.consumer.registry import build
from workers.consumer.worker import Consumer
from workers.pipeline.dispatch.result_queue import ResultQueue
from workers.pipeline.events.containers import Faults, Nodes, Range, read_range
from workers.pipeline.events.faults import FaultStore
from workers.placement.transfer import Route

NOW_US = 1_790_000_000_000_000
GOOD = from_events([{"type": "a"}], NOW_US)


def forged(**columns: pa.Array) -> bytes:
    """A block of `SCHEMA` with columns that no way in takes."""
    arrays = [columns.get(field.name, GOOD.column(place)) for place, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA).serialize().to_pybytes()


def raw_text(data: bytes) -> pa.Array:
    offsets = pa.array([0, len(data)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])


ENTRIES: dict[str, dict[str, Any]] = {
    "no field of ours": {"hello": "world"},
    "no bytes": {"i": "b1", "n": 1, "t": NOW_US},
    "bytes that are no block": {"i": "b1", "n": 1, "t": NOW_US, "d": b"\xff\x00garbage"},
    "nothing": {"i": "", "n": "", "t": "", "d": ""},
    "a name that is no text": {"i": b"\xff/\xfe\n\x00", "n": 1, "t": NOW_US, "d": b"x"},
    "numbers that are none": {"i": "b1", "n": "-5", "t": "1e99", "d": b"x"},
    "numbers too great": {"i": "b1", "n": "9" * 40, "t": "9" * 16, "d": b"x"},
    "a type that is no utf-8": {"i": "b1", "n": 1, "t": NOW_US, "d": forged(type=raw_text(b"\xff\xfe"))},
    "half a block": {"i": "b1", "n": 1, "t": NOW_US, "d": GOOD.serialize().to_pybytes()[:-40]},
    "no events": {"i": "b1", "n": 0, "t": 0, "d": GOOD.slice(0, 0).serialize().to_pybytes()},
    "an event without a time": {"i": "b1", "n": 1, "t": 0, "d": forged(time=pa.nulls(1, SCHEMA.field("time").type))},
}
# Whose fields are not those of a block of any version.
DAMAGED = ("no field of ours", "no bytes")
QUEUE = QueueSpec("alert", "jobs", {"n1": 1000}, handler="noop")


@pytest.fixture
def segment(nodes):
    return Segment(nodes["n1"].client(), "alert")


def put(segment: Segment, entry: dict[str, Any]) -> None:
    """As somebody with a client of Redis does; a good block behind it."""
    segment.node.xadd(segment.stream, entry)
    segment.publish(cut(GOOD, BlockIds()))


@pytest.mark.parametrize("case", ENTRIES)
def test_a_worker_makes_a_dead_letter_of_it_and_goes_on(case, segment, tmp_path):
    put(segment, ENTRIES[case])
    assert segment.scan()
    work(segment, tmp_path)
    (letter,) = DeadLetters(segment).read()
    assert letter.batch["type"].to_pylist() == ["damaged" if case in DAMAGED else "unreadable"]
    assert segment.measure()["length_blocks"] == 0


def work(segment: Segment, tmp_path: Any) -> None:
    Consumer(QUEUE, segment, build("noop", {}, Place("alert", tmp_path)), "a worker").run()


@pytest.mark.parametrize("case", ENTRIES)
def test_a_pipeline_makes_a_dead_letter_of_it_and_its_batch_goes_on(case, control, nodes, segment, plant_topology):
    put(segment, ENTRIES[case])
    faults, connected = Faults(10**12, time.time_ns() // 1000), Nodes(5.0)
    read = list(read_range(connected, Range("alert", "n1", nodes["n1"].url, "0-0", "+"), 1.0, faults))
    assert sum(each.batch.num_rows for each in read) == 1
    store = FaultStore(control, "app")
    store.keep("iap1", 1, ResultQueue(control, "app").begin("iap1", 0, 1), faults)
    assert store.deliver(connected, {"iap1": 1}) == (case not in DAMAGED)
    assert len(DeadLetters(segment).read()) == 1
    connected.close()


@pytest.mark.parametrize("case", ENTRIES)
def test_a_transfer_takes_it_along_or_leaves_it_as_a_dead_letter(case, nodes, segment):
    put(segment, ENTRIES[case])
    there = Segment(nodes["n2"].client(), "alert")
    done = Route("n1", segment, {"n2": there}, {"n2": 1}).run(2**30)
    assert done.blocks + len(DeadLetters(segment).read()) == 2
    assert (done.blocks == 1) == (case in DAMAGED)
    assert segment.measure()["length_blocks"] == 0


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["i", "n", "t", "d", "x"]), st.binary(max_size=30), min_size=1))
def test_any_entry_is_claimed_and_can_be_acknowledged(segment, entry):
    segment.node.xadd(segment.stream, entry)
    (claimed,) = segment.claim("a worker", 1, 60)
    with pytest.raises(MalformedEvent):
        claimed.block()
    assert segment.acknowledge([claimed.entry_id]).blocks == 1


LETTERS: dict[str, dict[str, Any]] = {
    **{name: {"e": entry.get("d", b""), "n": 3, "error": "no", "tries": 1, "worker": "w", "block": "b1"}
       for name, entry in ENTRIES.items()},
    "no field of a letter": {"hello": "world"},
    "fields that are no text": dict.fromkeys(("e", "n", "error", "tries", "worker", "block"), b"\xff\x00"),
    "a time in no calendar": {"e": forged(time=pa.array([2**62], SCHEMA.field("time").type)), "n": 1},
    "a date in no calendar": {"e": b"x", "since": "9" * 30},
}  # fmt: skip


@pytest.fixture
def letter(poisoned, snapshot, control):
    """Puts a raw dead letter on n1 and gives its id."""

    def put_letter(entry: dict[str, Any], dead_id: str = "*") -> str:
        node = poisoned["n1"].client()
        return node.xadd(keys.DEAD.build("alert"), entry, dead_id).decode()

    return put_letter


@pytest.mark.sweep(4)
@pytest.mark.django_db
@pytest.mark.parametrize("case", LETTERS)
def test_an_unreadable_letter_is_shown_downloaded_and_discarded(case, letter, browsers):
    dead_id = letter(LETTERS[case])
    operator = browsers["operator"]
    for path in ("/dead-letters/", "/dead-letters/?type=a", "/queues/alert/", "/api/v1/dead-letters"):
        assert operator.get(path).status_code == 200, path
    page = operator.get(f"/dead-letters/alert/n1/{dead_id}/")
    kind = "Damaged" if case == "no field of a letter" else "Unreadable"
    assert (page.status_code, f"{kind} bytes" in page.content.decode()) == (200, True)
    found = operator.get(f"/api/v1/dead-letters/alert/n1/{dead_id}").json()
    stored = LETTERS[case].get("e", b"")
    stored = stored.encode() if isinstance(stored, str) else stored
    assert found["unreadable"]["bytes"] == len(stored)
    for path in (f"/dead-letters/alert/n1/{dead_id}/bytes", f"/api/v1/dead-letters/alert/n1/{dead_id}/bytes"):
        answer = operator.get(path)
        assert (answer.status_code, answer.content) == (200, stored)
        assert answer["Content-Disposition"].startswith("attachment")
    act = functools.partial(operator.post, content_type="application/json")
    fix = {"reason": "a test", "digest": found["name"].rpartition("/")[2], "event": {"type": "b"}}
    assert act(f"/api/v1/dead-letters/alert/n1/{dead_id}/fix", fix).status_code == 422
    body = {"letters": [found["name"]], "reason": "a test", "confirm": "alert"}
    assert act("/api/v1/dead-letters/discard", body).json()["letters"] == 1
    assert operator.get(f"/api/v1/dead-letters/alert/n1/{dead_id}").status_code == 404


@pytest.mark.django_db
def test_a_letter_of_an_id_in_no_calendar_is_shown(letter, browsers):
    dead_id = letter({"e": b"x"}, "18446744073709551615-5")
    assert browsers["operator"].get("/dead-letters/").status_code == 200
    assert browsers["operator"].get(f"/dead-letters/alert/n1/{dead_id}/").status_code == 200


@pytest.mark.django_db
def test_what_a_worker_could_not_read_is_downloaded_as_it_was(poisoned, browsers, tmp_path):
    segment = Segment(poisoned["n1"].client(), "alert")
    put(segment, ENTRIES["bytes that are no block"])
    work(segment, tmp_path)
    dead_id = DeadLetters(segment).read()[-1].dead_id
    assert find("alert", "n1", dead_id).unreadable
    answer = browsers["operator"].get(f"/dead-letters/alert/n1/{dead_id}/bytes")
    assert answer.content == b"\xff\x00garbage"


@pytest.mark.sweep(4)
@pytest.mark.django_db
@pytest.mark.parametrize("case", LETTERS)
def test_requeueing_an_unreadable_letter_answers_and_loses_nothing(case, letter, browsers, poisoned):
    dead_id = letter(LETTERS[case])
    name = browsers["operator"].get(f"/api/v1/dead-letters/alert/n1/{dead_id}").json()["name"]
    body = {"letters": [name], "reason": "a test"}
    answer = browsers["operator"].post("/api/v1/dead-letters/requeue", body, content_type="application/json")
    node = poisoned["n1"].client()
    if case == "no field of a letter":
        assert "is damaged" in answer.content.decode()
        assert dead_id.encode() in [name for name, _ in node.xrange(keys.DEAD.build("alert"))]
        return
    assert answer.json()["letters"] == 1
    assert node.xlen(Segment(node, "alert").stream) == 1
