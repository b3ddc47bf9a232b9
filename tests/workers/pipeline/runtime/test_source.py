"""The streaming sources wait for something to do, instead of being asked again and again."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import MAX_SECONDS, until
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.assignment import AssignedRange, Assignment, Dispatches
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import Result, ResultQueue
from workers.pipeline.runtime.source import AssignmentReader, ResultReader
from workers.pipeline.tiers.planned_batches import PlannedBatches

A_LONG_TIME_SECONDS = 600.0


@pytest.fixture
def options(control_server):
    controls = json.dumps(Controls().to_document())
    return {
        "control": control_server.url,
        "application": "app",
        "replica": "iap1",
        "replicas": "iap1",
        "controls": controls,
    }


def dispatch(control, tick: int) -> None:
    part = AssignedRange("telemetry/n1", "0-0", f"{tick}-0", 1)
    start, end = Cursor(tick=tick - 1), Cursor(tick=tick, watermark_us=tick)
    Dispatches(control, "app").commit(start, end, {"iap1": Assignment(tick, (part,), None, Controls())})


def publish(control, tick: int) -> None:
    results = ResultQueue(control, "app")
    results.publish(Result("iap1", tick, None, ()), results.begin("iap1", tick - 1, tick), 1)


def when_it_waits(control, ask, act):
    """What `ask` answers, where `act` comes while `ask` waits at the server: sooner than it waits for."""
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ask)
        until(lambda: any(each["cmd"] == "xread" for each in control.client_list()))
        act()
        return asked.result(MAX_SECONDS)


def test_a_replica_s_source_answers_when_something_is_dispatched(options, control):
    reader = AssignmentReader({**options, "wait_seconds": str(A_LONG_TIME_SECONDS)})
    start = reader.initialOffset()
    end = when_it_waits(control, lambda: reader.latestOffset(start, None), lambda: dispatch(control, 1))
    assert end == {"batch": 1}


def test_the_combiner_s_source_answers_when_a_result_is_published(options, control):
    dispatch(control, 1)
    reader = ResultReader({**options, "wait_seconds": str(A_LONG_TIME_SECONDS)})
    start = reader.initialOffset()
    end = when_it_waits(control, lambda: reader.latestOffset(start, None), lambda: publish(control, 1))
    assert end == {"batch": 1}
    assert PlannedBatches(control, "app").load().offset.watermark_us == 1


def test_a_planned_batch_is_started_until_it_is_finished(options, control):
    dispatch(control, 1)
    publish(control, 1)
    reader, batches = ResultReader(options), PlannedBatches(control, "app")
    first = reader.latestOffset(reader.initialOffset(), None)
    planned = batches.load()
    again = reader.latestOffset(first, None)
    assert (first, again) == ({"batch": 1}, {"batch": 2})
    assert batches.load() == planned
    batches.finish(planned)
    assert reader.latestOffset(again, None) is again


def test_a_replica_starts_batches_until_its_assignments_are_published(options, control):
    """Whatever Spark has recorded: if the control server loses its newest writes, the batch is made again."""
    reader = AssignmentReader(options)
    dispatch(control, 1)
    assert reader.latestOffset({"batch": 7}, None) == {"batch": 8}
    assert reader.latestOffset({"batch": 8}, None) == {"batch": 9}
    publish(control, 1)
    done = {"batch": 9}
    assert reader.latestOffset(done, None) is done


def test_a_source_without_anything_to_do_answers_what_it_was_asked_with(options):
    for kind in (AssignmentReader, ResultReader):
        for wait_seconds in ("0", "0.05"):
            reader = kind({**options, "wait_seconds": wait_seconds})
            start = reader.initialOffset()
            assert reader.latestOffset(start, None) is start
