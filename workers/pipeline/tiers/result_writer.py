"""The steps of an intra-event task for the rows that passed its rules.

Rows that some pattern may use go into the result queue, as Arrow blobs cut by key.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from workers.pipeline.dispatch.result_queue import Blob, ResultQueue
from workers.pipeline.events.containers import control_of
from workers.pipeline.events.layout import encode
from workers.pipeline.matching.complex_event import drop_non_finite
from workers.pipeline.matching.matcher import compute_masks
from workers.pipeline.patterns import shedding
from workers.pipeline.patterns.graph import KEY_GROUPS, Graph, compute_key_groups
from workers.pipeline.patterns.pattern import Pattern

SLICE_GROUPS = 8  # key groups of one blob, if a batch is large enough to be cut
WHOLE = -1
CUT_ROWS = 20_000
WRITTEN = (
    "name string, route string, slice int, first_us long, last_us long, rows long, size long, kept long, shed string, "
    "passed string"
)
BLOB = ("name", "route", "slice", "first_us", "last_us", "rows", "size")  # the columns that describe a blob


@dataclass(frozen=True)
class ResultWriter:
    """Writes results; it travels to the tasks.

    cut: whether blobs are cut by key groups. shedder: what is dropped; an event that all patterns of a route shed is
    not sent on that route.
    """

    control_url: str
    application: str
    replica: str
    tick: int
    attempt: str
    graph: Graph
    cut: bool
    shedder: shedding.Shedder = field(default_factory=shedding.Shedder)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of a task whose rules Spark runs (mapInArrow). Spark counts the events that pass a rule."""
        context = TaskContext.get()
        assert context is not None  # Spark calls it within a task
        yield self.write(batches, context.partitionId(), {})

    def write(self, batches: Iterable[pa.RecordBatch], task: int, passed: Mapping[str, int]) -> pa.RecordBatch:
        """Write all rows of a task, and return a row per blob, and a row with the number of rows kept.

        passed: rule → events that passed it, complete when all batches are read.
        """
        kept, shed = 0, shedding.ShedCounts()
        parts: dict[str, list[pa.RecordBatch]] = {}
        for batch in batches:
            kept += batch.num_rows
            for route, rows in self.select_wanted(batch, shed):
                parts.setdefault(route, []).append(rows)
        blobs, data = self.build_blobs(parts, task)
        if data:
            queue = ResultQueue(control_of(self.control_url), self.application)
            queue.put(self.replica, self.tick, self.attempt, data)
        return _write_batch(blobs, kept, shedding.to_text(shed), json.dumps(dict(passed)))

    def select_wanted(self, batch: pa.RecordBatch, shed: shedding.ShedCounts) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each route and the rows that a pattern of the route may use.

        `first` marks a row in its first route. shed: receives the counts of the events that no pattern of a route gets.
        """
        batch = drop_non_finite(batch)
        batch = batch.set_column(batch.schema.get_field_index("time"), "time", batch.column("time").cast(pa.int64()))
        taken = np.zeros(batch.num_rows, bool)
        for key in self.graph.routes:
            held = self._decide_held(self.graph.list_route_patterns(key), key, batch, shed)
            if not held.any():
                continue
            yield key, batch.append_column("first", pa.array(held & ~taken)).filter(pa.array(held))
            taken |= held

    def _decide_held(
        self, patterns: tuple[Pattern, ...], key: str, batch: pa.RecordBatch, shed: shedding.ShedCounts
    ) -> np.ndarray:
        held = np.zeros(batch.num_rows, bool)
        valid = pc.and_(pc.is_valid(batch.column(key)), pc.is_valid(batch.column("time")))
        present: np.ndarray = valid.to_numpy(zero_copy_only=False)
        decisions = (
            shedding.ShedDecisions(
                self.shedder, batch, batch.column(key).cast(pa.string()), shedding.compute_periods(self.graph)
            )
            if self.shedder.sheds
            else None
        )
        dropped: dict[str, tuple[pa.DictionaryArray, np.ndarray]] = {}
        for pattern in patterns:
            if pattern.needs_every_event:
                held[:] = True
                continue
            masks = compute_masks(pattern, batch)
            wanted = masks != 0
            if decisions is not None and self.shedder.is_shedding(pattern.name):
                labels = shedding.label_events(pattern, batch, masks, self.graph.inner_types)
                dropped[pattern.name] = labels, decisions.select_dropped(pattern, masks, labels)
                wanted &= ~dropped[pattern.name][1]
            held |= wanted
        for name, (labels, rows) in dropped.items():
            # An event that stays for another pattern is dropped, and counted, at the operator.
            shedding.add_count(
                shed, name, shedding.limit_types(shedding.count_by_label(labels, rows & present & ~held))
            )
        usable: np.ndarray = held & present
        return usable

    def build_blobs(self, parts: dict[str, list[pa.RecordBatch]], task: int) -> tuple[list[Blob], dict[str, bytes]]:
        """Return the report of each blob, and the blobs, for rows by route. task: makes names unique in the batch."""
        blobs: list[Blob] = []
        data: dict[str, bytes] = {}
        for route, batches in parts.items():
            whole = pa.concat_batches(batches)
            groups = compute_key_groups(get_match_keys(whole, route))
            whole = whole.append_column("group", pa.array(groups, pa.int32()))
            for slice_, rows in self._iterate_slices(whole):
                name = f"{task}:{route}:{slice_}"
                data[name] = encode(rows)
                times = pc.min_max(rows.column("time")).as_py()
                blobs.append(Blob(name, route, slice_, times["min"], times["max"], rows.num_rows, len(data[name])))
        return blobs, data

    def _iterate_slices(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not self.cut:
            yield WHOLE, rows
            return
        slices = rows.column("group").to_numpy() // SLICE_GROUPS
        rows = rows.take(pa.array(np.argsort(slices, kind="stable")))
        ends = np.cumsum(np.bincount(slices, minlength=KEY_GROUPS // SLICE_GROUPS))
        start = 0
        for slice_, end in enumerate(ends.tolist()):
            if end > start:
                yield slice_, rows.slice(start, end - start)
            start = end


def get_match_keys(rows: pa.RecordBatch, route: str) -> pa.Array:
    """Return the keys by which the patterns of a route relate its rows: texts, none null."""
    return rows.column(route).cast(pa.string())


def _write_batch(blobs: list[Blob], kept: int, shed: str, passed: str) -> pa.RecordBatch:
    """Return the blobs in the format for Spark. The last row has the rows kept, the events shed, and those passed."""
    rows = [*blobs, Blob("", "", WHOLE, 0, 0, 0, 0)]
    columns = list(zip(*rows, strict=True))
    kinds = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    counts = pa.array([0] * len(blobs) + [kept], pa.int64())
    texts = [pa.array([""] * len(blobs) + [text], pa.string()) for text in (shed, passed)]
    return pa.RecordBatch.from_arrays([*arrays, counts, *texts], names=[*BLOB, "kept", "shed", "passed"])
