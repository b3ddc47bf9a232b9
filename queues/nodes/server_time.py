"""Which container causes a node server's work: its CPU time, divided among the queues it serves. Pure.

A server says how long it spent in each command (INFO commandstats, µs), not for whom. Of an interval:

    write share of container i = (blocks_i / Σ blocks + bytes_i / Σ bytes) / 2   of what was inserted
    read share  of container i = the same                                       of what was removed
    weight_i = W * write_i + R * read_i      W: µs in writing commands, R: µs in reading ones
    server_time_share_i = cpu * weight_i / Σ weight

so that the shares add up to `cpu`, the share of a core the server used in all (which includes parsing and
sending, that no command accounts for). Half by blocks and half by bytes: a command costs something for
itself, and something per byte. Where nothing moved, nothing is attributed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# XADD inside a script (a requeued or transferred block) is counted with the script, too: a few among many.
WRITING = ("xadd", "hincrby", "exec")
# Workers' scripts and reads. What scripts call is inside their time already, so XRANGE and XACK are left out.
READING = ("evalsha", "eval", "xreadgroup")
Counters = Mapping[str, float | int | None]


@dataclass(frozen=True)
class CommandTime:
    """Cumulative µs in the commands that write blocks, and in those that read and remove them."""

    write_us: int = 0
    read_us: int = 0

    @classmethod
    def parse(cls, commandstats: Mapping[str, Mapping[str, int]]) -> "CommandTime":
        """From INFO commandstats: {"cmdstat_xadd": {"usec": …}, …}."""

        def total(names: tuple[str, ...]) -> int:
            return sum(int(commandstats.get(f"cmdstat_{name}", {}).get("usec", 0)) for name in names)

        return cls(total(WRITING), total(READING))


def shares(
    before: Mapping[str, Counters],
    now: Mapping[str, Counters],
    spent_before: CommandTime,
    spent_now: CommandTime,
    cpu: float,
) -> dict[str, float]:
    """{queue: share of one core}, from cumulative counters and command times at two instants."""
    write_us = max(0, spent_now.write_us - spent_before.write_us)
    read_us = max(0, spent_now.read_us - spent_before.read_us)
    writes, reads = _parts(before, now, "inserted"), _parts(before, now, "removed")
    weights = {queue: write_us * writes[queue] + read_us * reads[queue] for queue in now}
    total = sum(weights.values())
    return {queue: cpu * weight / total if total else 0.0 for queue, weight in weights.items()}


def _parts(before: Mapping[str, Counters], now: Mapping[str, Counters], verb: str) -> dict[str, float]:
    """Each queue's part of what was inserted or removed, half by blocks and half by bytes."""
    parts = dict.fromkeys(now, 0.0)
    for unit in ("blocks", "bytes"):
        grown = {queue: _growth(before.get(queue, {}), now[queue], f"{verb}_{unit}") for queue in now}
        total = sum(grown.values())
        for queue, growth in grown.items():
            parts[queue] += growth / total / 2 if total else 0.0
    return parts


def _growth(before: Counters, now: Counters, name: str) -> float:
    """A counter that fell was reset: then all it counts is new."""
    old, new = before.get(name) or 0, now.get(name) or 0
    return new - old if new >= old else new
