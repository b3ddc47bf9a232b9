"""The part of the snapshot that a page shows; other changes are not sent to it.

A view narrows a snapshot and a merge patch alike, so that applying narrowed patches to a narrowed snapshot always
equals narrowing the whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import BadInput
from workers.documents.hosts import HostStatus
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.documents.plants import PlantStatus
from workers.documents.queues import ContainerStatus, ProducerStatus
from workers.documents.states import SubjectState

Document = dict[str, Any]

# In each kind of row at least one kept field exists from the row's start (points, id, state): a patch of a
# row without any of them is no new row, and is left out.
PLACE = frozenset({"points"})
BANDS = PLACE | {"in_per_second", "out_per_second", "waiting_to_run", "workers_busy"}
HOST = frozenset({"role", "slots", "busy", "at_work", "reserved", "drained", "draining", "age_seconds"})
PRODUCER = frozenset({"in_per_second", "age_seconds", "queues", "rejected", "rerouted"})
LASTING = frozenset({"id", "mode", "verdict", "entry"})
JUDGED = frozenset({"kind", "severity", "sign", "stale", "word", "finding"})
USE = frozenset(
    {"state", "stale", "last_state", "utilisation", "busy", "toobusy", "in_per_second", "points", "drained", "cordoned"}
)

# Of another plant, all but its topology.
PLANT = frozenset({"kind", "state", "age_seconds", "error", "steered_by", "tasks", "in_per_second", "latency_seconds"})


@dataclass(frozen=True)
class View:
    """The fields kept of every node, container, loop, producer, worker host, and registered plant.

    None keeps all fields. The containers and loops of the `queue` or `node` are complete.
    """

    name: str
    nodes: frozenset[str] | None = None
    containers: frozenset[str] | None = None
    loops: frozenset[str] | None = None
    producers: frozenset[str] | None = PRODUCER
    hosts: frozenset[str] | None = HOST
    plants: frozenset[str] | None = PLANT
    queue: str | None = None
    node: str | None = None

    def narrow(self, document: Document) -> Document:
        """Return a snapshot or a patch with the fields of the view; the document itself is not changed."""
        result = dict(document)
        kept = {"nodes": self.nodes, "producers": self.producers, "hosts": self.hosts, "plants": self.plants}
        for part, fields in kept.items():
            if fields is not None and document.get(part):
                result[part] = _select_row_fields(document[part], fields)
        if self.loops is not None and document.get("loops"):
            result["loops"] = _select_row_fields(document["loops"], self.loops, self._is_about)
        if self.loops is not None and document.get("states"):
            # There may be hundreds of loops: of their states only the fields for a list of problems are kept.
            states = document["states"]
            loops = {key: row for key, row in states.items() if key.startswith("loop/")}
            result["states"] = {**states, **_select_row_fields(loops, JUDGED)}
        if self.containers is not None and document.get("queues"):
            result["queues"] = {name: self._queue(name, row) for name, row in document["queues"].items()}
        return result

    def _queue(self, name: str, row: object) -> object:
        if name == self.queue or not isinstance(row, dict) or not row.get("containers"):
            return row
        return {
            **row,
            "containers": _select_row_fields(row["containers"], self.containers, lambda name: name == self.node),
        }

    def _is_about(self, loop: str) -> bool:
        """Return whether a loop controls a container of the queue or node: law/queue/node."""
        _, *target = loop.split("/")
        return bool(target) and (target[0] == self.queue or target[-1] == self.node)


def _select_row_fields(
    rows: Mapping[str, Any], fields: frozenset[str] | None, whole: Callable[[str], bool] = lambda name: False
) -> Document:
    """Return rows with the kept fields only. Rows that a patch removes (null), and those of `whole`, are kept."""
    kept: Document = {}
    for name, row in rows.items():
        if fields is None or not isinstance(row, dict) or whole(name):
            kept[name] = row
        elif narrow := {field: row[field] for field in fields & row.keys()}:
            kept[name] = narrow
    return kept


# The documents of which a view may omit fields, and the fields that every view keeps.
NARROWED: Mapping[type, frozenset[str]] = {
    ContainerStatus: PLACE,
    HostStatus: HOST,
    LoopStatus: LASTING,
    NodeStatus: USE,
    PlantStatus: PLANT,
    ProducerStatus: PRODUCER,
    SubjectState: JUDGED,
}
WHOLE = View("whole", producers=None, hosts=None, plants=None)
VIEWS = {
    view.name: view
    for view in (
        WHOLE,
        View("frame", nodes=USE, containers=PLACE, loops=LASTING),
        View("flow", nodes=USE, containers=BANDS, loops=LASTING),
        View("nodes", containers=PLACE, loops=LASTING),
        View("loops", nodes=USE, containers=PLACE),
        View("plants", nodes=USE, containers=PLACE, loops=LASTING, plants=None),
    )
}


def find_view(name: str) -> View:
    """Return one of VIEWS, `queue:NAME`, or `node:NAME`. Raises `BadInput` for anything else."""
    kind, _, which = name.partition(":")
    if which and kind == "queue":
        return View(name, nodes=USE, containers=PLACE, loops=LASTING, queue=which)
    if which and kind == "node":
        return View(name, containers=PLACE, loops=LASTING, node=which)
    if name not in VIEWS:
        raise BadInput("of", f"must be one of {', '.join(VIEWS)}, queue:NAME, or node:NAME, not {name[:60]!r}")
    return VIEWS[name]
