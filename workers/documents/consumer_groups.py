"""Groups of consumers that read somebody else's log, and how far each is behind, as the snapshot has them."""

from queues.stored_document import StoredDocument
from workers.documents.queues import Trend


class PartitionLag(StoredDocument, frozen=True, kw_only=True):
    """One partition as a group reads it. committed: the offset of its next event; end: of the next one to be
    appended. lag_events None: it does not count, and `said` says why. lag_seconds: the age of the next event;
    at_least: it may be older. expired_events: that retention took before the group read them. member: who
    reads it.
    """

    topic: str
    partition: int
    committed: int | None = None
    end: int | None = None
    lag_events: int | None = None
    lag_seconds: float | None = None
    at_least: bool = False
    expired_events: int = 0
    member: str = ""
    said: str = ""


class GroupMember(StoredDocument, frozen=True, kw_only=True, gc=False):
    """One consumer of a group: its client id, from which host, and how many partitions it has."""

    client: str
    host: str = ""
    partitions: int = 0


class ConsumerGroup(StoredDocument, frozen=True, kw_only=True):
    """state: as the broker says. Figures are of the partitions that count: lag_events their sum, lag_seconds
    of the one that is furthest behind (at_least: it may be more). in_per_second, out_per_second: what is
    appended to them and read from them, over half a minute. clearing_seconds: until nothing waits, at the
    present rates; None while it does not shrink. topics: those it reads. partitions: the worst ones.
    partition_count: of all, but those of topics that are gone and those that it has left;
    of its topics while it rebalances or has no members.
    """

    state: str = ""
    members: list[GroupMember] = []
    topics: list[str] = []
    lag_events: int | None = None
    lag_seconds: float | None = None
    at_least: bool = False
    trend: Trend | None = None
    in_per_second: float | None = None
    out_per_second: float | None = None
    clearing_seconds: float | None = None
    expired_events: int = 0
    partition_count: int = 0
    partitions: list[PartitionLag] = []
