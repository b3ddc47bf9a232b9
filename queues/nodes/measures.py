"""Attribution of a node server's work to containers: its CPU time, divided among the queues it serves. Pure.

A server says how long it spent in each command (INFO commandstats, µs), not for which queue. For an interval:

    write share of container i = (blocks_i / Σ blocks + bytes_i / Σ bytes) / 2   of what was inserted
    read share  of container i = the same                                       of what was removed
    weight_i = W * write_i + R * read_i      W: µs in writing commands, R: µs in reading ones
    server_time_share_i = cpu * weight_i / Σ weight

The shares add up to `cpu`, the share of a core that the server used in total (including parsing and sending, which no
command accounts for). The division is half by blocks and half by bytes, since a command has a fixed cost and a cost per
byte. If nothing moved, nothing is attributed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from queues.segments.gauge import Gauge

# XADD inside a script (a requeued or transferred block) is counted with the script, too; these are few.
WRITING = ("xadd", "hincrby", "exec")
# Workers' scripts and reads. The commands that scripts call are in the scripts' time already, so XRANGE and
# XACK are left out.
READING = ("evalsha", "eval", "xreadgroup")
Counters = Mapping[str, float | int | None]


@dataclass(frozen=True)
class CommandTime:
    """Cumulative µs in the commands that write blocks, and in those that read and remove them."""

    write_us: int = 0
    read_us: int = 0

    @classmethod
    def parse(cls, commandstats: Mapping[str, Mapping[str, int]]) -> "CommandTime":
        """Parse INFO commandstats: {"cmdstat_xadd": {"usec": …}, …}."""

        def total(names: tuple[str, ...]) -> int:
            return sum(int(commandstats.get(f"cmdstat_{name}", {}).get("usec", 0)) for name in names)

        return cls(total(WRITING), total(READING))


def compute_time_shares(
    before: Mapping[str, Counters],
    now: Mapping[str, Counters],
    spent_before: CommandTime,
    spent_now: CommandTime,
    cpu: float,
) -> dict[str, float]:
    """Return {queue: share of one core}, from cumulative counters and command times at two instants."""
    write_us = max(0, spent_now.write_us - spent_before.write_us)
    read_us = max(0, spent_now.read_us - spent_before.read_us)
    writes, reads = (_compute_queue_parts(before, now, "inserted"), _compute_queue_parts(before, now, "removed"))
    weights = {queue: write_us * writes[queue] + read_us * reads[queue] for queue in now}
    total = sum(weights.values())
    return {queue: cpu * weight / total if total else 0.0 for queue, weight in weights.items()}


def _compute_queue_parts(before: Mapping[str, Counters], now: Mapping[str, Counters], verb: str) -> dict[str, float]:
    """Return each queue's part of what was inserted or removed, half by blocks and half by bytes."""
    parts = dict.fromkeys(now, 0.0)
    for unit in ("blocks", "bytes"):
        grown = {queue: _growth(before.get(queue, {}), now[queue], f"{verb}_{unit}") for queue in now}
        total = sum(grown.values())
        for queue, growth in grown.items():
            parts[queue] += growth / total / 2 if total else 0.0
    return parts


def _growth(before: Counters, now: Counters, name: str) -> float:
    """Return the growth of a counter. A counter that fell was reset, so all it counts is new."""
    old, new = before.get(name) or 0, now.get(name) or 0
    return new - old if new >= old else new


# How long the oldest entry of a segment has waited, even if the node's clock was set back.
#
# An entry's id is the instant at which it was stored, and ids only rise. After a clock is set back by ten minutes, new
# entries have ids in the future for ten minutes. The observer then counts from when it first saw the segment like this,
# or from when everything present at that time had gone, whichever is later.


@dataclass(frozen=True)
class ObservedSegment:
    """The segment at an instant: how many blocks had been inserted into it."""

    inserted_blocks: int
    at_seconds: float


@dataclass
class WaitingAges:
    """The marks of one node's segments, by queue."""

    marks: dict[str, ObservedSegment] = field(default_factory=dict)

    def observe(self, queue: str, gauge: Gauge, now_seconds: float) -> float | None:
        """Return the age to report for a gauge; now_seconds is monotonic."""
        age: float | None = gauge["oldest_seconds"]
        if age is None or age >= 0:
            self.marks.pop(queue, None)
            return age
        inserted = int(gauge["inserted_blocks"] or 0)
        left = inserted - int(gauge["length_blocks"] or 0)
        mark = self.marks.get(queue)
        if mark is None or left >= mark.inserted_blocks or inserted < mark.inserted_blocks:
            mark = self.marks[queue] = ObservedSegment(inserted, now_seconds)
        return now_seconds - mark.at_seconds
