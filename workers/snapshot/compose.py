"""Composing the snapshot (docs/understand/how/snapshot.md): plain JSON from what was read and watched.

Unknown is None.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from queues.nodes.membership import Membership
from queues.nodes.node_state import OFFLINE, SILENT
from queues.topology import NodeSpec, QueueSpec
from workers.consumer.handlers.sink import sink_of
from workers.consumer.latency import Latencies
from workers.snapshot.health import health
from workers.snapshot.readings import Readings, Workers

PRODUCER_SHOWN_SECONDS = 300.0
HOST_SHOWN_SECONDS = 10.0
PIPELINE_OFFLINE_SECONDS = 10.0
TAIL = 0.95
PIPELINE_KEYS = (
    "state",
    "batch",
    "in_per_second",
    "kept_per_second",
    "alerts_per_second",
    "batch_seconds",
    "watermark_lag_seconds",
    "waiting_events",
    "result_free_bytes",
    "patterns",
    "rules",
    "error",
    "hindrance",
)
Document = dict[str, Any]
# Of each counter, the part that only went from node to node.
MOVED_BY = {"inserted_events": "received_events", "removed_events": "sent_events"}


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is heard, at one instant of the watcher's monotonic clock."""

    membership: Membership
    now_seconds: float

    def age_seconds(self, node: str) -> float | None:
        """Since its last beat; None when it has not been heard for certain."""
        age_seconds = self.membership.age_seconds(node, self.now_seconds)
        return None if age_seconds is None else round(age_seconds, 3)

    def offline(self, node: str) -> bool:
        """Not heard for three beats, or never."""
        return self.membership.is_offline(node, self.now_seconds)

    def stale(self, node: str) -> bool:
        """Not heard for two beats, or only what lay there when the watch began."""
        return self.age_seconds(node) is None or self.membership.is_stale(node, self.now_seconds)


@dataclass(frozen=True, slots=True)
class SnapshotInputs:
    """Readings, with ages in seconds by (kind, name) of hosts, producers and pipeline, rates per second by
    counter name, recent latencies by queue.
    """

    readings: Readings
    watch: Watch
    ages: Mapping[tuple[str, str], float]
    rates: Mapping[str, float | None]
    recent: Mapping[str, Latencies]


def compose(inputs: SnapshotInputs, loops: Document, overrides: list[Document]) -> Document:
    """All of the snapshot but seq, at and plant."""
    topology = inputs.readings.topology
    queues = {name: _queue(inputs, spec) for name, spec in topology.queues.items()}
    nodes = {name: _node(inputs, spec, queues) for name, spec in topology.nodes.items()}
    hosts = _hosts(inputs)
    snapshot: Document = {
        "totals": _totals(inputs, queues, nodes, hosts),
        "producers": _producers(inputs),
        "queues": queues,
        "nodes": nodes,
        "hosts": hosts,
        "pipeline": _pipeline(inputs),
        "loops": loops,
        "overrides": overrides,
        "alerts": [],
    }
    return {"health": health(snapshot), **snapshot}


def total(values: Iterable[float | None]) -> Any:
    """The sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def longest(seconds: Iterable[float | None]) -> float | None:
    """The longest of what is known; None when nothing is."""
    return max((each for each in seconds if each is not None), default=None)


def wait_seconds(
    waiting_events: int | None, out_per_second: float | None, oldest_seconds: float | None
) -> float | None:
    """How long what waits takes at the present rate: 0 when nothing waits, None when that can't be known.

    While nothing leaves, it is at least as long as the oldest has waited already.
    """
    if waiting_events == 0:
        return 0.0
    if waiting_events is None or not out_per_second:
        return oldest_seconds
    return round(waiting_events / out_per_second, 3)


def _queue(inputs: SnapshotInputs, spec: QueueSpec) -> Document:
    containers = {node: _container(inputs, spec, node) for node in _places(inputs, spec)}
    rows = list(containers.values())

    def over(name: str) -> Any:
        return total(row[name] for row in rows)

    oldest = longest(row["oldest_seconds"] for row in rows)
    workers = [inputs.readings.containers.get((spec.name, node), Workers()) for node in containers]
    latencies = inputs.recent.get(spec.name)
    return {
        "kind": spec.kind,
        "handler": spec.handler if spec.kind == "jobs" else None,
        "sink": sink_of(spec.handler, spec.handler_options) if spec.kind == "jobs" else None,
        "priority": spec.priority,
        "minimum_containers": spec.minimum_containers,
        "in_per_second": over("in_per_second"),
        "out_per_second": over("out_per_second"),
        "waiting_events": over("waiting_events"),
        "waiting_bytes": over("waiting_bytes"),
        "wait_seconds": wait_seconds(over("waiting_events"), over("out_per_second"), oldest),
        "oldest_seconds": oldest,
        "latency_p95_seconds": latencies.quantile(TAIL) if latencies else None,
        "dead_letters": over("dead_letters"),
        "retry_blocks": over("retry_blocks"),
        **_work(inputs, spec),
        "trouble": next((each.last_error for each in workers if each.last_error), None),
        "containers": containers,
    }


def _work(inputs: SnapshotInputs, spec: QueueSpec) -> Document:
    """How many workers were at work at once, and how long one of their events took; unknown where none is."""

    def rate(counter: str) -> float | None:
        known: float | None = total(inputs.rates.get(f"{spec.name}@{node}.{counter}") for node in spec.points)
        return known

    busy_ms, events = rate("busy_ms"), rate("events")
    return {
        "workers_at_once": None if busy_ms is None else round(busy_ms / 1_000, 3),
        "service_seconds": busy_ms / 1_000 / events if busy_ms and events else None,
    }


def _places(inputs: SnapshotInputs, spec: QueueSpec) -> list[str]:
    """Nodes that hold points of the queue, and those that only hold what is left of its events."""
    left = [
        node
        for node, beat in inputs.readings.heartbeats.items()
        if node in inputs.readings.topology.nodes and _waiting(beat["containers"].get(spec.name))
    ]
    return sorted({*spec.points, *left})


def _waiting(counters: Document | None) -> int | None:
    return counters["inserted_events"] - counters["removed_events"] if counters else None


def by_work(counters: Mapping[str, Any], name: str) -> int:
    """What producers inserted, or workers removed or gave up: without what was transferred between nodes."""
    return int(counters[name] - counters.get(MOVED_BY.get(name, ""), 0))


def _container(inputs: SnapshotInputs, spec: QueueSpec, node: str) -> Document:
    heartbeat = inputs.readings.heartbeats.get(node, {"containers": {}})
    counters: Document | None = heartbeat["containers"].get(spec.name)
    read = counters or {}
    workers = inputs.readings.containers.get((spec.name, node), Workers())
    inserted_bytes, removed_bytes = read.get("inserted_bytes"), read.get("removed_bytes")
    in_per_second = _rate(inputs, node, f"{spec.name}@{node}.inserted_events")
    server_time_share = None if inputs.watch.offline(node) else read.get("server_time_share")
    return {
        "points": spec.points.get(node, 0),
        "waiting_events": _waiting(counters),
        "waiting_bytes": None if inserted_bytes is None else inserted_bytes - removed_bytes,
        "in_per_second": in_per_second,
        "out_per_second": _rate(inputs, node, f"{spec.name}@{node}.removed_events"),
        "dead_per_second": _rate(inputs, node, f"{spec.name}@{node}.dead_events"),
        "load": _load(inputs, node, in_per_second, server_time_share),
        "server_time_share": server_time_share,
        "oldest_seconds": read.get("oldest_seconds"),
        "inserted_events": by_work(read, "inserted_events") if read else None,
        "removed_events": by_work(read, "removed_events") if read else None,
        "leaving_blocks": read.get("leaving_blocks", 0),
        "dead_letters": read.get("dead_letters"),
        "retry_blocks": read.get("retry_blocks"),
        "waiting_to_run": workers.waiting_to_run,
        "workers_started": workers.counts.get("started", 0),
        "workers_busy": workers.busy,
    }


def _load(
    inputs: SnapshotInputs, node: str, in_per_second: float | None, server_time_share: float | None
) -> float | None:
    """The container's share of its node's capacity: of events/s or of the server's core, whichever is more.

    As a node's utilisation is the greatest of its parts, so is a container's load; memory, which follows what
    waits rather than what comes, is left out.
    """
    if in_per_second is None or node not in inputs.readings.topology.nodes:
        return None
    events = in_per_second / inputs.readings.topology.nodes[node].capacity.events_per_second
    return round(max(events, server_time_share or 0.0), 6)


def _rate(inputs: SnapshotInputs, node: str, counter: str) -> float | None:
    """A node that is offline has no known rate: its counters stand still because nobody reads them."""
    return None if inputs.watch.offline(node) else inputs.rates.get(counter)


def _node(inputs: SnapshotInputs, spec: NodeSpec, queues: Mapping[str, Document]) -> Document:
    heartbeat: Document = inputs.readings.heartbeats.get(spec.name, {})
    mine = [queue["containers"][spec.name] for queue in queues.values() if spec.name in queue["containers"]]
    last_state = heartbeat.get("state")
    return {
        "state": OFFLINE if last_state and inputs.watch.offline(spec.name) else last_state,
        "stale": inputs.watch.stale(spec.name),
        "age_seconds": inputs.watch.age_seconds(spec.name),
        "utilisation": heartbeat.get("utilisation"),
        "raw": heartbeat.get("raw"),
        "parts": heartbeat.get("parts", {}),
        "busy": spec.busy,
        "toobusy": spec.toobusy,
        "in_per_second": total(row["in_per_second"] for row in mine),
        "out_per_second": total(row["out_per_second"] for row in mine),
        "memory_bytes": heartbeat.get("memory_bytes"),
        "memory_capacity_bytes": spec.capacity.memory_bytes,
        "capacity_events_per_second": spec.capacity.events_per_second,
        "points": sum(row["points"] for row in mine),
        "containers": sum(row["points"] > 0 for row in mine),
        "drained": spec.drained,
        "cordoned": spec.cordoned,
        "last_state": last_state,
    }


def _shed_share(inputs: SnapshotInputs) -> float:
    """Of what the pipeline's patterns could use."""
    status = inputs.readings.pipeline or {}
    offered = status.get("offered_per_second") or 0.0
    return round((status.get("shed_per_second") or 0.0) / offered, 4) if offered else 0.0


def _totals(
    inputs: SnapshotInputs,
    queues: Mapping[str, Document],
    nodes: Mapping[str, Document],
    hosts: Mapping[str, Document],
) -> Document:
    rows = list(queues.values())
    backlog_events = total(row["waiting_events"] for row in rows)
    out_per_second = total(row["out_per_second"] for row in rows)
    latencies = Latencies()
    for each in inputs.recent.values():
        latencies = latencies.merge(each)
    jobs = [host for host in hosts.values() if host["role"] == "jobs"]
    in_use = [n for n in nodes.values() if n["state"] not in SILENT and n["points"] and not n["drained"]]
    return {
        "in_per_second": total(row["in_per_second"] for row in rows),
        "out_per_second": out_per_second,
        "latency_p95_seconds": latencies.quantile(TAIL),
        "backlog_events": backlog_events,
        # The queue that waits longest: a sum over queues would hide one that stands still behind a quick one.
        "backlog_seconds": longest(row["wait_seconds"] for row in rows),
        "shed_share": _shed_share(inputs),
        "nodes_in_use": len(in_use),
        "nodes": len(nodes),
        "workers_busy": sum(host["busy"] for host in jobs),
        "worker_slots": sum(host["slots"] for host in jobs),
        "dead_letters": total(row["dead_letters"] for row in rows),
    }


def _producers(inputs: SnapshotInputs) -> Document:
    """Producers heard of lately, their queues together."""
    producers: Document = {}
    for (producer, queue), document in inputs.readings.producers.items():
        age = inputs.ages["producer", f"{producer}|{queue}"]
        if age > PRODUCER_SHOWN_SECONDS:
            continue
        empty: Document = {
            "in_per_second": None,
            "age_seconds": age,
            "queues": {},
            "rejected": 0,
            "rerouted": 0,
        }
        row = producers.setdefault(producer, empty)
        row["queues"][queue] = inputs.rates.get(f"{producer}|{queue}.events")
        row["in_per_second"] = total(row["queues"].values())
        row["age_seconds"] = min(row["age_seconds"], age)
        row["rejected"] += document.get("rejected", 0)
        row["rerouted"] += document.get("rerouted", 0)
    return producers


def _hosts(inputs: SnapshotInputs) -> Document:
    hosts = {}
    for name, document in sorted(inputs.readings.hosts.items()):
        age = inputs.ages["host", name]
        if age <= HOST_SHOWN_SECONDS:
            row = {key: document[key] for key in ("role", "slots", "busy")}
            pool = {key: document.get(key) for key in ("pid", "resizable", "started_with", "trouble", "done")}
            hosts[name] = {**row, **pool, "age_seconds": age}
    return hosts


def _pipeline(inputs: SnapshotInputs) -> Document:
    """The pipeline's own status, its age, and every key there, so that a page needs no exceptions."""
    status: Document = dict.fromkeys(PIPELINE_KEYS) | {
        "patterns": {},
        "rules": [],
        "applications": {},
    }
    status |= inputs.readings.pipeline or {}
    status.pop("at", None)
    age = inputs.ages.get(("pipeline", ""))
    if age is not None and age > PIPELINE_OFFLINE_SECONDS:
        status["state"] = "offline"
    return {**status, "age_seconds": age}
