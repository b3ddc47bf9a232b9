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
    results.publish(Result("iap1", tick, None, ()), results.begin("iap1", tick), 1)


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
    assert end == {"from": 1, "tick": 1}


def test_the_combiner_s_source_answers_when_a_result_is_published(options, control):
    dispatch(control, 1)
    reader = ResultReader({**options, "wait_seconds": str(A_LONG_TIME_SECONDS)})
    start = reader.initialOffset()
    end = when_it_waits(control, lambda: reader.latestOffset(start, None), lambda: publish(control, 1))
    assert end["watermark_us"] == 1


def test_a_source_without_anything_to_do_answers_what_it_was_asked_with(options):
    for kind in (AssignmentReader, ResultReader):
        for wait_seconds in ("0", "0.05"):
            reader = kind({**options, "wait_seconds": wait_seconds})
            start = reader.initialOffset()
            assert reader.latestOffset(start, None) is start
