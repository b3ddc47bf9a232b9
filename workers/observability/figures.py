"""The figures of /metrics for a collector: the same families, converted to OpenTelemetry's."""

from collections.abc import Callable, Iterable, Sequence

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SentMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric

from workers.documents.snapshot import Snapshot
from workers.observability.collector import build_resource, create_metrics_sender
from workers.observability.unsent import Unsent

EVERY_SECONDS = 15.0
NANOSECONDS = 1_000_000_000
SCOPE = InstrumentationScope("weir")

Families = Callable[[Snapshot], Iterable[Metric]]


class FiguresSender:
    """Sends the figures of a snapshot every EVERY_SECONDS; only the newest waits."""

    def __init__(self, families: Families, send: Callable[[MetricsData], bool] | None = None) -> None:
        self._families, self._send, self._resource = families, send or create_metrics_sender(), build_resource()
        self._sent_at_seconds = 0.0
        self.unsent: Unsent[Snapshot] = Unsent("sets of metrics", self._send_snapshots, most=1, batch=1)

    def add(self, snapshot: Snapshot) -> None:
        """Add each second's snapshot if it is due; a clock that was set back does not stop this."""
        at_seconds = snapshot.at or 0.0
        if abs(at_seconds - self._sent_at_seconds) < EVERY_SECONDS:
            return
        self._sent_at_seconds = at_seconds
        self.unsent.put(snapshot)

    def _send_snapshots(self, snapshots: Sequence[Snapshot]) -> bool:
        return all(
            self._send(build_metrics_data(self._families(snapshot), snapshot.at or 0.0, self._resource))
            for snapshot in snapshots
        )


def build_metrics_data(families: Iterable[Metric], at_seconds: float, of: Resource) -> MetricsData:
    """Return each family under the name that /metrics gives its samples."""
    metrics = [_build_metric(family, round(at_seconds * NANOSECONDS)) for family in families if family.samples]
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=of, scope_metrics=[scope], schema_url="")])


def _build_metric(family: Metric, at_nanoseconds: int) -> SentMetric:
    points = [
        NumberDataPoint(
            attributes=dict(sample.labels),
            start_time_unix_nano=0,  # unknown: counters outlive this process
            time_unix_nano=at_nanoseconds,
            value=sample.value,
        )
        for sample in family.samples
    ]
    data: Gauge | Sum = Gauge(points)
    if family.type == "counter":
        data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return SentMetric(family.samples[0].name, family.documentation, "", data)
