"""What a Kafka cluster says at one instant: topics with their offsets, groups with what they committed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

Partition = tuple[str, int]  # topic, number

STABLE, EMPTY, UNKNOWN = "stable", "empty", "unknown"


@dataclass(frozen=True)
class Offsets:
    """Of one partition: the first event that is still there, and the one that comes next."""

    begin: int
    end: int


@dataclass(frozen=True)
class GroupReader:
    """A consumer, and the partitions it was given."""

    client: str
    host: str
    partitions: frozenset[Partition]


@dataclass(frozen=True)
class Group:
    """committed: partition → the offset of the next event; only where one was committed. beyond: partitions
    where one was, whose own offsets are not read, being too many.
    """

    state: str
    members: tuple[GroupReader, ...] = ()
    committed: Mapping[Partition, int] = field(default_factory=dict)
    beyond: int = 0

    @cached_property
    def assigned(self) -> dict[Partition, GroupReader]:
        """Who reads each partition."""
        return {partition: member for member in self.members for partition in member.partitions}

    @property
    def topics(self) -> frozenset[str]:
        """Of which it reads partitions now."""
        return frozenset(topic for topic, _ in self.assigned)


@dataclass(frozen=True)
class ClusterReading:
    """One reading. ends_at: when the offsets of the partitions were read, committed_at: those of the groups,
    which are read after them, so that a group that keeps up is never shown behind for what came in between.
    topics: topic → its id ("" where the broker has none) and number of partitions.
    """

    ends_at: float
    committed_at: float
    topics: Mapping[str, tuple[str, int]]
    offsets: Mapping[Partition, Offsets]
    groups: Mapping[str, Group]

    def has(self, partition: Partition) -> bool:
        """Whether its topic is there, and has that many partitions."""
        topic, number = partition
        return topic in self.topics and number < self.topics[topic][1]

    def id_of(self, partition: Partition) -> str:
        """Of its topic; "" where there is none."""
        return self.topics.get(partition[0], ("", 0))[0]
