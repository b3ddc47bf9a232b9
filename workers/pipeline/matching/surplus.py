"""Matches that a pattern would keep if its keys had fewer events of one label, measured in a sample of its keys.

A match at time t needs c events of a label. With n events of the label and m matches of its key in the window that ends
at t, each needed event has n / (c m) to choose from. If events are dropped at random and the share p is kept, this
share of the matches remains:

    (1 - (1 - p)^max(1, n / (c m)))^c

With conditions between events, events of a label can't replace each other, so each needed event has only one candidate.
Events of keys without a match don't count as surplus, because a later event may complete a match. If a key has many
matches in a window, an event can serve any of them, and it is enough to count events (`crowd`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from controllers.patterns.expression import render
from controllers.patterns.selectivity import needs_of
from workers.documents.pipeline import KEPT_SHARES
from workers.pipeline.matching.matcher import LabeledRows
from workers.pipeline.matching.retained import GroupStates, Matches
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.shedding import list_label_symbols

SAMPLED_ROWS = 500  # per batch; keys besides the control keys are sampled if the control keys have fewer rows
MAX_RETAINED_ROWS = 5_000  # the newest rows, for windows of any length
_SCHEMA = pa.schema([("time", pa.int64()), ("match_key", pa.string()), ("group", pa.int32()), ("label", pa.string())])


@dataclass
class Survivors:
    """The matches of the sample, and label → number of matches that remain at each of `KEPT_SHARES`.

    crowd: the sum, over these matches, of the number of matches of the same key in the window.
    """

    matches: int = 0
    crowd: int = 0
    kept: dict[str, list[float]] = field(default_factory=dict)

    def add(self, other: "Survivors") -> None:
        """Add the counts of another part. A part that has not seen a label loses no match with it."""
        for label in {*self.kept, *other.kept}:
            own, others = (part.kept.get(label, [float(part.matches)] * len(KEPT_SHARES)) for part in (self, other))
            self.kept[label] = [a + b for a, b in zip(own, others, strict=True)]
        self.matches += other.matches
        self.crowd += other.crowd


class SurplusSample:
    """The events and matches of the sampled keys in the window of a pattern. The label of a match is null."""

    def __init__(self, pattern: Pattern, states: Mapping[int, bytes]) -> None:
        self._pattern = pattern
        self._rows = GroupStates(states).collect_rows("sample") or pa.RecordBatch.from_pylist([], schema=_SCHEMA)

    def add(self, labeled: LabeledRows, sampled: np.ndarray, found: Matches) -> Survivors:
        """Add a batch and count the survivors among its matches. sampled: whether the key of each row is sampled."""
        rows, masks = labeled.rows, labeled.masks
        chosen = pa.array(np.flatnonzero(sampled if masks is None else sampled & (masks != 0)))
        events = rows.select(["time", "match_key", "group"]).take(chosen)
        events = events.append_column("label", labeled.labels.take(chosen).cast(pa.string())).cast(_SCHEMA)
        keys = pc.unique(rows.column("match_key").filter(pa.array(sampled)))
        matches = _build_rows(found).filter(pc.and_(pc.is_in(found.keys, keys), pa.array(~found.suppressed)))
        everything = pa.concat_batches([self._rows, events, matches])
        self._rows = everything
        return self._count_survivors(everything, matches.num_rows)

    def advance(self, now_us: int) -> None:
        """Discard rows that are in no window that ends at `now_us` or later."""
        self._rows = self._rows.filter(pc.greater_equal(self._rows.column("time"), now_us - self._pattern.within_us))
        if self._rows.num_rows > MAX_RETAINED_ROWS:
            self._rows = self._rows.take(pc.sort_indices(self._rows.column("time"))[-MAX_RETAINED_ROWS:])

    def save(self) -> dict[int, bytes]:
        """Return the state of each key group that has some."""
        states = GroupStates()
        states.put_rows("sample", self._rows)
        return states.pack()

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the event time (µs) from which on none of its rows is in the window."""
        times, groups = self._rows.column("time").to_numpy(), self._rows.column("group").to_numpy()
        order = np.argsort(times, kind="stable")
        newest = dict(zip(groups[order].tolist(), times[order].tolist(), strict=True))
        return {group: time_us + self._pattern.within_us + 1 for group, time_us in newest.items()}

    def _count_needed(self, label: str) -> float:
        """Return the maximum number of events of a label that a match needs."""
        parts = needs_of(render(self._pattern.expression.root)).list_parts()
        symbols = list_label_symbols(self._pattern, label)
        return sum(max(part.counts.get(symbol, 0) for part in parts) for symbol in symbols)

    def _count_survivors(self, rows: pa.RecordBatch, matches: int) -> Survivors:
        """Count the survivors among the last `matches` rows."""
        survivors = Survivors(matches)
        if not matches:
            return survivors
        times = rows.column("time").to_numpy() - (pc.min(rows.column("time")).as_py() or 0)
        codes = rows.column("match_key").dictionary_encode().indices.to_numpy()
        span = int(times.max()) + 1
        # Map keys and times to places on one line, key after key. The rows of a key in a window are then adjacent.
        places = codes * span + times
        ends = places[-matches:]
        starts = codes[-matches:] * span + np.maximum(times[-matches:] - self._pattern.within_us, 0)
        labels = rows.column("label")
        made = _count_between(places[labels.is_null().to_numpy(zero_copy_only=False)], starts, ends)
        survivors.crowd = int(made.sum())
        for label in pc.unique(labels.drop_null()).to_pylist():
            of_label = pc.fill_null(pc.equal(labels, label), False).to_numpy(zero_copy_only=False)
            events, needed = _count_between(places[of_label], starts, ends), self._count_needed(label)
            # Conditions between events decide which events fit each other. Only one of many events might fit.
            choices = np.ones(matches) if self._pattern.bound_conditions else events / np.maximum(1, needed * made)
            lost = (1 - np.array(KEPT_SHARES)[:, None]) ** np.maximum(1, choices)
            survivors.kept[label] = ((1 - np.where(events, lost, 0)) ** needed).sum(axis=1).tolist()
        return survivors


def _build_rows(found: Matches) -> pa.RecordBatch:
    columns = [pa.array(found.completed_us), found.keys, pa.array(found.groups), pa.nulls(len(found), pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=_SCHEMA.names).cast(_SCHEMA)


def _count_between(places: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the number of places in each range, including both ends."""
    places = np.sort(places)
    counts: np.ndarray = np.searchsorted(places, ends, "right") - np.searchsorted(places, starts, "left")
    return counts
