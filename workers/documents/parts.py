"""What the plant runs on, part by part: which of them run, and which are still starting."""

from collections.abc import Iterable, Mapping

from queues.stored_document import StoredDocument

# Of a queue, by its kind: the part that consumes it.
CONSUMERS = {"jobs": "workers.jobs", "pipeline": "pipeline"}
CONTROL = "workers.control"


class PartStatus(StoredDocument, frozen=True, kw_only=True):
    """state: starting, running, stopped, failed or silent, since when (1970). grace_until: what this part
    lacks, or has to catch up on, counts as its start's until then (None: not any more).
    """

    state: str = "starting"
    since: float = 0.0
    grace_until: float | None = None


Parts = Mapping[str, PartStatus]


def node_part(node: str) -> str:
    """The part that says how a node is: its agent."""
    return f"node {node}"


def find_starting(parts: Parts, names: Iterable[str]) -> str | None:
    """The first of the named parts that has not run yet and still may take its time."""
    return next((name for name in names if _is_new(parts.get(name)) and parts[name].state != "running"), None)


def find_settling(parts: Parts, names: Iterable[str]) -> str | None:
    """The first of the named parts that starts, or has so lately that it still catches up."""
    return next((name for name in names if _is_new(parts.get(name))), None)


def unready(parts: Parts) -> dict[str, PartStatus]:
    """Those that start: what a checklist shows while there are any."""
    return {name: part for name, part in parts.items() if part.state != "running" and _is_new(part)}


def _is_new(part: PartStatus | None) -> bool:
    return part is not None and part.grace_until is not None
