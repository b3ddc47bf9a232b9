"""A whole plant and a real collector (rotel): what arrives there, and what happens when it dies."""

import gzip
import json
import subprocess
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import rotel
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.plant.running_plant import RunningPlant
from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS, until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]
AGENT = Path(rotel.__file__).parent / "rotel-agent"
PATIENCE = 300.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "collector-key-4711"
MARKER = "an-event-says-4711"


class Receiver(ThreadingHTTPServer):
    """What the collector passes on: spans as (name, attributes, span), and the names of metrics."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.spans, self.metrics, self.text = [], set(), ""

    def named(self, name: str):
        return [(attributes, span) for each, attributes, span in list(self.spans) if each == name]


class _Request(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        if self.path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        else:
            self._take_metrics(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        self.server.text += str(request)
        for of_resource in request.resource_spans:
            for span in (each for scope in of_resource.scope_spans for each in scope.spans):
                attributes = {each.key: _value(each.value) for each in span.attributes}
                self.server.spans.append((span.name, attributes, span))

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for of_resource in request.resource_metrics:
            for scope in of_resource.scope_metrics:
                self.server.metrics.update(metric.name for metric in scope.metrics)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read what was taken."""


def _value(value):
    return getattr(value, value.WhichOneof("value"))


@pytest.fixture
def received():
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def collector(received, monkeypatch, tmp_path):
    """rotel, to which the plant of the test sends."""
    port = free_port()
    command = [str(AGENT), "start", "--otlp-http-endpoint", f"127.0.0.1:{port}"]
    command += ["--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}", "--disable-batching"]
    command += ["--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-compression", "none"]
    command += ["--otlp-exporter-endpoint", f"http://127.0.0.1:{received.server_address[1]}"]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-key={SECRET}")
    with (tmp_path / "rotel.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until(lambda: httpx.get(f"http://127.0.0.1:{port}/v1/traces").status_code)
            yield process
        finally:
            process.kill()
            process.wait()


def publish(plant: RunningPlant, token: str, headers: dict[str, str]) -> str:
    """Publish some events, and return the id of the request."""
    lines = "".join(json.dumps({"type": "alert", "text": MARKER}) + "\n" for _ in range(20))
    sent = httpx.post(
        f"{plant.url}/api/v1/queues/alert/events",
        content=lines,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson", **headers},
        timeout=MAX_SECONDS,
    )
    assert sent.status_code == 202, sent.text
    return sent.headers["X-Request-ID"]


def test_a_plants_spans_and_metrics_arrive_and_a_dead_collector_changes_nothing(received, collector):
    with RunningPlant() as plant:
        token = json.loads(plant.manage("token", "traced", "--role", "operator").stdout)["token"]
        request_id = publish(plant, token, {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"})
        shows_a_request_and_its_publish(received, request_id)
        shows_a_tick_with_its_decision(received, plant)
        shows_a_worker_that_a_tick_started(received)
        (attributes, _) = until(lambda: received.named("batch"), PATIENCE)[0]
        assert attributes["weir.application"] == "performance" and int(attributes["weir.batch"]) >= 0
        until(lambda: {"weir_queue_in_per_second", "weir_loop_age_seconds"} <= received.metrics, PATIENCE)
        assert not any(text in received.text for text in (MARKER, SECRET, token, plant.password))

        collector.kill()
        before = plant.wait_until(lambda seen: seen["queues"]["alert"]["containers"], PATIENCE, "alert is there")
        publish(plant, token, {})
        plant.wait_until(lambda seen: handled(seen) >= handled(before) + 20, PATIENCE, "events are handled")
        logs = plant.data / "logs"
        until(lambda: "spans were dropped" in (logs / "worker-control.log").read_text(), PATIENCE)


def handled(snapshot) -> int:
    containers = snapshot["queues"]["alert"]["containers"].values()
    return sum(each["removed_events"] or 0 for each in containers)


def shows_a_request_and_its_publish(received: Receiver, request_id: str) -> None:
    def of_the_trace(name: str):
        return [each for each in received.named(name) if each[1].trace_id.hex() == TRACE]

    name = "POST /api/v1/queues/<queue>/events"
    (attributes, request) = until(lambda: of_the_trace(name), PATIENCE)[0]
    assert attributes["weir.request"] == request_id and attributes["http.response.status_code"] == 202
    (attributes, publishing) = until(lambda: of_the_trace("publish"), PATIENCE)[0]
    assert publishing.parent_span_id == request.span_id
    assert (attributes["weir.queue"], attributes["weir.events"]) == ("alert", 20)


def shows_a_tick_with_its_decision(received: Receiver, plant: RunningPlant) -> None:
    (attributes, acting) = until(lambda: received.named("act"), PATIENCE)[0]
    (of_tick,) = until(
        lambda: [each for each in received.named("tick") if each[1].span_id == acting.parent_span_id], PATIENCE
    )
    assert int(of_tick[0]["weir.loops"]) >= 1
    within = {name for name, _, span in list(received.spans) if span.parent_span_id == of_tick[1].span_id}
    assert within == {"decide", "record", "act"}
    with closing(plant.log_in()) as person:
        shown = person.get(f"/ledger/{attributes['weir.decision']}/")
    assert shown.status_code == 200 and attributes["weir.loop"] in shown.text


def shows_a_worker_that_a_tick_started(received: Receiver) -> None:
    (attributes, worker) = until(lambda: received.named("workers.tasks.consume"), PATIENCE)[0]
    assert attributes["weir.queue"] and attributes["weir.node"] and attributes["weir.task"]
    until(lambda: [each for each in received.named("act") if each[1].span_id == worker.parent_span_id], PATIENCE)
