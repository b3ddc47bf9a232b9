"""Worker hosts as the snapshot has them, and as they report themselves (`weir:hosts`)."""

from msgspec.structs import force_setattr

from queues.stored_document import StoredDocument
from workers.documents.queues import PauseStatus


class PoolWork(StoredDocument, frozen=True, kw_only=True):
    """What a host's workers completed while all slots had work (`workers.pool.departures`).
    recent_seconds: between completions, the newest of them number `seq`. full_seconds: so long all
    had work since the start.
    """

    seq: int | None = None
    recent_seconds: list[float] = []
    full_seconds: float | None = None
    per_second: float | None = None


class WorkerHost(StoredDocument, frozen=True, kw_only=True):
    """slots: processes there are; busy: those at work; at_work: how many were, on average, in the second
    before the report; of an older Weir's, busy. reserved: tasks handed to it and not finished, those
    at work included. drained: it takes no new work. started_with: slots at its start. `trouble`: why the pool
    is not what it was set to, "" where it is. ahead_seconds: by so much the host's clock is ahead of the
    control server's.
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
        """An older Weir says only who is at work at the instant of the report."""
        if self.at_work is None:
            force_setattr(self, "at_work", float(self.busy))


class ReportedHost(WorkerHost, frozen=True, kw_only=True):
    """at: seconds since 1970, by the host's clock."""

    at: float


class HostStatus(WorkerHost, frozen=True, kw_only=True):
    """age_seconds: since its last report. draining: it takes no new work, what runs is finished."""

    age_seconds: float | None = None
    draining: PauseStatus | None = None


def role_of(hostname: str) -> str:
    """`jobs@machine` is of role jobs."""
    return hostname.partition("@")[0]
