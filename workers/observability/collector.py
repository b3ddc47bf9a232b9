"""The OpenTelemetry collector: the destination of spans and metrics, over OTLP/HTTP.

The administrator of the host sets its address in the environment (OTEL_EXPORTER_OTLP_ENDPOINT), and no page does; so it
may be on this host, like the mail server. As with addresses that people enter (`workers.host.egress`), redirects are
not followed and proxies of the environment are not used.

Nothing waits for it: `workers.observability.unsent` keeps what is to be sent.
"""

import atexit
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from common import environment as variables
from workers.observability.unsent import Unsent

SEND_SECONDS = 5.0
END_SECONDS = 1.0  # maximum time that an ending process waits for a collector
# `Unsent` logs once a minute what these would log at every try.
logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)


def create_session() -> requests.Session:
    """Return a session that follows no redirect, and uses neither a proxy nor .netrc."""
    made = requests.Session()
    made.trust_env = False
    made.max_redirects = 0
    return made


def build_resource() -> Resource:
    """Return the resource that identifies this process as its log lines do, with OTEL_RESOURCE_ATTRIBUTES."""
    return Resource.create(
        {
            "service.name": variables.OTLP_SERVICE.get_text(),
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
            "weir.process": Path(sys.argv[0]).stem or "python",
        }
    )


def create_metrics_sender() -> Callable[[MetricsData], bool]:
    """Return this process's sender, which returns whether metrics were accepted."""
    exporter = OTLPMetricExporter(session=create_session(), timeout=SEND_SECONDS)
    return lambda data: exporter.export(data) is MetricExportResult.SUCCESS


class _UnsentProcessor(SpanProcessor):
    """Puts each sampled span into `Unsent` when it ends."""

    def __init__(self, unsent: Unsent[ReadableSpan]) -> None:
        self._unsent = unsent

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._unsent.put(span)


class Collector:
    """Spans of this process, and the buffer where they wait to be sent."""

    def __init__(self, unsent: Unsent[ReadableSpan]) -> None:
        self.unsent = unsent
        self._provider = TracerProvider(resource=build_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(_UnsentProcessor(unsent))
        self._tracer = self._provider.get_tracer("weir")
        self._format = TraceContextTextMapPropagator()

    @classmethod
    def open(cls) -> "Collector":
        """Open the collector of the environment. Waiting spans are sent when the process ends, within END_SECONDS."""
        exporter = OTLPSpanExporter(session=create_session(), timeout=SEND_SECONDS)

        def send(spans: Sequence[ReadableSpan]) -> bool:
            return exporter.export(spans) is SpanExportResult.SUCCESS

        made = cls(Unsent("spans", send))
        atexit.register(made.unsent.end, END_SECONDS)
        return made

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str], parent: Mapping[str, object] | None) -> Iterator[str]:
        """Record a span; yield the trace's id. An exception within sets its status, by type alone."""
        # Names in lower case, and only those that W3C Trace Context reads.
        headers = {name.lower(): value for name, value in (parent or {}).items()}
        known = {name: headers[name] for name in ("traceparent", "tracestate") if isinstance(headers.get(name), str)}
        context = None if parent is None else self._format.extract(known)
        with self._tracer.start_as_current_span(
            name, context, attributes=dict(attributes), record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield trace.format_trace_id(span.get_span_context().trace_id)
            except BaseException as error:
                span.set_status(trace.StatusCode.ERROR, type(error).__name__)
                raise

    def note(self, attributes: Mapping[str, str | int | float | bool], name: str) -> None:
        span = trace.get_current_span()
        span.set_attributes(dict(attributes))
        if name:
            span.update_name(name)

    def carry(self, headers: MutableMapping[str, object]) -> None:
        self._format.inject(headers)
