"""Worker hosts in the snapshot, and their own reports (`weir:hosts`)."""

from collections.abc import Collection, Iterable
from typing import Annotated

from msgspec.structs import force_setattr

from common.stored_document import Instant, PerSecond, Seconds, Share, StoredDocument, describe, describe_metric
from workers.documents.queues import PauseStatus


class PoolWork(StoredDocument, frozen=True, kw_only=True):
    """Work that a host's workers completed while all slots were busy (`workers.pool.departures`)."""

    seq: int | None = None
    recent_seconds: Annotated[
        list[Seconds], describe("Times between completions, s; the newest has the number `seq`.")
    ] = []
    full_seconds: Annotated[Seconds | None, describe("Total time during which all slots were busy, s.")] = None
    per_second: PerSecond | None = None
    mix: Annotated[
        dict[str, Share], describe("Share of the processing time by kind of work (queue or task name).")
    ] = {}
    open_seconds: Annotated[Seconds | None, describe("Time since the last sample while all slots were busy, s.")] = None
    open_events: Annotated[
        float | None, describe("Maximum number of events completed in this time, including unreported events.")
    ] = None


class WorkerHost(StoredDocument, frozen=True, kw_only=True):
    """A pool of worker processes."""

    role: str = ""
    slots: Annotated[int, describe_metric("Maximum number of workers at once")] = 0
    busy: Annotated[int, describe_metric("Busy workers")] = 0
    at_work: Annotated[float | None, describe("Busy processes, mean of the last second.", recorded=True)] = None
    reserved: Annotated[int, describe("Number of unfinished tasks, including running ones.")] = 0
    drained: Annotated[bool, describe("Whether it accepts no new work.")] = False
    pid: int | None = None
    resizable: bool | None = None
    started_with: Annotated[int | None, describe("Number of slots at its start.")] = None
    trouble: Annotated[str | None, describe("Why the pool differs from its setting; empty: it does not.")] = None
    done: PoolWork | None = None
    capabilities: Annotated[list[str], describe("Its capabilities, including the nodes that it is near.")] = []
    ahead_seconds: Annotated[Seconds | None, describe("Clock offset from the control server, s; positive: ahead.")] = (
        None
    )

    def __post_init__(self) -> None:
        """Fill `at_work` for old versions, which only report the processes that are busy at that instant."""
        if self.at_work is None:
            force_setattr(self, "at_work", float(self.busy))

    def meets(self, role: str, requirements: Iterable[str]) -> bool:
        """Return whether it accepts work of a role that requires these capabilities."""
        return self.role == role and not self.drained and set(requirements) <= set(self.capabilities)


class ReportedHost(WorkerHost, frozen=True, kw_only=True):
    """A host's report."""

    at: Annotated[Instant, describe("Unix time by the host's clock.")]


class HostStatus(WorkerHost, frozen=True, kw_only=True):
    """A host in the snapshot."""

    age_seconds: Annotated[Seconds | None, describe("Seconds since the last report", metric="gauge")] = None
    draining: Annotated[PauseStatus | None, describe("The active drain.")] = None


def list_missing_capabilities(hosts: Collection[WorkerHost], role: str, requirements: Collection[str]) -> list[str]:
    """Return the required capabilities that no host of the role has; all of them if no host has all at once."""
    if any(host.meets(role, requirements) for host in hosts):
        return []
    missing = [name for name in requirements if not any(host.meets(role, (name,)) for host in hosts)]
    return missing or list(requirements)


def explain_missing_capabilities(missing: Collection[str], role: str) -> str:
    """Return a clause that says that no host has these capabilities; two hosts may have one each."""
    single = "single " if len(missing) > 1 else ""
    return f"no {single}worker host of role {role} has {' and '.join(missing)}"


def describe_capability_remedy(missing: Collection[str], role: str) -> str:
    """Return how to provide missing capabilities, as a sentence without a period."""
    return f'Start a worker host of role {role} with WEIR_CAPABILITIES="{" ".join(missing)}", or remove the requirement'


def parse_role(hostname: str) -> str:
    """Return the role of a host: that of `jobs@machine` is jobs."""
    return hostname.partition("@")[0]
