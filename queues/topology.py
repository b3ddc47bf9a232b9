"""The plant's nodes and queues as one value: the content of `weir:topology`; `projection` builds it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from common import checks
from common.errors import BadInput, BadTopology, UnknownQueue
from queues import keys
from queues import points as thousand
from queues.durability import DURABILITIES, MEMORY, get_durability_on_node
from queues.durability import NAMES as DURABILITY_NAMES

KINDS = ("jobs", "pipeline")


@dataclass(frozen=True)
class Capacity:
    """The capacity of a node: the denominators of its utilization."""

    events_per_second: float = 50_000.0
    memory_bytes: int = 512 * 2**20


@dataclass(frozen=True)
class NodeSpec:
    """A Redis-protocol server. `busy` and `toobusy` are shares of capacity.

    replica_url: of the server that copies it, "" without one. promotions: how often the two have changed places.
    """

    name: str
    url: str
    capacity: Capacity = Capacity()
    busy: float = 0.7
    toobusy: float = 0.9
    drained: bool = False
    cordoned: bool = False
    replica_url: str = ""
    promotions: int = 0

    @property
    def takes_points(self) -> bool:
        """Return whether points may be moved to it, according to people's settings."""
        return not (self.drained or self.cordoned)


@dataclass(frozen=True)
class QueueSpec:
    """A queue: its kind, its points per node (1000 in total), and how its workers behave (jobs queues).

    A node with 0 points has a draining container: it gets nothing new, and its events are consumed.
    """

    name: str
    kind: str
    points: Mapping[str, int]
    priority: int = 5
    minimum_containers: int = 2
    handler: str = "emulate"
    handler_options: Mapping[str, Any] = field(default_factory=dict)
    events_per_worker: int = 5_000
    tries: int = 5
    handler_timeout_seconds: float = 30.0
    requirements: tuple[str, ...] = ()  # capabilities of the worker hosts (WEIR_CAPABILITIES)
    durability: str = MEMORY

    @property
    def waits_for_disk(self) -> bool:
        """Return whether its events are acknowledged only when they are on a disk."""
        return DURABILITIES[self.durability].waits

    @property
    def live_points(self) -> dict[str, int]:
        """Return the points without the draining containers."""
        return {node: points for node, points in self.points.items() if points}


@dataclass(frozen=True)
class Topology:
    """All nodes and queues. `revision` changes with every change."""

    revision: int
    nodes: Mapping[str, NodeSpec]
    queues: Mapping[str, QueueSpec]

    def queue(self, name: str) -> QueueSpec:
        """Return the queue. Raises `UnknownQueue` that lists the known ones."""
        try:
            return self.queues[name]
        except KeyError:
            known = ", ".join(sorted(self.queues)) or "none yet"
            raise UnknownQueue("queue", f"{name} is unknown. The queues are {known}.") from None

    def get_node(self, name: str) -> NodeSpec:
        """Return the node. Raises `BadInput` that lists the known ones."""
        try:
            return self.nodes[name]
        except KeyError:
            known = ", ".join(sorted(self.nodes)) or "none yet"
            raise BadInput("node", f"{name} is unknown. The nodes are {known}.") from None

    def get_durability(self, queue: str, node: str) -> str:
        """Return the durability of a queue on a node; that of a queue that does not exist is `memory`."""
        spec = self.queues.get(queue)
        has_replica = node in self.nodes and bool(self.nodes[node].replica_url)
        return MEMORY if spec is None else get_durability_on_node(spec.durability, has_replica)

    def on_node(self, name: str) -> list[str]:
        """Return the queues that have a container on the node, draining ones included."""
        return [queue.name for queue in self.queues.values() if name in queue.points]

    def has_points(self, name: str) -> bool:
        """Return whether the node gets anything new."""
        return bool(self.list_queues_with_points_on(name))

    def list_queues_with_points_on(self, name: str) -> list[str]:
        """Return the queues whose new events go to the node."""
        return [queue.name for queue in self.queues.values() if queue.points.get(name)]

    def to_json(self) -> str:
        """Return the stored form; see docs/understand/how/events.md."""
        nodes = {name: _build_node_document(node) for name, node in self.nodes.items()}
        queues = {name: _queue_document(queue) for name, queue in self.queues.items()}
        return json.dumps({"revision": self.revision, "nodes": nodes, "queues": queues})

    @classmethod
    def from_json(cls, text: str | bytes | None) -> "Topology":
        """Parse the stored form. Raises `BadTopology` that names the field."""
        if not text:
            raise BadTopology(keys.TOPOLOGY, "is missing on the control server. Run manage.py seed to write it.")
        try:
            document = json.loads(text, object_pairs_hook=_build_unique_object)
        except ValueError as error:
            raise BadTopology(keys.TOPOLOGY, f"is not JSON ({error}). Run manage.py seed to write it again.") from None
        _check_keys(document, keys.TOPOLOGY, ("revision", "nodes", "queues"))
        for part in ("nodes", "queues"):
            if not isinstance(document[part], dict):
                raise BadTopology(part, "must be a JSON object.")
        nodes = {name: _parse_node(name, value) for name, value in document["nodes"].items()}
        queues = {name: _queue(name, value) for name, value in document["queues"].items()}
        return cls(_check_whole_number(document["revision"], "revision", 0, 2**63), nodes, queues).check()

    def check(self) -> "Topology":
        """Return the topology. Raises `BadTopology` if a queue has points on a node that does not exist."""
        for queue in self.queues.values():
            for node in queue.points:
                if node not in self.nodes:
                    raise BadTopology(f"queues.{queue.name}.points.{node}", "is not a node of the topology.")
        return self


class KnownTopology:
    """The topology as last read, for a process that continues with it.

    If the control server came back empty, or a newer version writes there, the known topology stays in use. An
    unchanged text is not parsed again. `latest`: what was read last, if anything was.
    """

    def __init__(self) -> None:
        self._text: str | bytes | None = None
        self.latest: Topology | None = None

    def read(self, text: str | bytes | None) -> Topology:
        """Parse the stored form, or return the last readable one. Raises `BadTopology` if there is none."""
        if self.latest is None or text != self._text:
            try:
                self.latest, self._text = Topology.from_json(text), text
            except BadTopology:
                if self.latest is None:
                    raise
        return self.latest


def _build_node_document(node: NodeSpec) -> dict[str, Any]:
    return {
        "url": node.url,
        "capacity": {"events_per_second": node.capacity.events_per_second, "memory_bytes": node.capacity.memory_bytes},
        "busy": node.busy,
        "toobusy": node.toobusy,
        "drained": node.drained,
        "cordoned": node.cordoned,
        # Left out without a replica: an older version rejects unknown keys.
        **({"replica_url": node.replica_url, "promotions": node.promotions} if node.replica_url else {}),
    }


def _queue_document(queue: QueueSpec) -> dict[str, Any]:
    return {
        "kind": queue.kind,
        "priority": queue.priority,
        "minimum_containers": queue.minimum_containers,
        "points": dict(queue.points),
        "handler": queue.handler,
        "handler_options": dict(queue.handler_options),
        "events_per_worker": queue.events_per_worker,
        "tries": queue.tries,
        "handler_timeout_seconds": queue.handler_timeout_seconds,
        # Left out at their defaults: an older version rejects unknown keys.
        **({"requirements": list(queue.requirements)} if queue.requirements else {}),
        **({"durability": queue.durability} if queue.durability != MEMORY else {}),
    }


def _parse_node(name: str, document: object) -> NodeSpec:
    where = f"nodes.{name}"
    _check_name(name, where)
    required, optional = ("url", "capacity", "busy", "toobusy", "drained", "cordoned"), ("replica_url", "promotions")
    document = _check_keys(document, where, required, optional)
    _check_keys(document["capacity"], f"{where}.capacity", ("events_per_second", "memory_bytes"))
    rate = _check_number(document["capacity"]["events_per_second"], f"{where}.capacity.events_per_second")
    memory_bytes = _check_whole_number(document["capacity"]["memory_bytes"], f"{where}.capacity.memory_bytes", 1, 2**62)
    busy, toobusy = (
        _check_number(document["busy"], f"{where}.busy"),
        _check_number(document["toobusy"], f"{where}.toobusy"),
    )
    if not busy < toobusy:
        raise BadTopology(f"{where}.toobusy", f"must be a share above busy ({busy}), not {toobusy}.")
    for name_of_url in ("url", *(["replica_url"] if "replica_url" in document else [])):
        if not isinstance(document[name_of_url], str) or "://" not in document[name_of_url]:
            raise BadTopology(f"{where}.{name_of_url}", "must be a URL such as redis://127.0.0.1:6380/0.")
    return NodeSpec(
        name,
        document["url"],
        Capacity(rate, memory_bytes),
        busy,
        toobusy,
        bool(document["drained"]),
        bool(document["cordoned"]),
        document.get("replica_url", ""),
        _check_whole_number(document.get("promotions", 0), f"{where}.promotions", 0, 2**31),
    )


def _queue(name: str, document: object) -> QueueSpec:
    where = f"queues.{name}"
    _check_name(name, where)
    optional = ("requirements", "durability")
    document = _check_keys(document, where, tuple(_queue_document(QueueSpec(name, "jobs", {}))), optional)
    try:
        points = thousand.check_points(document["points"], f"{where}.points", least=0)
    except BadInput as error:
        raise BadTopology(error.field, error.message) from None
    if not isinstance(document["handler_options"], dict):
        raise BadTopology(f"{where}.handler_options", "must be a JSON object.")
    return QueueSpec(
        name=name,
        kind=checks.accept_choice(KINDS, " or ".join(KINDS)).validate(
            document["kind"], f"{where}.kind", BadTopology, "."
        ),
        points=points,
        priority=_check_whole_number(document["priority"], f"{where}.priority", 0, 9),
        minimum_containers=_check_whole_number(document["minimum_containers"], f"{where}.minimum_containers", 1, 1000),
        handler=str(document["handler"]),
        handler_options=document["handler_options"],
        events_per_worker=_check_whole_number(document["events_per_worker"], f"{where}.events_per_worker", 1, 2**31),
        tries=_check_whole_number(document["tries"], f"{where}.tries", 1, 1000),
        handler_timeout_seconds=_check_number(document["handler_timeout_seconds"], f"{where}.handler_timeout_seconds"),
        requirements=checks.check_capabilities(document.get("requirements", []), f"{where}.requirements", BadTopology),
        durability=checks.accept_choice(DURABILITY_NAMES, ", ".join(DURABILITY_NAMES)).validate(
            document.get("durability", MEMORY), f"{where}.durability", BadTopology, "."
        ),
    )


def _check_name(name: str, where: str) -> None:
    if not checks.QUEUE_NAME.match(name):
        message = "must be a lowercase letter followed by up to 39 lowercase letters, digits, -, or _."
        raise BadTopology(where, message)


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; a duplicate name is an error, since it would silently be its last value."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadTopology(twice[:40], f"is a duplicate in {keys.TOPOLOGY}. Run manage.py seed to write it again.")
    return made


def _check_keys(document: object, where: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the object. Raises an error that names the first missing or unknown key."""
    if not isinstance(document, dict):
        raise BadTopology(where, "must be a JSON object.")
    for key in keys:
        if key not in document:
            raise BadTopology(f"{where}.{key}", "is missing.")
    message = "is unknown. The keys are {known}."
    checks.refuse_unknown(document, (*keys, *optional), where, BadTopology, message)
    return document


def _check_number(value: object, where: str) -> float:
    return float(checks.accept_greater_than(0).validate(value, where, BadTopology, "."))


def _check_whole_number(value: object, where: str, least: int, most: int) -> int:
    return int(checks.accept_whole_number(least, most).validate(value, where, BadTopology, "."))
