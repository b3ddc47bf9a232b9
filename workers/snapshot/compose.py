"""Composition of the snapshot (`workers.documents.snapshot`) from readings and observations.

Unknown is None.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from common.stored_document import copy_shared_values, replace_fields
from queues.events.block import COLUMNS, MAX_VALUE_LENGTH, MAX_VALUES
from queues.nodes.heartbeat import ContainerCounters, Membership
from queues.nodes.node_state import OFFLINE, SILENT
from queues.topology import NodeSpec, QueueSpec
from workers.consumer.destination import get_destination_name
from workers.consumer.handler import get_sink_name
from workers.consumer.work_report import Latencies
from workers.documents.hosts import HostStatus, WorkerHost
from workers.documents.loops import LoopStatus, OverrideStatus
from workers.documents.nodes import NodeStatus
from workers.documents.pipeline import NOT_REPORTING, PipelineFigures, PipelineStatus
from workers.documents.queues import ContainerStatus, DestinationStatus, EventSample, ProducerStatus, QueueStatus
from workers.documents.snapshot import PlantTotals, Snapshot
from workers.models import Loop
from workers.snapshot.destinations import build_destination_status
from workers.snapshot.readings import Readings, Workers
from workers.steering import scope

PRODUCER_SHOWN_SECONDS = 300.0
HOST_SHOWN_SECONDS = 10.0
MAX_SAMPLES = 50
PIPELINE_OFFLINE_SECONDS = 10.0
TAIL = 0.95
Number = TypeVar("Number", int, float)
# For each counter, the part that was only transferred between nodes.
MOVED_BY = {"inserted_events": "received_events", "removed_events": "sent_events"}


@dataclass(frozen=True, slots=True)
class Watch:
    """The ages of heartbeats at one instant of the watcher's monotonic clock."""

    membership: Membership
    now_seconds: float

    def compute_age_seconds(self, node: str) -> float | None:
        """Return the age of its last heartbeat; None when none was certainly received."""
        age_seconds = self.membership.compute_age_seconds(node, self.now_seconds)
        return None if age_seconds is None else round(age_seconds, 3)

    def is_offline(self, node: str) -> bool:
        """Return whether no heartbeat was received for three intervals, or ever."""
        return self.membership.is_offline(node, self.now_seconds)

    def is_stale(self, node: str) -> bool:
        """Return whether no heartbeat came for two intervals; one from before the watch does not count."""
        return self.compute_age_seconds(node) is None or self.membership.is_stale(node, self.now_seconds)


@dataclass(frozen=True, slots=True)
class SnapshotInputs:
    """Readings and derived values.

    They are ages in seconds by (kind, name) of hosts, producers, and pipeline, rates per second by counter name, and
    recent latencies by queue.
    """

    readings: Readings
    watch: Watch
    ages: Mapping[tuple[str, str], float]
    rates: Mapping[str, float | None]
    recent: Mapping[str, Latencies]


def compose(inputs: SnapshotInputs, loops: dict[str, LoopStatus], overrides: list[OverrideStatus]) -> Snapshot:
    """Compose a snapshot from the inputs and the control record; other parts have their defaults."""
    topology = inputs.readings.topology
    queues = {name: _queue(inputs, spec) for name, spec in topology.queues.items()}
    nodes = {name: _build_node_status(inputs, spec, queues) for name, spec in topology.nodes.items()}
    hosts = {}
    for name, host in sorted(inputs.readings.hosts.items()):
        age = inputs.ages["host", name]
        if age <= HOST_SHOWN_SECONDS:
            hosts[name] = HostStatus(**copy_shared_values(host, WorkerHost), age_seconds=age)
    snapshot = Snapshot(
        totals=_compute_totals(inputs, queues, nodes, hosts),
        producers=_build_producer_statuses(inputs),
        queues=queues,
        destinations=_build_destination_statuses(inputs, queues),
        nodes=nodes,
        hosts=hosts,
        pipeline=_build_pipeline_status(inputs),
        loops=loops,
        overrides=overrides,
    )
    return add_stops(snapshot)


def add_stops(snapshot: Snapshot) -> Snapshot:
    """Add people's pauses, drains, and holds of circuits where they are displayed.

    The loops of a pause or a drain hold, whatever their mode.
    """
    rows = snapshot.overrides
    if holds := scope.list_circuit_holds(rows):
        held = {name: replace_fields(row, circuit_hold=holds.get(name)) for name, row in snapshot.queues.items()}
        snapshot = replace_fields(snapshot, queues=held)
    queues = {name: scope.list_pauses(name, rows) for name in snapshot.queues}
    hosts = {name: scope.drain_of(name, rows) for name in snapshot.hosts}
    if not (any(queues.values()) or any(hosts.values())):
        return snapshot
    snapshot = replace_fields(
        snapshot,
        queues={name: replace_fields(row, pauses=queues[name]) for name, row in snapshot.queues.items()},
        hosts={name: replace_fields(row, draining=hosts[name]) for name, row in snapshot.hosts.items()},
    )
    loops = {
        name: replace_fields(row, mode=Loop.Mode.HOLD.value) if scope.explain_hold(row.target, snapshot) else row
        for name, row in snapshot.loops.items()
    }
    return replace_fields(snapshot, loops=loops)


def total(values: Iterable[Number | None]) -> Number | None:
    """Return the sum of the known values; None when none is known."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def find_longest_time(seconds: Iterable[float | None]) -> float | None:
    """Return the maximum of the known values; None when none is known."""
    return max((second for second in seconds if second is not None), default=None)


def wait_seconds(waiting_events: int | None, oldest_seconds: float | None) -> float | None:
    """Return how long the oldest event has waited: 0 when none waits, None when unknown.

    This is measured. The backlog divided by the output rate (`clearing_seconds`) is a forecast and is meaningless at a
    low output: with one event that left in 15 s, the next would wait 15 s, and 30,000 events five days.
    """
    return 0.0 if waiting_events == 0 else oldest_seconds


def _queue(inputs: SnapshotInputs, spec: QueueSpec) -> QueueStatus:
    left = [  # nodes that only have a rest of its events
        node
        for node, beat in inputs.readings.heartbeats.items()
        if node in inputs.readings.topology.nodes and _count_waiting(beat.containers.get(spec.name))
    ]
    containers = {node: _build_container_status(inputs, spec, node) for node in sorted({*spec.points, *left})}
    rows = list(containers.values())
    out_per_second = total(row.out_per_second for row in rows)
    waiting_events = total(row.waiting_events for row in rows)
    oldest_seconds = find_longest_time(row.oldest_seconds for row in rows)
    # At the present rate (Little's law); unknown while nothing leaves.
    clearing_seconds = 0.0 if waiting_events == 0 else None
    if waiting_events is not None and out_per_second:
        clearing_seconds = round(waiting_events / out_per_second, 3)
    workers_at_once, service_seconds = _work(inputs, spec)
    latencies = inputs.recent.get(spec.name)
    return QueueStatus(
        kind=spec.kind,
        handler=spec.handler if spec.kind == "jobs" else None,
        sink=get_sink_name(spec.handler, spec.handler_options) if spec.kind == "jobs" else None,
        destination=_get_destination(spec),
        priority=spec.priority,
        minimum_containers=spec.minimum_containers,
        requirements=list(spec.requirements),
        durability=spec.durability,
        ordinary_weight=inputs.readings.ordinary_weights.get(spec.name),
        active_keys=_estimate_active_keys(inputs, spec.name),
        in_per_second=total(row.in_per_second for row in rows),
        out_per_second=out_per_second,
        waiting_events=waiting_events,
        waiting_bytes=total(row.waiting_bytes for row in rows),
        wait_seconds=wait_seconds(waiting_events, oldest_seconds),
        clearing_seconds=clearing_seconds,
        oldest_seconds=oldest_seconds,
        latency_p95_seconds=latencies.quantile(TAIL) if latencies else None,
        dead_letters=total(row.dead_letters for row in rows),
        retry_blocks=total(row.retry_blocks for row in rows),
        workers_at_once=workers_at_once,
        service_seconds=service_seconds,
        containers=containers,
    )


def _estimate_active_keys(inputs: SnapshotInputs, queue: str) -> int | None:
    """Return the number of keys of a fair queue. Producers often have the same keys, so the largest number counts."""
    if queue not in inputs.readings.ordinary_weights:
        return None
    samples = [
        report.sample
        for (producer, of_queue), report in inputs.readings.producers.items()
        if of_queue == queue and inputs.ages["producer", f"{producer}|{queue}"] <= PRODUCER_SHOWN_SECONDS
    ]
    return max((sample.keys for sample in samples if sample and sample.keys is not None), default=None)


def _get_destination(spec: QueueSpec) -> str | None:
    return (get_destination_name(spec.handler, spec.handler_options) or None) if spec.kind == "jobs" else None


def _build_destination_statuses(
    inputs: SnapshotInputs, queues: Mapping[str, QueueStatus]
) -> dict[str, DestinationStatus]:
    """Return what handlers have called recently, with the queues that share it."""
    return {
        name: build_destination_status(state, [queue for queue, row in queues.items() if row.destination == name])
        for name, state in sorted(inputs.readings.destinations.items())
    }


def _work(inputs: SnapshotInputs, spec: QueueSpec) -> tuple[float | None, float | None]:
    """Return the mean number of busy workers, and their time per event; unknown where none is busy."""

    def sum_rates(counter: str) -> float | None:
        return total(inputs.rates.get(f"{spec.name}@{node}.{counter}") for node in spec.points)

    busy_ms, events = sum_rates("busy_ms"), sum_rates("events")
    at_once = None if busy_ms is None else round(busy_ms / 1_000, 3)
    return at_once, busy_ms / 1_000 / events if busy_ms and events else None


def _count_waiting(counters: ContainerCounters | None) -> int | None:
    return counters.inserted_events - counters.removed_events if counters else None


def count_work(counters: ContainerCounters, name: str) -> int:
    """Return the events that producers inserted, or workers removed or gave up, without transfers."""
    moved: int = getattr(counters, MOVED_BY[name]) if name in MOVED_BY else 0
    whole: int = getattr(counters, name)
    return whole - moved


def _build_container_status(inputs: SnapshotInputs, spec: QueueSpec, node: str) -> ContainerStatus:
    heartbeat = inputs.readings.heartbeats.get(node)
    counters = heartbeat.containers.get(spec.name) if heartbeat else None
    read = counters or ContainerCounters()
    workers = inputs.readings.containers.get((spec.name, node), Workers())
    in_per_second = _get_rate(inputs, node, f"{spec.name}@{node}.inserted_events")
    server_time_share = None if inputs.watch.is_offline(node) else read.server_time_share
    oldest_seconds, age = read.oldest_seconds, inputs.watch.compute_age_seconds(node)
    if oldest_seconds is not None and age is not None and inputs.watch.is_stale(node):
        oldest_seconds = round(oldest_seconds + age, 3)  # it gets older at a silent node, too
    inserted, removed = read.inserted_bytes, read.removed_bytes
    return ContainerStatus(
        points=spec.points.get(node, 0),
        waiting_events=_count_waiting(counters),
        waiting_bytes=None if inserted is None or removed is None else inserted - removed,
        in_per_second=in_per_second,
        out_per_second=_get_rate(inputs, node, f"{spec.name}@{node}.removed_events"),
        dead_per_second=_get_rate(inputs, node, f"{spec.name}@{node}.dead_events"),
        load=_load(inputs, node, in_per_second, server_time_share),
        server_time_share=server_time_share,
        oldest_seconds=oldest_seconds,
        inserted_events=count_work(counters, "inserted_events") if counters else None,
        removed_events=count_work(counters, "removed_events") if counters else None,
        leaving_blocks=read.leaving_blocks,
        leaving_letters=read.leaving_letters,
        dead_letters=read.dead_letters,
        dead_error=read.dead_error,
        retry_blocks=read.retry_blocks,
        waiting_to_run=workers.waiting_to_run,
        workers_started=workers.counts.get("started", 0),
        workers_busy=workers.busy,
        trouble=workers.last_error,
    )


def _load(
    inputs: SnapshotInputs, node: str, in_per_second: float | None, server_time_share: float | None
) -> float | None:
    """Return the container's share of its node's capacity: of events/s or of the server's core.

    The larger of the two counts. Like a node's utilization, a container's load is the maximum of its parts; memory is
    left out, because it follows the backlog and not the arrivals.
    """
    if in_per_second is None or node not in inputs.readings.topology.nodes:
        return None
    events = in_per_second / inputs.readings.topology.nodes[node].capacity.events_per_second
    return round(max(events, server_time_share or 0.0), 6)


def _get_rate(inputs: SnapshotInputs, node: str, counter: str) -> float | None:
    """Return a counter's rate, which is unknown for an offline node.

    The counters of such a node do not change because they are not read.
    """
    return None if inputs.watch.is_offline(node) else inputs.rates.get(counter)


def _build_node_status(inputs: SnapshotInputs, spec: NodeSpec, queues: Mapping[str, QueueStatus]) -> NodeStatus:
    heartbeat = inputs.readings.heartbeats.get(spec.name)
    mine = [queue.containers[spec.name] for queue in queues.values() if spec.name in queue.containers]
    last_state = heartbeat.state if heartbeat else None
    unreadable = inputs.readings.unreadable_nodes.get(spec.name)
    return NodeStatus(
        state=OFFLINE if last_state and inputs.watch.is_offline(spec.name) else last_state,
        stale=unreadable is not None or inputs.watch.is_stale(spec.name),
        age_seconds=inputs.watch.compute_age_seconds(spec.name),
        utilisation=heartbeat.utilisation if heartbeat else None,
        raw=heartbeat.raw if heartbeat else None,
        parts=heartbeat.parts if heartbeat else None,
        busy=spec.busy,
        toobusy=spec.toobusy,
        in_per_second=total(row.in_per_second for row in mine),
        out_per_second=total(row.out_per_second for row in mine),
        memory_bytes=heartbeat.memory_bytes if heartbeat else None,
        memory_capacity_bytes=spec.capacity.memory_bytes,
        capacity_events_per_second=spec.capacity.events_per_second,
        points=sum(row.points for row in mine),
        containers=sum(row.points > 0 for row in mine),
        drained=spec.drained,
        cordoned=spec.cordoned,
        last_state=last_state,
        ahead_seconds=heartbeat.ahead_seconds if heartbeat else None,
        damaged_blocks=heartbeat.damaged_blocks if heartbeat else 0,
        unchecked_blocks=heartbeat.unchecked_blocks if heartbeat else 0,
        missing_blocks=heartbeat.missing_blocks if heartbeat else 0,
        dropped_blocks=heartbeat.dropped_blocks if heartbeat else 0,
        dropped_at=heartbeat.dropped_at if heartbeat else None,
        damage=heartbeat.damage if heartbeat else "",
        damaged_at=heartbeat.damaged_at if heartbeat else None,
        durability_problem=heartbeat.durability_problem if heartbeat else "",
        unreadable=unreadable,
    )


def _shed_share(inputs: SnapshotInputs) -> float | None:
    """Return the shed share of the events that the pipeline's patterns could use.

    None while a required pipeline does not report.
    """
    status, age = inputs.readings.pipeline, inputs.ages.get(("pipeline", ""))
    silent = status is None or (age is not None and age > PIPELINE_OFFLINE_SECONDS)
    if silent and any(spec.kind == "pipeline" for spec in inputs.readings.topology.queues.values()):
        return None
    if status is None or not status.offered_per_second:
        return 0.0
    return round((status.shed_per_second or 0.0) / status.offered_per_second, 4)


def _compute_totals(
    inputs: SnapshotInputs,
    queues: Mapping[str, QueueStatus],
    nodes: Mapping[str, NodeStatus],
    hosts: Mapping[str, HostStatus],
) -> PlantTotals:
    rows = list(queues.values())
    latencies = Latencies()
    for action in inputs.recent.values():
        latencies = latencies.merge(action)
    # A drained host finishes its tasks and takes no new ones: its slots are unavailable.
    jobs = [host for host in hosts.values() if host.role == "jobs" and not host.drained]
    in_use = [n for n in nodes.values() if n.state not in SILENT and n.points and not n.drained]
    return PlantTotals(
        in_per_second=total(row.in_per_second for row in rows),
        out_per_second=total(row.out_per_second for row in rows),
        latency_p95_seconds=latencies.quantile(TAIL),
        backlog_events=total(row.waiting_events for row in rows),
        # The queue with the longest wait: a sum over queues would hide one that stands still behind a fast one.
        backlog_seconds=find_longest_time(row.wait_seconds for row in rows),
        shed_share=_shed_share(inputs),
        nodes_in_use=len(in_use),
        nodes=len(nodes),
        workers_busy=sum(host.busy for host in jobs),
        workers_at_work=round(sum(host.at_work or 0.0 for host in jobs), 2),
        worker_slots=sum(host.slots for host in jobs),
        dead_letters=total(row.dead_letters for row in rows),
    )


def _build_producer_statuses(inputs: SnapshotInputs) -> dict[str, ProducerStatus]:
    """Return the producers heard of recently, their queues together."""
    producers: dict[str, ProducerStatus] = {}
    for (producer, queue), report in inputs.readings.producers.items():
        age = inputs.ages["producer", f"{producer}|{queue}"]
        if age > PRODUCER_SHOWN_SECONDS:
            continue
        before = producers.get(producer, ProducerStatus())
        queues = {**before.queues, queue: inputs.rates.get(f"{producer}|{queue}.events")}
        producers[producer] = ProducerStatus(
            in_per_second=total(queues.values()),
            age_seconds=age if before.age_seconds is None else min(before.age_seconds, age),
            queues=queues,
            rejected=before.rejected + report.rejected,
            rerouted=before.rerouted + report.rerouted,
        )
    for (producer, queue), sample in _select_event_samples(inputs, producers).items():
        shown = producers[producer]
        producers[producer] = replace_fields(shown, samples={**shown.samples, queue: sample})
    return producers


def _select_event_samples(
    inputs: SnapshotInputs, producers: Mapping[str, ProducerStatus]
) -> dict[tuple[str, str], EventSample]:
    """Return the compositions of events of the MAX_SAMPLES busiest producers' queues."""
    busy = [
        (rate, producer, queue)
        for producer, shown in producers.items()
        for queue, rate in shown.queues.items()
        if rate and inputs.readings.producers[producer, queue].sample is not None
    ]
    return {
        (producer, queue): limit_sample(sample)
        for _, producer, queue in heapq.nlargest(MAX_SAMPLES, busy)
        if (sample := inputs.readings.producers[producer, queue].sample) is not None
    }


def limit_sample(sample: EventSample) -> EventSample:
    """Limit a sample to the size that `queues.events.block` makes; a publisher may write more."""
    limited = {}
    for name in COLUMNS:
        most = heapq.nlargest(MAX_VALUES, getattr(sample, name).items(), key=lambda row: row[1])
        limited[name] = {value[:MAX_VALUE_LENGTH]: count for value, count in most}
    return EventSample(events=sample.events, keys=sample.keys, **limited)


def _build_pipeline_status(inputs: SnapshotInputs) -> PipelineStatus:
    """Return the pipeline's own status and its age."""
    report, age = inputs.readings.pipeline, inputs.ages.get(("pipeline", ""))
    if report is None:
        return PipelineStatus(age_seconds=age)
    status = PipelineStatus(**copy_shared_values(report, PipelineFigures), age_seconds=age)
    silent = age is not None and age > PIPELINE_OFFLINE_SECONDS
    return replace_fields(status, state=NOT_REPORTING) if silent else status
