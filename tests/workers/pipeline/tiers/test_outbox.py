"""Complex events leave the outbox for their queues."""

import json
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from common.errors import BadInput, NoContainerAvailable, QueuePaused
from common.stored_document import decode_document
from queues.control.connection import WritesRefused
from queues.events import block
from tests.waiting import MAX_SECONDS
from tests.workers.pipeline.matching.patterns import match_all, pattern_of, rows_of
from workers.documents.pipeline import ComplexEvent
from workers.pipeline.events.layout import decode
from workers.pipeline.matching.complex_event import build_match_rows
from workers.pipeline.tiers import outbox as outbox_module
from workers.pipeline.tiers.batch_work import BatchFailed, BatchWork, describe_error
from workers.pipeline.tiers.outbox import Outbox, encode_newest_events
from workers.pipeline.tiers.state import StateStore, WrittenState, format_outbox_name


class Publisher:
    """Takes batches and notes their ids; `meanwhile` is called in another thread first."""

    def __init__(self, meanwhile=lambda: None):
        self.meanwhile, self.ids = meanwhile, []

    def publish_batches(self, queue, batches):
        other = threading.Thread(target=self.meanwhile)
        other.start()
        other.join(MAX_SECONDS)
        assert not other.is_alive()
        self.ids += [each for batch in batches for each in batch.column("id").to_pylist()]


@pytest.fixture
def store(control):
    store = StateStore(control, "exact")
    events = [{"id": f"c{n}", "time": 1.0 + n, "type": "abc", "source": "s", "attributes": {}} for n in range(3)]
    rows = pa.Table.from_batches([block.from_events(events, 0)]).combine_chunks().to_batches()[0]
    store.write(1, WrittenState({"op/1": (b"state", None)}, outbox={"alert|1/1/0/3": rows}))
    return store


def test_what_is_being_published_is_not_published_again_by_who_checks_it(store):
    client = Publisher(lambda: outbox.retry())
    outbox = Outbox(store, client)
    assert outbox.publish() == 3
    assert client.ids == ["c0", "c1", "c2"] and not store.list_output_names()


def test_the_next_batch_runs_while_complex_events_are_published(store):
    """Only the end of the next batch waits for them, so few are in the outbox."""
    accepted = threading.Event()
    client = Publisher(lambda: accepted.wait(MAX_SECONDS))
    outbox = Outbox(store, client)
    outbox.start_publishing()
    assert store.list_output_names() and not client.ids
    accepted.set()
    outbox.start_publishing()
    assert client.ids == ["c0", "c1", "c2"]
    outbox.await_published()
    assert client.ids == ["c0", "c1", "c2"] and not store.list_output_names()


def test_an_error_of_publishing_in_the_background_is_raised_by_the_next_call(store):
    outbox = Outbox(store, Publisher())
    store.load_outputs = lambda names: {names[0]: b"no Arrow stream"}
    outbox.start_publishing()
    with pytest.raises(pa.ArrowInvalid):
        outbox.await_published()
    outbox.await_published()


def test_what_was_published_is_shown_the_newest_first(store):
    Outbox(store, Publisher()).publish()
    assert [(event.id, event.type, event.source) for event in store.list_recent_events()] == [
        ("c2", "abc", "s"),
        ("c1", "abc", "s"),
        ("c0", "abc", "s"),
    ]


def test_matches_in_columns_are_published_with_their_attributes_and_those_of_earlier_versions_unchanged(store):
    pattern = replace(pattern_of("SEQ(A; B)", within_us=50), name="ab", emits="ab")
    matches = match_all(pattern, rows_of([(1, "A", 1.0, '"'), (2, "B", 2.5, '"'), (3, "A", 1.0, "z")]))
    rows = build_match_rows(pattern, matches, "ab:1")
    store.write(2, WrittenState({"op/1": (b"state", None)}, outbox={"alert|2/1/0/1": rows}))
    sent = []
    client = Publisher()
    client.publish_batches = lambda _, batches: sent.extend(row for batch in batches for row in batch.to_pylist())
    assert Outbox(store, client).publish() == 4
    assert [event["id"] for event in sent] == ["c0", "c1", "c2", "ab:1:0"]
    assert sent[0]["attributes"] == "{}"
    attributes = json.loads(sent[3]["attributes"])
    assert attributes["pattern"] == "ab" and [event["value"] for event in attributes["events"]] == [1.0, 2.5]
    assert {event["source"] for event in attributes["events"]} == {'"'}


def test_the_measures_of_a_match_are_shown_beside_its_conditions(store):
    attributes = (
        '{"pattern":"spike","ratio":10.1,"card":"x","conditions":["B.value 940 > 10 × A.value 93"],"events":[]}'
    )
    rows = store.load_outputs(store.list_output_names())
    (batch,) = decode(next(iter(rows.values())))
    shown = encode_newest_events([batch.slice(0, 1).set_column(6, "attributes", pa.array([attributes]))])
    event = decode_document(ComplexEvent, shown[0], "complex event")
    assert event.attributes.measures == {"ratio": 10.1, "card": "x"}
    assert event.attributes.conditions == ["B.value 940 > 10 × A.value 93"]


def test_what_was_published_while_the_control_servers_memory_is_full_is_not_published_again(store, control):
    """A full server takes nothing new to be shown, and with it let nothing go: each second the same complex
    events were published once more, under new block ids.
    """
    client = Publisher()
    outbox = Outbox(store, client)
    (before,) = control.config_get("maxmemory").values()
    control.config_set("maxmemory", 1)
    try:
        outbox.try_publish()
        outbox.retry()
    finally:
        control.config_set("maxmemory", before)
    assert client.ids == ["c0", "c1", "c2"] and not store.list_output_names()
    assert store.list_recent_events() == []


def test_what_was_published_while_the_control_server_takes_no_writes_is_not_published_again(store, monkeypatch):
    client = Publisher()
    outbox = Outbox(store, client)

    def refuse(names, newest):
        raise WritesRefused("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "record_published", refuse)
        outbox.try_publish()
        outbox.retry()
        assert outbox.waiting == {"alert": 3}
    outbox.retry()
    assert client.ids == ["c0", "c1", "c2"] and not store.list_output_names()
    assert [event.id for event in store.list_recent_events()] == ["c2", "c1", "c0"]


def test_what_no_queue_takes_stays_and_is_tried_again(store):
    client = Publisher()
    outbox = Outbox(store, client)

    def refuse(queue, batches):
        raise NoContainerAvailable("every node is down")

    client.publish_batches = refuse
    outbox.try_publish()
    assert len(store.list_output_names()) == 1
    del client.publish_batches
    outbox.retry()
    assert client.ids == ["c0", "c1", "c2"] and not store.list_output_names()
    outbox.retry()
    assert len(client.ids) == 3


@pytest.mark.parametrize(
    "refusal", [QueuePaused("alert", "a disk is changed", 60), NoContainerAvailable("every node is full")]
)
def test_what_goes_to_a_queue_that_takes_nothing_waits_and_holds_nothing_else_back(store, monkeypatch, refusal):
    monkeypatch.setattr(outbox_module, "MAX_AT_ONCE", 1)  # the paused ones would fill every round
    event = {"id": "other", "time": 1.0, "type": "t", "source": "s", "attributes": {}}
    rows = pa.Table.from_batches([block.from_events([event], 0)]).combine_chunks()
    more = {"mail|2/1/0/1": rows.to_batches()[0]}
    store.write(2, WrittenState({"op/1": (b"state", None)}, outbox=more))
    client, paused = Publisher(), {"alert"}
    publish = client.publish_batches

    def refusing(queue, batches):
        if queue in paused:
            raise refusal
        publish(queue, batches)

    client.publish_batches = refusing
    outbox = Outbox(store, client)
    outbox.try_publish()
    assert client.ids == ["other"]
    assert [name.partition("|")[0] for name in store.list_output_names()] == ["alert"]
    assert outbox.waiting == {"alert": 3} and not outbox.is_full
    monkeypatch.setattr(outbox_module, "MAX_EVENTS", 3)
    assert outbox.is_full
    paused.clear()
    outbox.retry()
    assert outbox.waiting == {} and not outbox.is_full
    assert client.ids == ["other", "c0", "c1", "c2"] and not store.list_output_names()


def test_what_is_oldest_is_published_first_however_much_waits(store, monkeypatch):
    """For a pipeline that reads it, later complex events would make earlier ones late."""
    monkeypatch.setattr(outbox_module, "MAX_AT_ONCE", 3)
    client = Publisher()
    Outbox(store, client).publish()
    for batch in range(2, 30):
        event = {"id": str(batch), "time": 1.0, "type": "t", "source": "s", "attributes": {}}
        rows = pa.Table.from_batches([block.from_events([event], 0)]).combine_chunks().to_batches()[0]
        outbox = {format_outbox_name("alert", batch, "run", "1/0", rows): rows}
        store.write(batch, WrittenState({"op/1": (b"state", None)}, outbox=outbox))
    client.ids.clear()
    Outbox(store, client).publish()
    assert client.ids == [str(batch) for batch in range(2, 30)]


PAGES = """An error occurred while calling o325.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
{cause}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Caused by: java.lang.InterruptedException
"""


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("common.errors.BadInput: field: is wrong", "field: is wrong"),
        ("redis.exceptions.TimeoutError: Timeout reading", "redis.exceptions.TimeoutError: Timeout reading"),
        ("KeyError: 'weir:pipeline'", "KeyError: 'weir:pipeline'"),
        ("", "An error occurred while calling o325.collectToPython."),
    ],
)
def test_the_cause_is_found_in_the_pages_of_spark(cause, said):
    assert describe_error(RuntimeError(PAGES.format(cause=cause))) == said


def test_an_error_without_a_word_is_called_by_its_name():
    assert describe_error(RuntimeError()) == "RuntimeError"


def test_spark_is_given_a_sentence_and_what_failed_is_kept_as_it_was():
    class Work(BatchWork):
        def work(self):
            raise BadInput("field", "is wrong")

    work = Work()
    with pytest.raises(BatchFailed, match="field: is wrong") as emitted:
        work(None, 3)
    assert emitted.value.__cause__ is None and emitted.value.__suppress_context__
    assert isinstance(work.failure, BadInput)
