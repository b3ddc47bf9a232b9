"""SEQ(A; B) with conditions between its steps, policy skip-past-last, over whole batches at a time.

A *start* is an event that can start a match. Each step searches for the next event that fits, for all starts together.
If the condition of a start fails, the start continues with its next candidate. With such conditions, a later start can
be complete while the first start still waits. The later match counts when the first start has failed, for example
because its window has ended.
"""

import numpy as np
import pyarrow as pa

from workers.pipeline.matching import retained
from workers.pipeline.matching.sequence_rows import SequenceRows, find_next_rows, walk
from workers.pipeline.matching.step_conditions import StepConditions

_NEVER = 2**62  # µs; no time is later


class CrossRows(SequenceRows):
    """Matcher for rows with conditions between them. It keeps, per key, the events from its first open start."""

    def __init__(self, conditions: StepConditions) -> None:
        super().__init__(conditions.pattern)
        self._conditions = conditions
        self._events = self.kept

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> retained.Matches:
        """Process rows in event-time order; `masks` has the bits of the symbols that each event alone satisfies."""
        if not len(masks):
            return retained.build_empty()
        now_us = rows.column("time")[-1].as_py()
        if self._relaxed and not masks.all():
            wanted = np.flatnonzero(masks)
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        return self._search(*retained.append_read_rows(self.kept, rows, masks), now_us)

    def _search(self, events: pa.RecordBatch, masks: np.ndarray, now_us: int) -> retained.Matches:
        """Search the events, and keep those of open starts. No event before `now_us` will arrive."""
        if not len(masks):
            return retained.build_empty()
        keyed = retained.KeyedRows.build(events.column("match_key"), events.column("time").to_numpy())
        self._events, self._now_us = events, now_us
        matches = self._find_matches(keyed, masks[keyed.order])
        chosen, pending = walk(keyed, matches)
        self._keep_from(events, keyed, masks, pending)
        return self._conditions.build_matches(events, keyed.order[matches[chosen]])

    def _compute_ends_us(self, keyed: retained.KeyedRows, rows: np.ndarray) -> np.ndarray:
        last = rows[:, -1]
        missing = last == len(keyed.time)
        ends_us: np.ndarray = np.where(missing, self._now_us, keyed.time[np.where(missing, 0, last)])
        return ends_us

    def _find_next_step(
        self, keyed: retained.KeyedRows, masks: np.ndarray, rows: list[np.ndarray], bit: int
    ) -> np.ndarray:
        """Return, per start, the next row that fits the step after those of `rows`, or the number of rows."""
        place, count = len(rows), len(masks)
        if place not in self._conditions.conditions:
            return super()._find_next_step(keyed, masks, rows, bit)
        following = find_next_rows(masks, bit)
        ends, until_us = keyed.ends[rows[0]], keyed.time[rows[0]] + self._within_us
        current = following[np.minimum(rows[-1] + 1, count)]
        result = np.full(len(current), count, np.int64)
        taken = keyed.order[np.minimum(np.stack(rows, axis=1), count - 1)]
        active = np.arange(len(current))
        while True:
            candidates = current[active]
            able = candidates < ends[active]
            able &= keyed.time[np.minimum(candidates, count - 1)] <= until_us[active]
            active, candidates = active[able], candidates[able]
            if not len(active):
                return result
            held = self._conditions.find_held(place, self._events, keyed.order[candidates], taken[active])
            result[active[held]] = candidates[held]
            active = active[~held]
            current[active] = following[current[active] + 1]

    def _fits_consecutively(
        self, keyed: retained.KeyedRows, masks: np.ndarray, rows: list[np.ndarray], behind: np.ndarray, bit: int
    ) -> np.ndarray:
        fits = super()._fits_consecutively(keyed, masks, rows, behind, bit)
        place = len(rows)
        if place in self._conditions.conditions:
            able = np.flatnonzero(fits)
            taken = keyed.order[np.stack(rows, axis=1)[able]]
            fits[able] = self._conditions.find_held(place, self._events, keyed.order[behind[able]], taken)
        return fits

    def advance(self, now_us: int) -> retained.Matches:
        """Drop the starts whose windows are over, and return the matches of later starts that waited for them."""
        if not self.kept.num_rows:
            return retained.build_empty()
        kept, masks = self.kept, self.build_masks()
        keyed = retained.KeyedRows.build(kept.column("match_key"), kept.column("time").to_numpy())
        over = np.zeros(len(masks), bool)
        over[keyed.order] = now_us - keyed.time[keyed.starts] > self._within_us
        if not over.any():
            return retained.build_empty()
        rest = kept.filter(pa.array(~over))
        matches = self._search(kept.filter(pa.array(over)).drop_columns(["mask"]), masks[over], now_us)
        rows = pa.concat_batches([rest, self.kept]) if rest.num_rows else self.kept
        self.kept = rows.take(pa.array(np.argsort(rows.column("time").to_numpy(), kind="stable")))
        return matches

    def finish(self) -> retained.Matches:
        """Drop all starts, because no further event will arrive."""
        return self.advance(_NEVER)
