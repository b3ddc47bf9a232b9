"""Parts of the plant's own software, and whether they run or are still starting."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from common.stored_document import Instant, StoredDocument, describe

# The part that consumes a queue, by the queue's kind.
CONSUMERS = {"jobs": "workers.jobs", "pipeline": "pipeline"}
CONTROL = "workers.control"


class PartStatus(StoredDocument, frozen=True, kw_only=True):
    """The status of a part."""

    state: Annotated[str, describe(values=("starting", "running", "stopping", "stopped", "failed", "silent"))] = (
        "starting"
    )
    since: Instant = 0.0
    grace_until: Annotated[
        Instant | None, describe("Until this time, missing data and backlogs are attributed to the startup.")
    ] = None


class ProcessEvent(StoredDocument, frozen=True, kw_only=True):
    """A process of this host that the supervisor has just restarted, that is suspended, or that is down."""

    name: str
    kind: Annotated[str, describe(values=("restarted", "suspended", "down"))]
    at: Annotated[Instant, describe("When the process ran again, or was first seen suspended or down.")]
    how: Annotated[str, describe("How the previous run ended, such as SIGKILL.")] = ""
    down_seconds: Annotated[float | None, describe("For how long the process was gone, s.")] = None


Parts = Mapping[str, PartStatus]


def format_node_part(node: str) -> str:
    """Return the part that reports a node's state: its agent."""
    return f"node {node}"


def find_starting(parts: Parts, names: Iterable[str]) -> str | None:
    """Return the first of the named parts that is still starting within its time limit."""
    return next((name for name in names if _is_new(parts.get(name)) and parts[name].state != "running"), None)


def find_settling(parts: Parts, names: Iterable[str]) -> str | None:
    """Return the first of the named parts that is starting, or started recently and is still catching up."""
    return next((name for name in names if _is_new(parts.get(name))), None)


def find_starting_parts(parts: Parts) -> dict[str, PartStatus]:
    """Return the parts that are starting, for a checklist."""
    return {name: part for name, part in parts.items() if part.state != "running" and _is_new(part)}


def _is_new(part: PartStatus | None) -> bool:
    return part is not None and part.grace_until is not None
