"""The influences between the parts of the local plant, as `controllers.diagnosis.changes` reads it.

It is derived from the one topology (`workers.plants.topology`) and the snapshot that it was made from.

| part | what influences it directly |
|---|---|
| `queue/NAME` | its producers, nodes with its containers, its readers, applications that emit to it, its
loops |
| `application/NAME` | the queues it reads, its operators, the part `pipeline` |
| `operator/APPLICATION/NAME` | its application, the operators before it, its loops |
| `node/NAME` | queues with containers there, its loops, its processes |
| `process/NAME` | nothing; it influences its node, its host, the pipeline, or the loops |
| `plant/NAME`, an attached one | its loops |
| `host/NAME`, `loop/NAME`, `producer/NAME`, `type/APPLICATION/NAME` | a loop: the parts that it controls |
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from common.errors import BadInput
from queues.nodes.agent_threads import get_agent_process
from workers.documents.snapshot import Snapshot
from workers.plants.topology import build_topology

STEERED = ("queue", "node", "application", "host", "plant")
SUBJECTS = ("queue", "node", "host", "loop", "producer", "plant")
Edge = tuple[str, str]  # (influenced part, influencing part)


def build_influences(snapshot: Snapshot) -> dict[str, set[str]]:
    """Return part → the parts that influence it directly."""
    influences: dict[str, set[str]] = defaultdict(set)
    for edges in (
        _iterate_flow_edges(snapshot),
        _iterate_placement_edges(snapshot),
        _iterate_reader_edges(snapshot),
        _iterate_loop_edges(snapshot),
        _iterate_process_edges(snapshot),
    ):
        for acted_on, acting in edges:
            if acted_on != acting:
                influences[acted_on].add(acting)
    return dict(influences)


def list_alert_parts(labels: Mapping[str, str]) -> list[str]:
    if "group" in labels:  # of consumers, which may run at any plant
        return []
    parts = [f"{kind}/{labels[kind]}" for kind in SUBJECTS if labels.get(kind)]
    return [*parts, "pipeline"] if labels.get("pipeline") else parts


def _iterate_flow_edges(snapshot: Snapshot) -> Iterator[Edge]:
    try:
        links = build_topology(snapshot).links
    except BadInput:  # applications that feed each other have no topology
        return
    for link in links:
        yield format_operator_part(link.target), format_operator_part(link.source)


def format_operator_part(operator: str) -> str:
    """Return the part that an operator of the local topology is."""
    kind, _, name = operator.partition("/")
    if not name:
        return f"queue/{operator}"
    if kind == "producers":
        return f"queue/{name}"
    return f"application/{name}" if kind == "replicas" else f"operator/{operator}"


def _iterate_placement_edges(snapshot: Snapshot) -> Iterator[Edge]:
    for name, queue in snapshot.queues.items():
        for node in queue.containers:
            yield f"queue/{name}", f"node/{node}"
            yield f"node/{node}", f"queue/{name}"
    for name, producer in snapshot.producers.items():
        yield from ((f"queue/{published}", f"producer/{name}") for published in producer.queues)


def _iterate_reader_edges(snapshot: Snapshot) -> Iterator[Edge]:
    """Return the readers of each queue: a slow reader holds its queue up."""
    for name, queue in snapshot.queues.items():
        if queue.kind == "jobs":
            yield from ((f"queue/{name}", f"host/{host}") for host in snapshot.hosts)
    for name, application in snapshot.pipeline.applications.items():
        yield "pipeline", f"application/{name}"
        for read in application.queues:
            yield f"queue/{read}", f"application/{name}"
            yield f"application/{name}", f"queue/{read}"
        for operator in application.operators:
            yield f"application/{name}", f"operator/{name}/{operator}"
            yield f"operator/{name}/{operator}", f"application/{name}"
        for queues in application.sinks.values():
            yield from ((f"queue/{queue}", f"application/{name}") for queue in queues)
        for pattern in application.patterns.values():
            yield from ((f"application/{name}", f"type/{name}/{kind}") for kind in pattern.types)


def _iterate_process_edges(snapshot: Snapshot) -> Iterator[Edge]:
    """Return the processes of this host that make a part work: a node's server and agent are named after it."""
    for name in snapshot.nodes:
        yield from ((f"node/{name}", f"process/{process}") for process in (name, get_agent_process(name)))
    for name, host in snapshot.hosts.items():
        yield f"host/{name}", f"process/worker-{host.role}"
    replicas = {event.name for event in snapshot.processes if event.name.startswith("pipeline-")}
    for process in ("pipeline", *sorted(replicas)):
        yield "pipeline", f"process/{process}"
        yield from ((f"application/{name}", f"process/{process}") for name in snapshot.pipeline.applications)
    yield from ((f"producer/{name}", "process/telemetry") for name in snapshot.producers)
    for name in snapshot.loops:
        yield from ((f"loop/{name}", f"process/{process}") for process in ("worker-control", "beat", "control"))


def _iterate_loop_edges(snapshot: Snapshot) -> Iterator[Edge]:
    for name, loop in snapshot.loops.items():
        for kind in STEERED:
            if kind in loop.target:
                steered = f"{kind}/{loop.target[kind]}"
                yield steered, f"loop/{name}"
                yield f"loop/{name}", steered
