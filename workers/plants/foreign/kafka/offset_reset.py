"""Resets of a consumer group's offsets: the plan, its execution, and its verification.

The plan says what each partition would skip or read again. Kafka changes offsets only of an empty group, so a plan of a
group with members is refused. A plan has the offsets of now and then; it is executed only if the offsets of now are
still the same, and read back afterwards. To undo a reset, reset the group to the former offsets.

Events are counted by offsets. Compacted events, and the markers of transactions, also have offsets, so the actual
numbers may be smaller.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from common.errors import BadInput
from workers.plants.foreign.kafka.cluster import KafkaCluster
from workers.plants.foreign.kafka.group_lag import EMPTY, Offsets, Partition
from workers.plants.plant import InvalidPlantResponse

EARLIEST, LATEST = "earliest", "latest"
TARGET = f"must be {EARLIEST}, {LATEST}, a time such as 2026-11-30T20:00:00Z, or topic/partition=offset pairs"


@dataclass(frozen=True)
class PartitionReset:
    """One partition. now: the committed offset; None: none. then: the offset after the reset.

    skipped: events that the group would not read; again: events that it would read a second time.
    """

    topic: str
    partition: int
    now: int | None
    then: int
    skipped: int
    again: int


@dataclass(frozen=True)
class OffsetReset:
    """A plan for a group. target: what was requested, such as a time."""

    group: str
    target: str
    partitions: tuple[PartitionReset, ...]

    @property
    def skipped(self) -> int:
        return sum(row.skipped for row in self.partitions)

    @property
    def again(self) -> int:
        return sum(row.again for row in self.partitions)

    def to_document(self) -> dict[str, Any]:
        """Return the plan as a document. Users approve the plan by the hash of this document."""
        return {"group": self.group, "target": self.target, "partitions": [asdict(row) for row in self.partitions]}


def plan_reset(cluster: KafkaCluster, group: str, target: str) -> OffsetReset:
    """Return the plan of a reset; change nothing.

    Raise `BadInput` naming group or target, `PlantUnavailable`, and `InvalidPlantResponse`.
    """
    state, members, committed = cluster.read_group(group)
    if state != EMPTY:
        count = f"{members} member{'' if members == 1 else 's'}"
        raise BadInput(
            "group",
            f"{group[:100]} is {state} and has {count}. Stop its consumers first. Kafka changes the offsets only of an"
            " empty group.",
        )
    if not committed:
        raise BadInput("group", f"{group[:100]} has no committed offsets that can be reset. Choose another group.")
    wanted = _find_offsets(cluster, committed, target)
    offsets = cluster.read_ranges(wanted)
    if missing := sorted(wanted.keys() - offsets.keys()):
        topic, partition = missing[0]
        raise InvalidPlantResponse(
            f"The offsets of partition {partition} of topic {topic} can't be read now. Try again in a few seconds."
        )
    rows = [
        build_partition_reset(partition, committed.get(partition), offset, offsets[partition])
        for partition, offset in sorted(wanted.items())
    ]
    return OffsetReset(group, target.strip(), tuple(rows))


def execute_reset(cluster: KafkaCluster, plan: OffsetReset) -> None:
    """Change the offsets, and read them back. Raise `InvalidPlantResponse` if the group has others afterwards."""
    then = {(row.topic, row.partition): row.then for row in plan.partitions}
    cluster.change_offsets(plan.group, then)
    _, _, committed = cluster.read_group(plan.group)
    wrong = [partition for partition, offset in then.items() if committed.get(partition) != offset]
    if wrong:
        topic, partition = wrong[0]
        raise InvalidPlantResponse(
            f"{len(wrong)} of {len(then)} partitions have other offsets than the plan, such as partition {partition} of"
            f" topic {topic}: {committed.get(wrong[0])} instead of {then[wrong[0]]}."
        )


def build_partition_reset(partition: Partition, now: int | None, then: int, offsets: Offsets) -> PartitionReset:
    """Return what a partition would skip or read again; `then` is limited to the existing events.

    Without a committed offset, the group's reset policy decides where it starts, so nothing can be counted.
    """
    then = min(max(then, offsets.begin), offsets.end)
    reads = then if now is None else min(max(now, offsets.begin), offsets.end)
    return PartitionReset(*partition, now, then, skipped=max(0, then - reads), again=max(0, reads - then))


def _find_offsets(cluster: KafkaCluster, committed: Mapping[Partition, int], target: str) -> dict[Partition, int]:
    """Return the requested offset of each partition, before it is limited to existing events."""
    text = target.strip()
    if text in (EARLIEST, LATEST):
        ranges = cluster.read_ranges(committed)
        return {partition: row.begin if text == EARLIEST else row.end for partition, row in ranges.items()}
    if "=" in text:
        return _parse_offsets(text, committed)
    at = _parse_time(text)
    found = cluster.ends_at(dict.fromkeys(committed, at))
    ends = cluster.read_ranges(committed)
    # No event at or after the time: the group continues at the end.
    return {
        partition: ends[partition].end if (offset := found[partition]) is None else offset
        for partition in committed
        if partition in found and partition in ends
    }


def _parse_time(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput("target", f"{TARGET}, not {text[:60]!r}.") from None
    if at.tzinfo is None:
        raise BadInput("target", f"must have a time zone, such as 2026-11-30T20:00:00Z, not {text[:60]!r}.")
    return at.timestamp()


def _parse_offsets(text: str, committed: Mapping[Partition, int]) -> dict[Partition, int]:
    offsets: dict[Partition, int] = {}
    for word in text.split(","):
        name, _, number = word.strip().rpartition("=")
        topic, _, partition = name.rpartition("/")
        if not (topic and partition.isdecimal() and number.isdecimal()):
            raise BadInput("target", f"{TARGET}, not {word.strip()[:60]!r}.")
        if (topic, int(partition)) not in committed:
            raise BadInput(
                "target", f"names {name[:60]}, for which the group has no committed offset. Leave this partition out."
            )
        offsets[topic, int(partition)] = int(number)
    return offsets
