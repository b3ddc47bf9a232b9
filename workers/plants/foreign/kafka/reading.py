"""The state of a Kafka cluster at one instant: topics, groups, and their offsets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

Partition = tuple[str, int]  # (topic, number)

STABLE, EMPTY, UNKNOWN = "stable", "empty", "unknown"


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
        """Return the reader of each partition."""
        return {partition: member for member in self.members for partition in member.partitions}

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics whose partitions it reads now."""
        return frozenset(topic for topic, _ in self.assigned)


@dataclass(frozen=True)
class ClusterReading:
    """One reading.

    ends_at: when the offsets of the partitions were read. committed_at: when those of the groups were read, which is
    later, so that a group that keeps up is never shown as behind because of events in between.
    topics: topic → its id ("" if the broker has none) and number of partitions.
    """

    ends_at: float
    committed_at: float
    topics: Mapping[str, tuple[str, int]]
    offsets: Mapping[Partition, Offsets]
    groups: Mapping[str, Group]

    def has(self, partition: Partition) -> bool:
        """Return whether the topic exists and has this partition."""
        topic, number = partition
        return topic in self.topics and number < self.topics[topic][1]

    def get_topic_id(self, partition: Partition) -> str:
        """Return the id of the topic, or "" if it has none."""
        return self.topics.get(partition[0], ("", 0))[0]
