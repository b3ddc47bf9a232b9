"""The newest snapshot as Prometheus metrics. Unknown values are left out, never written as 0."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.stored_document import StoredDocument
from queues.nodes.node_state import STATES
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, SubjectState

TOTALS = {
    "in_per_second": "Events published per second",
    "out_per_second": "Events processed per second",
    "latency_p95_seconds": "95th percentile of the time from publish to acknowledgment",
    "backlog_events": "Events waiting",
    "backlog_seconds": "Wait of the oldest event of all queues in seconds",
    "shed_share": "Share of events shed",
    "console_available": "1 if the console responds, else 0",
    "nodes_in_use": "Online nodes",
    "workers_busy": "Busy workers",
    "workers_at_work": "Busy workers, averaged over 1 s",
    "worker_slots": "Maximum number of workers at once",
    "dead_letters": "Dead letter events",
}
QUEUE = {
    "in_per_second": "Events published per second",
    "out_per_second": "Events processed per second",
    "waiting_events": "Events waiting",
    "waiting_bytes": "Bytes waiting",
    "wait_seconds": "Wait of the oldest event in seconds",
    "oldest_seconds": "Age of the oldest waiting event",
    "latency_p95_seconds": "95th percentile of the time from publish to acknowledgment",
    "dead_letters": "Dead letter events",
    "retry_blocks": "Blocks waiting for a retry",
}
NODE = {
    "utilisation": "Smoothed utilization, share of capacity",
    "age_seconds": "Seconds since the last heartbeat",
    "memory_bytes": "Memory used",
    "points": "Points, out of 1000 per queue",
    "in_per_second": "Events in per second",
    "out_per_second": "Events out per second",
}
CONTAINER_COUNTERS = {"inserted_events": "Events inserted", "removed_events": "Events removed"}
HOST = {
    "slots": "Maximum number of workers at once",
    "busy": "Busy workers",
    "age_seconds": "Seconds since the last report",
}
GROUP = {
    "lag_events": "Events that the consumer group has not read yet",
    "lag_seconds": "Age of the next event of the consumer group",
    "in_per_second": "Events appended per second",
    "out_per_second": "Events read per second",
}
PIPELINE = {
    "batch": "Number of the last batch",
    "in_per_second": "Events read per second",
    "kept_per_second": "Events per second that passed the filters",
    "alerts_per_second": "Complex events per second",
    "batch_seconds": "Duration of the last batch",
    "watermark_lag_seconds": "Age of the watermark",
    "waiting_events": "Events waiting",
}

Rows = Iterable[tuple[tuple[str, ...], StoredDocument]]


class SnapshotCollector:
    """Converts one snapshot to metric families, `weir_{what}_{figure}`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        yield GaugeMetricFamily("weir_snapshot_timestamp_seconds", "Time of the observation", snapshot.at)
        yield from _iterate_gauges("plant", TOTALS, (), [((), snapshot.totals)])
        yield from _iterate_gauges("queue", QUEUE, ("queue",), _build_named_rows(snapshot.queues))
        yield from _iterate_gauges("node", NODE, ("node",), _build_named_rows(snapshot.nodes))
        yield _build_node_state_metric(snapshot.nodes)
        yield from _iterate_counters(snapshot.queues)
        yield from _iterate_gauges("host", HOST, ("host",), _build_named_rows(snapshot.hosts))
        yield from _iterate_gauges("pipeline", PIPELINE, (), [((), snapshot.pipeline)])
        yield from _iterate_gauges("consumer_group", GROUP, ("plant", "group"), _build_group_rows(snapshot))
        yield from _iterate_loop_metrics(snapshot)
        yield _build_severity_metric(snapshot.states)
        yield _build_alert_metric(snapshot)
        yield _build_part_metric(snapshot)


def render_exposition(snapshot: Snapshot | None, beside: Iterable[Metric] = ()) -> bytes:
    """Return the Prometheus text of the snapshot and of the families `beside` it.

    Without a snapshot the plant's part is only `weir_snapshot_present 0`.
    """
    registry = CollectorRegistry()
    present = GaugeMetricFamily("weir_snapshot_present", "1 if there is a snapshot", snapshot is not None)
    registry.register(_OutputSample([present, *beside]))
    if snapshot is not None:
        registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry)


class _OutputSample:
    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return self.families


def _build_named_rows(rows: Mapping[str, StoredDocument]) -> Rows:
    return [((name,), row) for name, row in rows.items()]


def _build_group_rows(snapshot: Snapshot) -> Rows:
    return [((plant, name), group) for plant, row in snapshot.plants.items() for name, group in row.live_groups.items()]


def _iterate_gauges(what: str, figures: Mapping[str, str], labels: tuple[str, ...], rows: Rows) -> Iterator[Metric]:
    for figure, text in figures.items():
        family = GaugeMetricFamily(f"weir_{what}_{figure}", text, labels=labels)
        for values, row in rows:
            if (value := getattr(row, figure)) is not None:
                family.add_metric(values, value)
        yield family


def _build_node_state_metric(nodes: Mapping[str, NodeStatus]) -> Metric:
    family = GaugeMetricFamily("weir_node_state", "1 for the current state of a node", labels=("node", "state"))
    for name, node in nodes.items():
        for state in STATES:
            family.add_metric((name, state), float(node.state == state))
    return family


def _iterate_loop_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    families = {
        "age_seconds": "Seconds since the last decision",
        "interval_seconds": "Seconds between decisions",
        "late_seconds": "Delay of the last tick",
        "blind": "1 if there is no valid measurement",
        "overrides": "Overrides in force",
    }
    for figure, text in families.items():
        family = GaugeMetricFamily(f"weir_loop_{figure}", text, labels=("loop", "law"))
        for name, loop in snapshot.loops.items():
            if (value := _collect_loop_figures(loop, figure, snapshot.at)) is not None:
                family.add_metric((name, loop.law), value)
        yield family
    modes = GaugeMetricFamily("weir_loop_mode", "1 for the current mode of a loop", labels=("loop", "mode"))
    for name, loop in snapshot.loops.items():
        modes.add_metric((name, loop.mode), 1.0)
    yield modes


def _collect_loop_figures(loop: LoopStatus, figure: str, now: float | None) -> float | None:
    if figure == "age_seconds":
        return None if loop.at is None or now is None else max(0.0, now - loop.at)
    if figure == "blind":
        return float(loop.blind_since is not None)
    value: float | None = getattr(loop, figure)
    return value


def _build_severity_metric(states: Mapping[str, SubjectState]) -> Metric:
    """Return the evaluated state of each subject, as pages, lists, and alerts show it."""
    text = "Severity of a subject's state: " + ", ".join(f"{at} {name}" for at, name in enumerate(SEVERITIES))
    family = GaugeMetricFamily("weir_subject_severity", text, labels=("kind", "name"))
    for state in states.values():
        family.add_metric((state.kind, state.name), SEVERITIES.index(state.severity))
    return family


def _build_alert_metric(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("weir_alerts", "Open alerts that no other alert explains", labels=("severity",))
    for severity in SEVERITIES[2:]:
        of_it = [alert for alert in snapshot.alerts if alert.severity == severity and alert.under is None]
        family.add_metric((severity,), len(of_it))
    return family


def _build_part_metric(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("weir_part_up", "1 if the part is running or starting", labels=("part",))
    for name, part in snapshot.parts.items():
        family.add_metric((name,), float(part.state in ("running", "starting")))
    return family


def _iterate_counters(queues: Mapping[str, QueueStatus]) -> Iterator[Metric]:
    for figure, text in CONTAINER_COUNTERS.items():
        family = CounterMetricFamily(f"weir_container_{figure}", text, labels=("queue", "node"))
        for queue, row in queues.items():
            for node, container in row.containers.items():
                if (value := getattr(container, figure)) is not None:
                    family.add_metric((queue, node), value)
        yield family
