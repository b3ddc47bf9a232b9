"""Consumer groups that read an external log, and their lags, in the snapshot."""

from common.stored_document import StoredDocument
from workers.documents.queues import Trend


class PartitionLag(StoredDocument, frozen=True, kw_only=True):
    """One partition as a group reads it.

    committed: the offset of its next event; end: of the next event to be appended. lag_events None: the partition does
    not count, and `said` says why. lag_seconds: the age of the next event; at_least: it may be older. expired_events:
    events that retention deleted before the group read them. member: its consumer.
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
    """One consumer of a group: its client id, its host, and its number of partitions."""

    client: str
    host: str = ""
    partitions: int = 0


class ConsumerGroup(StoredDocument, frozen=True, kw_only=True):
    """A consumer group.

    state: as the broker reports it. Figures are of the partitions that count: lag_events their sum, lag_seconds the
    maximum (at_least: it may be more). in_per_second, out_per_second: rates of appended and read events, over half a
    minute. clearing_seconds: time until the lag is zero at the present rates; None while it does not shrink. topics:
    topics that it reads. partitions: those with the largest lags.
    partition_count: all except those of deleted topics and those that the group no longer reads; while it rebalances or
    has no members, those of its topics.
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
