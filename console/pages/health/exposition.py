"""The newest snapshot as Prometheus metrics. Unknown values are left out, never written as 0."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from common.stored_document import StoredDocument, list_figures
from queues.nodes.node_state import STATES
from workers.documents.consumer_groups import ConsumerGroup
from workers.documents.hosts import HostStatus
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.documents.pipeline import PipelineStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import PlantTotals, Snapshot
from workers.documents.states import SEVERITIES

FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
Rows = Iterable[tuple[tuple[str, ...], StoredDocument]]


class SnapshotCollector:
    """Converts one snapshot to metric families, `weir_{what}_{figure}`, as its documents declare them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        snapshot = self.snapshot
        yield GaugeMetricFamily("weir_snapshot_timestamp_seconds", "Time of the observation", snapshot.at)
        yield from _iterate_families("plant", PlantTotals, (), [((), snapshot.totals)])
        yield from _iterate_families("queue", QueueStatus, ("queue",), _build_named_rows(snapshot.queues))
        yield from _iterate_families("node", NodeStatus, ("node",), _build_named_rows(snapshot.nodes))
        node_states = GaugeMetricFamily(
            "weir_node_state", "1 for the current state of a node", labels=("node", "state")
        )
        for name, node in snapshot.nodes.items():
            for state in STATES:
                node_states.add_metric((name, state), float(node.state == state))
        yield node_states
        containers = [
            ((queue, node), container)
            for queue, status in snapshot.queues.items()
            for node, container in status.containers.items()
        ]
        yield from _iterate_families("container", ContainerStatus, ("queue", "node"), containers)
        yield from _iterate_families("host", HostStatus, ("host",), _build_named_rows(snapshot.hosts))
        yield from _iterate_families("pipeline", PipelineStatus, (), [((), snapshot.pipeline)])
        groups = [
            ((plant, name), group) for plant, row in snapshot.plants.items() for name, group in row.live_groups.items()
        ]
        yield from _iterate_families("consumer_group", ConsumerGroup, ("plant", "group"), groups)
        yield from _iterate_loop_metrics(snapshot)
        # The evaluated state of each subject, as pages, lists, and alerts show it.
        text = "Severity of a subject's state: " + ", ".join(f"{at} {name}" for at, name in enumerate(SEVERITIES))
        severities = GaugeMetricFamily("weir_subject_severity", text, labels=("kind", "name"))
        for subject in snapshot.states.values():
            severities.add_metric((subject.kind, subject.name), SEVERITIES.index(subject.severity))
        yield severities
        alerts = GaugeMetricFamily("weir_alerts", "Open alerts that no other alert explains", labels=("severity",))
        unexplained = [alert.severity for alert in snapshot.alerts if alert.under is None]
        for severity in SEVERITIES[2:]:
            alerts.add_metric((severity,), unexplained.count(severity))
        yield alerts
        parts = GaugeMetricFamily("weir_part_up", "1 if the part is running or starting", labels=("part",))
        for name, part in snapshot.parts.items():
            parts.add_metric((name,), float(part.state in ("running", "starting")))
        yield parts


def render_exposition(snapshot: Snapshot | None, beside: Iterable[Metric] = ()) -> bytes:
    """Return the Prometheus text of the snapshot and of the families `beside` it.

    Without a snapshot the plant's part is only `weir_snapshot_present 0`.
    """
    registry = CollectorRegistry()
    present = GaugeMetricFamily("weir_snapshot_present", "1 if there is a snapshot", snapshot is not None)
    registry.register(_OtherFamilies([present, *beside]))
    if snapshot is not None:
        registry.register(SnapshotCollector(snapshot))
    return generate_latest(registry)


class _OtherFamilies:
    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> list[Metric]:
        return self.families


def _build_named_rows(rows: Mapping[str, StoredDocument]) -> Rows:
    return [((name,), row) for name, row in rows.items()]


def _iterate_families(what: str, kind: type[StoredDocument], labels: tuple[str, ...], rows: Rows) -> Iterator[Metric]:
    for figure in list_figures(kind):
        family = FAMILIES[figure.metric](f"weir_{what}_{figure.name}", figure.help, labels=labels)
        for values, row in rows:
            if (value := getattr(row, figure.name)) is not None:
                family.add_metric(values, value)
        yield family


def _iterate_loop_metrics(snapshot: Snapshot) -> Iterator[Metric]:
    labels = ("loop", "law")
    ages = GaugeMetricFamily("weir_loop_age_seconds", "Seconds since the last decision", labels=labels)
    blind = GaugeMetricFamily("weir_loop_blind", "1 if there is no valid measurement", labels=labels)
    modes = GaugeMetricFamily("weir_loop_mode", "1 for the current mode of a loop", labels=("loop", "mode"))
    for name, loop in snapshot.loops.items():
        if loop.at is not None and snapshot.at is not None:
            ages.add_metric((name, loop.law), max(0.0, snapshot.at - loop.at))
        blind.add_metric((name, loop.law), float(loop.blind_since is not None))
        modes.add_metric((name, loop.mode), 1.0)
    rows = [((name, loop.law), loop) for name, loop in snapshot.loops.items()]
    yield from (ages, *_iterate_families("loop", LoopStatus, labels, rows), blind, modes)
