"""Worker hosts in the snapshot, and their own reports (`weir:hosts`)."""

from msgspec.structs import force_setattr

from common.stored_document import StoredDocument
from workers.documents.queues import PauseStatus


class PoolWork(StoredDocument, frozen=True, kw_only=True):
    """Work that a host's workers completed while all slots were busy (`workers.pool.departures`).

    recent_seconds: times between completions, the newest with number `seq`. full_seconds: total time with all slots
    busy since the start.
    """

    seq: int | None = None
    recent_seconds: list[float] = []
    full_seconds: float | None = None
    per_second: float | None = None


class WorkerHost(StoredDocument, frozen=True, kw_only=True):
    """A worker host.

    slots: number of processes; busy: those busy now; at_work: the mean number of busy processes in the second before
    the report; for old versions, busy. reserved: tasks delivered to the host and not finished, including running ones.
    drained: it takes no new work. started_with: slots at its start. `trouble`: why the pool differs from its setting,
    "" where it does not. ahead_seconds: how far the host's clock is ahead of the control server's.
    """

    role: str = ""
    slots: int = 0
    busy: int = 0
    at_work: float | None = None
    reserved: int = 0
    drained: bool = False
    pid: int | None = None
    resizable: bool | None = None
    started_with: int | None = None
    trouble: str | None = None
    done: PoolWork | None = None
    ahead_seconds: float | None = None

    def __post_init__(self) -> None:
        """Fill `at_work` for old versions, which only report the processes that are busy at that instant."""
        if self.at_work is None:
            force_setattr(self, "at_work", float(self.busy))


class ReportedHost(WorkerHost, frozen=True, kw_only=True):
    """A host's report. at: seconds since 1970, by the host's clock."""

    at: float


class HostStatus(WorkerHost, frozen=True, kw_only=True):
    """A host in the snapshot.

    age_seconds: since its last report. draining: it takes no new work and finishes running tasks.
    """

    age_seconds: float | None = None
    draining: PauseStatus | None = None


def parse_role(hostname: str) -> str:
    """Return the role of a host: that of `jobs@machine` is jobs."""
    return hostname.partition("@")[0]
