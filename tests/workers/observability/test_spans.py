"""A span says what a process did, with the ids of its log lines, and nothing that must stay in the plant."""

import json
import logging
import subprocess
import sys

import pytest
from celery.signals import before_task_publish

from common import environment as variables
from common import logs
from common.errors import BadInput
from console.celery import app
from tests.workers.observability.collected import Collected
from workers.observability.spans import note, span
from workers.pipeline.tiers.batch_work import BatchFailed, BatchWork


@pytest.fixture
def collected(monkeypatch):
    return Collected.instead_of_a_real_one(monkeypatch)


def trace_of(each) -> str:
    return f"{each.context.trace_id:032x}"


def test_without_a_collector_nothing_is_imported_nor_by_redis_and_the_ids_are_logged_all_the_same():
    program = (
        "import sys, json\nimport queues\nfrom common import logs\nimport redis\n"
        "from workers.observability.spans import span, note, carry\n"
        "with span('tick', loop='flow/a'):\n    note({'weir.decision': 1})\n    carry(headers := {})\n"
        "    ids = dict(logs.get_context_ids())\n"
        "imported = [each for each in sys.modules if each.startswith('opentelemetry.')]\n"
        "print(json.dumps([ids, headers, imported]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={})
    assert json.loads(done.stdout) == [{"loop": "flow/a"}, {}, []]


def test_spans_nest_and_have_the_ids_of_the_log(collected, caplog):
    caplog.handler.addFilter(logs.Ids())
    with span("tick", loop="flow/a"):
        note({"weir.decision": 12})
        with span("act", decision=12):
            logging.getLogger("weir.control").warning("acts")
    act, tick = collected.spans()
    assert dict(tick.attributes) == {"weir.loop": "flow/a", "weir.decision": 12}
    assert dict(act.attributes) == {"weir.loop": "flow/a", "weir.decision": "12"}
    assert act.parent.span_id == tick.context.span_id
    (line,) = caplog.records
    assert line.ids == {"loop": "flow/a", "decision": "12", "trace": trace_of(act)}


def test_an_error_is_named_by_its_type_and_never_quoted(collected):
    with pytest.raises(ValueError), span("advance plan", plan=7):
        raise ValueError("the event {'card': '4711'}")
    (found,) = collected.spans()
    assert found.status.description == "ValueError" and "4711" not in found.to_json()


def test_a_task_belongs_to_the_trace_of_who_sends_it(collected):
    @app.task(name="tests.traced")
    def traced():
        with span("within"):
            pass

    sent: dict[str, object] = {}
    with span("GET /"):
        before_task_publish.send(sender="tests.traced", headers=sent)  # as Celery does
    traced.push_request(id="t-1", **sent)  # as its worker does
    try:
        traced()
    finally:
        traced.pop_request()
    task, within, request = (collected.named(name) for name in ("tests.traced", "within", "GET /"))
    assert trace_of(task) == trace_of(within) == trace_of(request)
    assert task.parent.span_id == request.context.span_id and task.attributes["weir.task"] == "t-1"


def test_a_batch_is_a_span_with_its_application_and_number(collected):
    class Failing(BatchWork):
        ids = {"application": "performance", "replica": "iap1"}

        def work(self, events, batch):
            raise ValueError("of an event")

    with pytest.raises(BatchFailed):
        Failing()(None, 3)
    (found,) = collected.spans()
    assert dict(found.attributes) == {"weir.application": "performance", "weir.replica": "iap1", "weir.batch": "3"}
    assert found.status.description == "BatchFailed"


@pytest.mark.parametrize(
    "address", ["collector:4318", "ftp://collector", "http://", "http://me:hush@collector:4318", "http://c:x"]
)
def test_a_malformed_address_is_refused_by_its_variable_and_not_quoted(address):
    with pytest.raises(BadInput) as caught:
        variables.OTLP_ENDPOINT.get_address({variables.OTLP_ENDPOINT.name: address})
    assert caught.value.field == "OTEL_EXPORTER_OTLP_ENDPOINT" and "hush" not in str(caught.value)
