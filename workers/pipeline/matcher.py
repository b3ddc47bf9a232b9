"""The matcher: finds SEQ patterns in events that come in event-time order. Pure: no Spark, no Redis, no
clock.

Consumption `once` (Röger et al. II and IX-C, the contract's `match`): per key several state machines are open
at a time; an event goes to the most advanced machine that can take it, the oldest among equals, else opens a
new one if it can start the pattern. It belongs to one match at most. A machine whose first event is more than
the window back is discarded.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.pattern import Pattern

Event = tuple[Any, ...]  # (time in µs, …): what a match reports of an event; JSON values


@dataclass(frozen=True)
class Match:
    """A completed pattern: its key and the contributing events in order. `quiet`: counted, not emitted."""

    key: str
    events: tuple[Event, ...]
    quiet: bool = False


@dataclass
class KeyMachines:
    """The open machines of one key. `stages[i]` holds those that have taken i + 1 events, oldest first.

    A machine enters a stage as the oldest of the stage before, so every stage stays in order of first events:
    the oldest among equals is always on the left.
    """

    stages: list[deque[tuple[Event, ...]]]
    last_emitted_us: int | None = None

    def empty(self) -> bool:
        return not any(self.stages)


@dataclass
class SequenceMatcher:
    """Holds the machines of one pattern, of all keys it is given."""

    pattern: Pattern
    keys: dict[str, KeyMachines] = field(default_factory=dict)

    def take(self, key: str, mask: int, event: Event) -> Match | None:
        """One event, in event-time order; `mask` has the bits of the symbols it satisfies. The match it
        completes, if any.
        """
        machines = self.keys.get(key)
        if machines is None:
            machines = self.keys[key] = KeyMachines([deque() for _ in self.pattern.step_bits[1:]])
        taken = self._advance(machines, mask, event)
        if taken is None:
            return None
        return Match(key, taken, self._is_quiet(machines, event[0]))

    def _advance(self, machines: KeyMachines, mask: int, event: Event) -> tuple[Event, ...] | None:
        """Gives the event to a machine; its events when that completed it."""
        bits, stages = self.pattern.step_bits, machines.stages
        earliest_us = event[0] - self.pattern.within_us
        for index in range(len(stages) - 1, -1, -1):
            if not mask & bits[index + 1]:
                continue
            stage = stages[index]
            while stage and stage[0][0][0] < earliest_us:
                stage.popleft()
            if stage:
                return self._place(stages, index + 1, (*stage.popleft(), event))
        return self._place(stages, 0, (event,)) if mask & bits[0] else None

    @staticmethod
    def _place(
        stages: list[deque[tuple[Event, ...]]], index: int, taken: tuple[Event, ...]
    ) -> tuple[Event, ...] | None:
        if index == len(stages):
            return taken
        stages[index].append(taken)
        return None

    def _is_quiet(self, machines: KeyMachines, time_us: int) -> bool:
        last_us = machines.last_emitted_us
        if last_us is not None and time_us - last_us < self.pattern.quiet_us:
            return True
        machines.last_emitted_us = time_us
        return False

    def forget(self, now_us: int) -> None:
        """Discards what no event from `now_us` on can complete, and keys of which nothing is left."""
        earliest_us = now_us - self.pattern.within_us
        for key, machines in list(self.keys.items()):
            for stage in machines.stages:
                while stage and stage[0][0][0] < earliest_us:
                    stage.popleft()
            last_us = machines.last_emitted_us
            if last_us is not None and now_us - last_us >= self.pattern.quiet_us:
                machines.last_emitted_us = None
            if machines.empty() and machines.last_emitted_us is None:
                del self.keys[key]

    def snapshot(self) -> dict[str, Any]:
        """Its state as JSON values; `resume` continues exactly there."""
        return {
            key: [[list(stage) for stage in machines.stages], machines.last_emitted_us]
            for key, machines in self.keys.items()
        }

    @classmethod
    def resume(cls, pattern: Pattern, state: dict[str, Any] | None) -> "SequenceMatcher":
        """A matcher from a snapshot, or a new one from None."""
        keys = {
            key: KeyMachines([deque(_machines(stage)) for stage in stages], last_us)
            for key, (stages, last_us) in (state or {}).items()
        }
        return cls(pattern, keys)


def _machines(stage: Iterable[Any]) -> Iterator[tuple[Event, ...]]:
    for machine in stage:
        yield tuple(tuple(event) for event in machine)


def masks(pattern: Pattern, batch: pa.RecordBatch) -> pa.Array:
    """int64 per row: bit i is set where the row satisfies symbol i. 0: no candidate of this pattern."""
    columns = {name: batch.column(name) for name in pattern.columns}
    total = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    for index, symbol in enumerate(pattern.symbols):
        held = pattern.defines[symbol].mask(columns, batch.num_rows)
        bit = pc.if_else(held, pa.scalar(1 << index, pa.int64()), pa.scalar(0, pa.int64()))
        total = pc.bit_wise_or(total, bit)
    return pc.if_else(pc.is_valid(columns[pattern.key or ""]), total, pa.scalar(0, pa.int64()))


def match_all(pattern: Pattern, batch: pa.RecordBatch) -> list[Match]:
    """All matches of a closed set of events (columns `time` in µs and `id`, and those the pattern reads), in
    order of completion.
    """
    ordered = batch.take(pc.sort_indices(batch, sort_keys=[("time", "ascending"), ("id", "ascending")]))
    matcher = SequenceMatcher(pattern)
    rows = zip(
        ordered.column(pattern.key).to_pylist(),
        masks(pattern, ordered).to_pylist(),
        ordered.column("time").cast(pa.int64()).to_pylist(),
        ordered.column("id").to_pylist(),
        strict=True,
    )
    found = (matcher.take(key, mask, (time_us, id_)) for key, mask, time_us, id_ in rows if mask)
    return [match for match in found if match is not None]
