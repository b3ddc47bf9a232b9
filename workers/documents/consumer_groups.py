"""Consumer groups that read an external log, and their lags, in the snapshot."""

from typing import Annotated

from common.stored_document import PerSecond, Seconds, StoredDocument, describe, describe_metric
from workers.documents.queues import Trend


class PartitionLag(StoredDocument, frozen=True, kw_only=True):
    """One partition as a consumer group reads it."""

    topic: str
    partition: int
    committed: Annotated[int | None, describe("The offset of the group's next event.")] = None
    end: Annotated[int | None, describe("The offset of the next event to be appended.")] = None
    lag_events: Annotated[int | None, describe("null: not counted; `said` has the reason.")] = None
    lag_seconds: Annotated[Seconds | None, describe("The age of the group's next event, s.")] = None
    at_least: Annotated[bool, describe("Whether the lag may be larger.")] = False
    expired_events: Annotated[int, describe("Number of events that expired before the group read them.")] = 0
    member: Annotated[str, describe("The consumer that reads the partition.")] = ""
    said: str = ""


class GroupMember(StoredDocument, frozen=True, kw_only=True, gc=False):
    """A consumer of a group."""

    client: str
    host: str = ""
    partitions: int = 0


class ConsumerGroup(StoredDocument, frozen=True, kw_only=True):
    """A consumer group of a plant's logs, and its lag, of the partitions that count."""

    state: Annotated[str, describe("State, as the broker reports it.")] = ""
    members: list[GroupMember] = []
    topics: Annotated[list[str], describe("The topics that it reads.")] = []
    lag_events: Annotated[int | None, describe_metric("Events that the consumer group has not read yet")] = None
    lag_seconds: Annotated[Seconds | None, describe_metric("Age of the next event of the consumer group")] = None
    at_least: Annotated[bool, describe("Whether the lag may be larger.")] = False
    trend: Annotated[Trend | None, describe("Trend of the lag in events.")] = None
    in_per_second: Annotated[PerSecond | None, describe_metric("Events appended per second")] = None
    out_per_second: Annotated[PerSecond | None, describe_metric("Events read per second")] = None
    clearing_seconds: Annotated[
        Seconds | None, describe("Time to process the backlog at the current rates, s; null: it is not shrinking.")
    ] = None
    expired_events: int = 0
    rebalances: Annotated[int, describe("Rebalances of the last hour that Weir has seen.")] = 0
    rebalance_seconds: Annotated[
        Seconds | None, describe("Median duration of these rebalances, s; null: no duration is known.")
    ] = None
    partition_count: Annotated[
        int, describe("Partitions that it reads; while it rebalances or has no members, those of its topics.")
    ] = 0
    partitions: Annotated[list[PartitionLag], describe("The partitions that are furthest behind.")] = []
