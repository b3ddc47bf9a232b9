"""The part of the snapshot that a page shows: what else changes each second is not sent to it.

A view narrows a snapshot and a merge patch alike, so that who holds the narrowed one and applies narrowed
patches has at any time what narrowing the whole would give.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from queues.errors import BadInput

Document = dict[str, Any]

# Of each kind of row at least one kept field is there from the row's first instant (points, id, state): a
# patch of a row that has none of them is no new row, and is left out.
PLACE = frozenset({"points"})
BANDS = PLACE | {"in_per_second", "out_per_second"}
HOST = frozenset({"role", "slots", "busy", "at_work", "reserved", "drained", "draining", "age_seconds"})
PRODUCER = frozenset({"in_per_second", "age_seconds", "queues", "rejected", "rerouted"})
LASTING = frozenset({"id", "mode", "verdict", "entry"})
JUDGED = frozenset({"kind", "severity", "sign", "stale", "word", "finding"})
USE = frozenset(
    {
        "state",
        "stale",
        "last_state",
        "utilisation",
        "busy",
        "toobusy",
        "in_per_second",
        "points",
        "drained",
        "cordoned",
    }
)

# Of another plant, all but its topology.
PLANT = frozenset(
    {
        "kind",
        "state",
        "age_seconds",
        "error",
        "steered_by",
        "tasks",
        "in_per_second",
        "latency_seconds",
    }
)


@dataclass(frozen=True)
class View:
    """Fields kept of every node, container, loop, producer, worker host and registered plant (None: all), and
    the `queue` or `node` whose containers and loops are kept whole.
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
        """A snapshot or a patch with what the view keeps; the document itself is not changed."""
        result = dict(document)
        if self.nodes is not None and document.get("nodes"):
            result["nodes"] = _rows(document["nodes"], self.nodes)
        if self.producers is not None and document.get("producers"):
            result["producers"] = _rows(document["producers"], self.producers)
        if self.hosts is not None and document.get("hosts"):
            result["hosts"] = _rows(document["hosts"], self.hosts)
        if self.plants is not None and document.get("plants"):
            result["plants"] = _rows(document["plants"], self.plants)
        if self.loops is not None and document.get("loops"):
            result["loops"] = _rows(document["loops"], self.loops, self._is_about)
        if self.loops is not None and document.get("states"):
            result["states"] = _states(document["states"])
        if self.containers is not None and document.get("queues"):
            result["queues"] = {name: self._queue(name, row) for name, row in document["queues"].items()}
        return result

    def _queue(self, name: str, row: Any) -> Any:
        if name == self.queue or not isinstance(row, dict) or not row.get("containers"):
            return row
        return {
            **row,
            "containers": _rows(row["containers"], self.containers, lambda name: name == self.node),
        }

    def _is_about(self, loop: str) -> bool:
        """Whether a loop steers a container of the queue or node: law/queue/node."""
        _, *target = loop.split("/")
        return bool(target) and (target[0] == self.queue or target[-1] == self.node)


def _states(states: Mapping[str, Any]) -> Document:
    """Of loops, which may be hundreds, what a list of what is wrong needs; the others whole."""
    loops = {key: row for key, row in states.items() if key.startswith("loop/")}
    return {**states, **_rows(loops, JUDGED)} if loops else dict(states)


def _rows(
    rows: Mapping[str, Any],
    fields: frozenset[str] | None,
    whole: Callable[[str], bool] = lambda name: False,
) -> Document:
    """Rows with the kept fields only; one that a patch removes (null) stays, one that is `whole` too."""
    kept: Document = {}
    for name, row in rows.items():
        if fields is None or not isinstance(row, dict) or whole(name):
            kept[name] = row
        elif narrow := {field: row[field] for field in fields & row.keys()}:
            kept[name] = narrow
    return kept


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


def view_named(name: str) -> View:
    """One of VIEWS, `queue:NAME` or `node:NAME`. Raises BadInput for anything else."""
    kind, _, which = name.partition(":")
    if which and kind == "queue":
        return View(name, nodes=USE, containers=PLACE, loops=LASTING, queue=which)
    if which and kind == "node":
        return View(name, containers=PLACE, loops=LASTING, node=which)
    if name not in VIEWS:
        raise BadInput("of", f"takes {', '.join(VIEWS)}, queue:NAME or node:NAME, not {name[:60]!r}")
    return VIEWS[name]
