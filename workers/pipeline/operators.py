"""The inter-event stage of one batch: candidates into their key group's reorder buffer, what the watermark
has passed through the matchers in event-time order, and state and matches written together.

An event that was stored twice (a block sent again after an unknown outcome) counts once: its second copy
either meets the first in the buffer, where equal (time, id) are one, or comes after the watermark has passed,
where it is late.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import redis

from workers.pipeline.matcher import Match, SequenceMatcher, masks
from workers.pipeline.pattern import Pattern
from workers.pipeline.state import GroupState, StateStore, Written

KEY_GROUPS = 64
CANDIDATE = pa.schema(
    [
        pa.field("time", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("type", pa.string()),
        pa.field("source", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("match_key", pa.string()),
    ]
)
STATISTICS = "pattern string, kept long, late long, candidates long, matches long, quiet long, seconds double"
_STATISTICS_ARROW = pa.schema(
    [
        pa.field("pattern", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("kept", "late", "candidates", "matches", "quiet")),
        pa.field("seconds", pa.float64()),
    ]
)


@dataclass
class PatternCount:
    candidates: int = 0
    matches: int = 0
    quiet: int = 0
    seconds: float = 0.0


@dataclass
class BatchCount:
    """What one task, or one batch, did. kept: events that passed the rules."""

    kept: int = 0
    late: int = 0
    patterns: dict[str, PatternCount] = field(default_factory=dict)

    def of(self, pattern: str) -> PatternCount:
        return self.patterns.setdefault(pattern, PatternCount())

    def rows(self) -> pa.RecordBatch:
        rows = [{"kept": self.kept, "late": self.late, "seconds": 0.0}]
        rows += [{"pattern": name, **vars(count)} for name, count in self.patterns.items()]
        return pa.RecordBatch.from_pylist(rows, schema=_STATISTICS_ARROW)

    def add(self, row: dict) -> None:
        """Adds a row that a task returned."""
        if row["pattern"] is None:
            self.kept += row["kept"]
            self.late += row["late"]
            return
        count = self.of(row["pattern"])
        count.candidates += row["candidates"]
        count.matches += row["matches"]
        count.quiet += row["quiet"]
        count.seconds += row["seconds"]


@dataclass(frozen=True)
class Stage:
    """One batch's inter-event stage; travels to the tasks. routes: the key columns of the patterns, in order;
    a row comes once for each.
    """

    control_url: str
    application: str
    run: str  # of the checkpoint: makes ids unique over resets
    batch: int
    watermark_us: int | None
    previous_watermark_us: int | None
    patterns: tuple[Pattern, ...]
    routes: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a Spark task runs (mapInArrow): all rows of its key groups, then one write."""
        count = BatchCount()
        for name in self.patterns:
            count.of(name.name)
        candidates = [found for batch in batches if (found := self.candidates(batch, count)).num_rows]
        if candidates:
            with redis.Redis.from_url(self.control_url, socket_timeout=10.0) as control:
                self.work(StateStore(control, self.application), by_group(candidates), count)
        yield count.rows()

    def settle(self, store: StateStore, count: BatchCount) -> None:
        """Groups that got nothing new, but keep events back that the watermark has passed meanwhile."""
        if self.watermark_us is not None:
            due = dict.fromkeys(store.due(self.watermark_us, self.batch))
            self.work(store, due, count)

    def candidates(self, batch: pa.RecordBatch, count: BatchCount) -> pa.RecordBatch:
        """The rows that some pattern may use, with a mask per pattern and their key group."""
        times_us = batch.column("time").cast(pa.int64())
        first_route = pc.equal(batch.column("route"), 0)
        count.kept += pc.sum(first_route).as_py() or 0
        present = pc.is_valid(times_us)
        if self.previous_watermark_us is not None:
            on_time = pc.greater(times_us, self.previous_watermark_us)
            count.late += pc.sum(pc.and_(first_route, pc.invert(on_time))).as_py() or 0
            present = pc.and_kleene(present, on_time)
        found = [self._mask(pattern, batch) for pattern in self.patterns]
        wanted = pc.and_kleene(present, _any(found, batch.num_rows))
        rows = self._rows(batch, times_us, found)
        return rows.filter(wanted)

    def _mask(self, pattern: Pattern, batch: pa.RecordBatch) -> pa.Array:
        routed = pc.equal(batch.column("route"), self.routes.index(pattern.key))
        return pc.if_else(routed, masks(pattern, batch), pa.scalar(0, pa.int64()))

    def _rows(self, batch: pa.RecordBatch, times_us: pa.Array, found: list[pa.Array]) -> pa.RecordBatch:
        own = [times_us, *(batch.column(name) for name in CANDIDATE.names[1:])]
        names = [*CANDIDATE.names, *(pattern.signature for pattern in self.patterns), "group"]
        return pa.RecordBatch.from_arrays([*own, *found, batch.column("group")], names=names)

    def work(self, store: StateStore, arrived: dict[int, pa.RecordBatch | None], count: BatchCount) -> None:
        states = store.load(list(arrived), self.batch)
        store.write(
            self.batch, [self._group(group, states[group], rows, count) for group, rows in arrived.items()]
        )

    def _group(
        self, group: int, state: GroupState, arrived: pa.RecordBatch | None, count: BatchCount
    ) -> Written:
        buffered = self._buffered(state.buffer, arrived)
        released, kept = self._released(buffered)
        machines, outputs = {}, []
        for pattern in self.patterns:
            matcher = SequenceMatcher.resume(pattern, state.machines.get(pattern.signature))
            matches = self._matches(matcher, released, count)
            if self.watermark_us is not None:
                matcher.forget(self.watermark_us)
            if matcher.keys:
                machines[pattern.signature] = matcher.snapshot()
            outputs += [self._output(pattern, group, n, match) for n, match in enumerate(matches)]
        due_us = pc.min(kept.column("time")).as_py() if kept.num_rows else None
        return Written(group, GroupState(machines, kept).encode(), due_us, tuple(outputs))

    def _buffered(self, buffer: pa.RecordBatch | None, arrived: pa.RecordBatch | None) -> pa.RecordBatch:
        """What was kept back and what arrived, under this application's columns (a pattern that was changed
        has no masks in an old buffer).
        """
        names = [*CANDIDATE.names, *(pattern.signature for pattern in self.patterns)]
        parts = [
            pa.RecordBatch.from_arrays([_column(part, name) for name in names], names=names)
            for part in (buffer, arrived)
            if part is not None
        ]
        return pa.concat_batches(parts)

    def _released(self, buffered: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """(in event-time order what the watermark has passed, the rest)."""
        if self.watermark_us is None:
            return buffered.slice(0, 0), buffered
        passed = pc.less_equal(buffered.column("time"), self.watermark_us)
        released = buffered.filter(passed)
        order = pc.sort_indices(released, sort_keys=[("time", "ascending"), ("id", "ascending")])
        return released.take(order), buffered.filter(pc.invert(passed))

    def _matches(self, matcher: SequenceMatcher, released: pa.RecordBatch, count: BatchCount) -> list[Match]:
        """Matches to emit, in the order of completion."""
        started = time.perf_counter()
        mask = released.column(matcher.pattern.signature)
        rows = released.filter(pc.not_equal(mask, 0))
        found = list(_run(matcher, rows))
        emitted = [match for match in found if not match.quiet]
        counted = count.of(matcher.pattern.name)
        counted.candidates += rows.num_rows
        counted.matches += len(emitted)
        counted.quiet += len(found) - len(emitted)
        counted.seconds += time.perf_counter() - started
        return emitted

    def _output(self, pattern: Pattern, group: int, number: int, match: Match) -> tuple[str, bytes]:
        """The complex event. Its id says pattern, batch, key group and number: a batch that is worked again
        repeats it.
        """
        id_ = f"{pattern.name}:{self.run}.{self.batch}:{group}:{number}"
        return id_, complex_event(id_, pattern, match)


def complex_event(id_: str, pattern: Pattern, match: Match) -> bytes:
    """A match as an event (JSON): time and value of its last event, source the key, key the pattern, its
    contributing events in the attributes.
    """
    last = match.events[-1]
    names = ("time_us", "id", "type", "value", "source")
    contributing = [dict(zip(names, event, strict=True)) for event in match.events]
    return orjson.dumps(
        {
            "id": id_,
            "time": last[0] / 1_000_000,
            "type": pattern.emits,
            "source": match.key,
            "key": pattern.name,
            "value": last[3],
            "attributes": {
                "pattern": pattern.name,
                "severity": pattern.severity,
                "first_time": match.events[0][0] / 1_000_000,
                "events": contributing,
            },
        }
    )


def by_group(candidates: list[pa.RecordBatch]) -> dict[int, pa.RecordBatch | None]:
    """Rows per key group, by one sort."""
    rows = pa.concat_batches(candidates)
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("group", "ascending")]))
    groups = rows.column("group").to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    ends = np.append(starts[1:], len(groups))
    return {
        int(groups[start]): rows.slice(start, end - start)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    }


def _run(matcher: SequenceMatcher, rows: pa.RecordBatch) -> Iterator[Match]:
    columns = [rows.column(name).to_pylist() for name in ("time", "id", "type", "value", "source")]
    keys = rows.column("match_key").to_pylist()
    bits = rows.column(matcher.pattern.signature).to_pylist()
    last: tuple[int, str] | None = None
    for key, mask, event in zip(keys, bits, zip(*columns, strict=True), strict=True):
        if event[:2] == last:
            continue  # the second copy of an event that was stored twice
        last = event[:2]
        match = matcher.take(key, mask, event)
        if match is not None:
            yield match


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    return pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)


def _any(found: list[pa.Array], rows: int) -> pa.Array:
    total = pa.repeat(pa.scalar(False), rows)
    for mask in found:
        total = pc.or_(total, pc.not_equal(mask, 0))
    return total
