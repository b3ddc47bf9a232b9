"""The lag of groups in events and in seconds, from one reading of a cluster to the next.

The lag is computed from what a group would read next:

    next    = max(committed, begin)        expired or deleted events don't count as waiting, but are reported
    events  = max(0, end - next)
    seconds = committed_at - appended(next)        0 if nothing waits

Lag that isn't real (phantom lag) is not counted, and `said` says why: partitions of a topic that is gone; partitions
that no member of a stable group reads (the group has left the topic, its offsets stay for days). No group member reads
anything during a rebalance, so the topics that the group read when it was last stable count.

An offset beyond the end belongs to a topic that was deleted and created again: nothing waits. The history of such a
topic restarts.

The lag of a partition whose leader is unavailable has a minimum from its history. The rates of appended and read events
of the group are unknown meanwhile, and also if its partitions are too many to be followed.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from common.stored_document import replace_fields
from workers.documents.consumer_groups import ConsumerGroup, GroupMember, PartitionLag
from workers.plants.foreign.kafka.offset_history import OffsetHistory

Partition = tuple[str, int]  # (topic, number)

STABLE, EMPTY, UNKNOWN = "stable", "empty", "unknown"
WINDOW_SECONDS = 30.0
MAX_SHOWN = 50  # partitions shown per group
GONE = "the topic no longer exists; its committed offsets are ignored"
UNREADABLE = "the broker can't report its offsets now"
NOT_COMMITTED = "no committed offset yet: the group's reset policy decides where it starts"
UNREAD = "no group member reads the partition; its offset is kept until it expires"
BEYOND = "the committed offset is beyond the end: the topic was recreated or truncated"
LOST = "{count:,} events expired before they were read"
OLDER = "older than the observed history, and the broker reports no timestamps"


@dataclass(frozen=True)
class Offsets:
    """The offsets of one partition: its first existing event, and the next one to be appended."""

    begin: int
    end: int


@dataclass(frozen=True)
class GroupReader:
    """A consumer, and the partitions that are assigned to it."""

    client: str
    host: str
    partitions: frozenset[Partition]


@dataclass(frozen=True)
class Group:
    """A consumer group.

    committed: partition → the offset of the next event, if one was committed. beyond: number of partitions with a
    committed offset whose own offsets are not read, because they are too many.
    """

    state: str
    members: tuple[GroupReader, ...] = ()
    committed: Mapping[Partition, int] = field(default_factory=dict)
    beyond: int = 0

    @cached_property
    def assigned(self) -> dict[Partition, GroupReader]:
        return {partition: member for member in self.members for partition in member.partitions}

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics whose partitions it reads now."""
        return frozenset(topic for topic, _ in self.assigned)


@dataclass(frozen=True)
class ClusterReading:
    """One reading.

    described_at: when the states and members of the groups were read. ends_at: when the offsets of the partitions were
    read. committed_at: when those of the groups were read, which is
    later, so that a group that keeps up is never shown as behind because of events in between.
    topics: topic → its number of partitions.
    """

    ends_at: float
    committed_at: float
    topics: Mapping[str, int]
    offsets: Mapping[Partition, Offsets]
    groups: Mapping[str, Group]
    described_at: float = 0.0

    def has(self, partition: Partition) -> bool:
        """Return whether the topic exists and has this partition."""
        topic, number = partition
        return number < self.topics.get(topic, 0)


@dataclass(frozen=True)
class Question:
    """The question when the event at `offset` was appended, if the history doesn't say or isn't precise.

    The time is between `after` (None: unknown) and `before`.
    """

    partition: Partition
    offset: int
    after: float | None
    before: float


class GroupLags:
    """The lags of one cluster: `follow` takes each reading, `groups` evaluates the last one."""

    def __init__(self) -> None:
        self._readings: deque[ClusterReading] = deque()
        self._histories: dict[Partition, OffsetHistory] = {}
        self._topics: dict[str, frozenset[str]] = {}  # topics of each group when it was last stable

    def follow(self, reading: ClusterReading) -> None:
        """Take a reading that is later than those before.

        If a clock was set back, the former readings are discarded: the events between have no time.
        """
        last = self._readings[-1] if self._readings else reading
        for partition in list(self._histories):
            if not reading.has(partition):
                del self._histories[partition]
        for partition, offsets in reading.offsets.items():
            self._histories.setdefault(partition, OffsetHistory()).add(reading.ends_at, offsets.end)
        # Topics whose partitions a group reads, or will read again; empty: unknown.
        self._topics = {
            name: group.topics
            if group.state == STABLE
            else (frozenset() if group.state == EMPTY else self._topics.get(name, frozenset()))
            for name, group in reading.groups.items()
        }
        if reading.ends_at < last.ends_at or reading.committed_at < last.committed_at:
            self._readings.clear()
        self._readings.append(reading)
        oldest = reading.committed_at - WINDOW_SECONDS
        while len(self._readings) > 2 and self._readings[1].committed_at <= oldest:
            self._readings.popleft()

    def get_history(self, partition: Partition) -> OffsetHistory:
        """Return the history of a partition of the last reading."""
        return self._histories[partition]

    def end(self, partition: Partition) -> int:
        """Return the end offset of a partition of the last reading."""
        return self._readings[-1].offsets[partition].end

    def list_questions(self, gap_share: float, least_gap_seconds: float) -> list[Question]:
        """Return the questions that the histories don't answer precisely, each event once.

        That is the case if the gap in which an event was appended is more than `gap_share` of its age, and more than
        `least_gap_seconds`.
        """
        reading = self._readings[-1]
        questions: dict[tuple[Partition, int], Question] = {}
        for name, group in reading.groups.items():
            for partition in group.committed:
                waits = self._read_waiting(name, partition)
                if waits is None or waits.begin >= waits.end:
                    continue
                history, offset = self._histories[partition], waits.begin
                appended, begins_at = history.find_append_time(offset), history.begins_at
                if appended is None:
                    if begins_at is not None:
                        questions[partition, offset] = Question(partition, offset, None, begins_at)
                elif appended.gap_seconds > max(least_gap_seconds, gap_share * (reading.committed_at - appended.at)):
                    questions[partition, offset] = Question(partition, offset, appended.after, appended.before)
        return list(questions.values())

    def list_groups(self) -> dict[str, ConsumerGroup]:
        """Return the groups by name, as of the last reading."""
        return {name: self._group(name) for name in sorted(self._readings[-1].groups)}

    def _group(self, name: str) -> ConsumerGroup:
        group = self._readings[-1].groups[name]
        rows = [self._build_partition_lag(name, partition) for partition in sorted({*group.committed, *group.assigned})]
        counted = [row for row in rows if row.lag_events is not None]
        lag_events = sum(row.lag_events or 0 for row in counted) if counted else None
        is_part = group.beyond > 0 or any(row.said == UNREADABLE for row in rows)
        partitions = [(row.topic, row.partition) for row in counted]
        into, out = (None, None) if is_part else self._compute_rates(name, partitions)
        return ConsumerGroup(
            state=group.state,
            members=[
                GroupMember(client=member.client, host=member.host, partitions=len(member.partitions))
                for member in group.members
            ],
            topics=sorted({row.topic for row in counted}),
            lag_events=lag_events,
            lag_seconds=max((row.lag_seconds or 0.0 for row in counted), default=None),
            at_least=is_part or any(row.at_least for row in counted),
            in_per_second=into,
            out_per_second=out,
            clearing_seconds=_compute_clearing_seconds(lag_events, into, out),
            expired_events=sum(row.expired_events for row in counted),
            partition_count=self._count_partitions(name, rows),
            partitions=sorted(
                rows, key=lambda row: (-(row.lag_seconds or 0.0), -(row.lag_events or 0), row.topic, row.partition)
            )[:MAX_SHOWN],
        )

    def _count_partitions(self, name: str, rows: Sequence[PartitionLag]) -> int:
        """Return the number of partitions that the consumers of a group may share.

        During a rebalance, or without consumers, these are all partitions of the topics that it reads: no partition is
        assigned then, and some may have no committed offset yet.
        """
        reading = self._readings[-1]
        if reading.groups[name].state == STABLE:
            return sum(row.said not in (GONE, UNREAD) for row in rows)
        topics = self._topics[name] or {row.topic for row in rows}
        return sum(reading.topics.get(topic, 0) for topic in topics)

    def _build_partition_lag(self, name: str, partition: Partition) -> PartitionLag:
        reading = self._readings[-1]
        group, offsets = reading.groups[name], reading.offsets.get(partition)
        committed, member = group.committed.get(partition), group.assigned.get(partition)
        row = PartitionLag(
            topic=partition[0],
            partition=partition[1],
            committed=committed,
            end=offsets.end if offsets else None,
            member=member.client if member else "",
        )
        waits = self._read_waiting(name, partition)
        if waits is None or committed is None:
            row = replace_fields(row, said=self._explain_uncounted(name, partition))
            return self._estimate_without_leader(row, partition) if row.said == UNREADABLE else row
        before = self._readings[-2].groups.get(name) if len(self._readings) > 1 else None
        if before is not None and before.committed.get(partition, 0) > reading.offsets[partition].end:
            return replace_fields(row, lag_events=0, lag_seconds=0.0, said=BEYOND)
        expired = max(0, waits.begin - committed)
        row = replace_fields(
            row,
            lag_events=max(0, waits.end - waits.begin),
            lag_seconds=0.0,
            expired_events=expired,
            said=LOST.format(count=expired) if expired else "",
        )
        return self._add_age(row, partition, waits.begin) if row.lag_events else row

    def _estimate_without_leader(self, row: PartitionLag, partition: Partition) -> PartitionLag:
        """Return the minimum lag from the last known offset; a partition without history does not count."""
        history, committed = self._histories.get(partition), row.committed
        if history is None or history.newest is None or committed is None:
            return row
        waiting = max(0, history.newest - committed)
        row = replace_fields(row, lag_events=waiting, lag_seconds=0.0)
        return replace_fields(self._add_age(row, partition, committed) if waiting else row, at_least=True)

    def _add_age(self, row: PartitionLag, partition: Partition, offset: int) -> PartitionLag:
        """Add the age of the next event to read."""
        history, now = self._histories[partition], self._readings[-1].committed_at
        if (appended := history.find_append_time(offset)) is not None:
            return replace_fields(row, lag_seconds=round(max(0.0, now - appended.at), 3))
        least = None if history.begins_at is None else round(max(0.0, now - history.begins_at), 3)
        return replace_fields(row, lag_seconds=least, at_least=True, said=row.said or OLDER)

    def _read_waiting(self, name: str, partition: Partition) -> Offsets | None:
        """Return the range that the group would read next, or None for a partition that does not count."""
        reading = self._readings[-1]
        group = reading.groups[name]
        if self._explain_uncounted(name, partition):
            return None
        offsets = reading.offsets[partition]
        return Offsets(max(group.committed[partition], offsets.begin), offsets.end)

    def _explain_uncounted(self, name: str, partition: Partition) -> str:
        """Return why a partition does not count, or "" if it counts."""
        reading, topics = self._readings[-1], self._topics[name]
        group = reading.groups[name]
        if not reading.has(partition):
            return GONE
        if partition not in group.committed:
            return NOT_COMMITTED
        is_read = partition in group.assigned if group.state == STABLE else partition[0] in topics
        if topics and not is_read:
            return UNREAD
        return "" if partition in reading.offsets else UNREADABLE

    def _compute_rates(self, name: str, partitions: Sequence[Partition]) -> tuple[float | None, float | None]:
        """Return the events appended and read per second, in the partitions that count.

        Each partition counts from the first reading of the window that has it. While a partition has one reading only,
        its rate is unknown, and so is the sum; that includes a log that was cut or created again. An offset that was
        set back counts as 0, and expired events were not read.
        """
        last = self._readings[-1]
        into, out = 0.0, list[float]()
        for partition in partitions:
            first = next((reading for reading in self._readings if _is_same_log(partition, reading, last)), last)
            if first is last:
                return None, None
            came = last.offsets[partition].end - first.offsets[partition].end
            into += came / max(last.ends_at - first.ends_at, 1e-3)
            if (read := self._read_per_second(name, partition)) is not None:
                out.append(read)
        return round(into, 3) if partitions else None, round(sum(out), 3) if out else None

    def _read_per_second(self, name: str, partition: Partition) -> float | None:
        """Return the rate of a partition, or None if nothing was committed before."""
        last = self._readings[-1]
        for first in self._readings:
            before = first.groups.get(name)
            if first is last or before is None or partition not in before.committed:
                continue
            if not _is_same_log(partition, first, last):
                continue
            begin = max(before.committed[partition], last.offsets[partition].begin)
            read = max(0, last.groups[name].committed[partition] - begin)
            return read / max(last.committed_at - first.committed_at, 1e-3)
        return None


def _is_same_log(partition: Partition, first: ClusterReading, last: ClusterReading) -> bool:
    """Return whether both readings are of the same log: that of a topic that was made anew ends earlier."""
    return partition in first.offsets and last.offsets[partition].end >= first.offsets[partition].end


def _compute_clearing_seconds(lag: int | None, into: float | None, out: float | None) -> float | None:
    if not lag:
        return None if lag is None else 0.0
    if into is None or out is None or out <= into:
        return None
    return round(lag / (out - into), 1)
