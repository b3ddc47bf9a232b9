"""SEQ(A; B; C), policy skip-past-last, over whole batches at a time.

For every event that can start a match, the rest of the match follows from where the next event of each step is
(relaxed) or from the events directly after it (strict). One walk from end to end selects the matches that count.
"""

import numpy as np
import pyarrow as pa

from workers.pipeline.matching import retained
from workers.pipeline.patterns.pattern import Pattern


class SequenceRows(retained.RetainedRows):
    """Matcher for rows.

    It keeps, per key, the events from the first one that may still start a match. A later start ends no sooner, so
    while the first one lacks an event, the others do too: time alone completes nothing.
    """

    def __init__(self, pattern: Pattern) -> None:
        super().__init__(pattern.within_us)
        self._relaxed = pattern.is_relaxed
        self._plan = pattern.plain or ()

    @property
    def begins(self) -> int:
        return self._plan[0].bit

    def take(self, rows: pa.RecordBatch, masks: np.ndarray) -> retained.Matches:
        """Process rows in event-time order; `masks` has the bits of the symbols that each satisfies.

        Rows that satisfy no symbol matter if contiguity is strict.
        """
        if self._relaxed and not masks.all():
            wanted = np.flatnonzero(masks)
            rows, masks = rows.take(pa.array(wanted)), masks[wanted]
        if not len(masks):
            return retained.build_empty()
        events = retained.append_rows(self.kept, rows)
        keyed = retained.KeyedRows.build(events.column("match_key"), events.column("time").to_numpy())
        masks = np.concatenate((self.build_masks(), masks))
        matches = self._find_matches(keyed, masks[keyed.order])
        chosen, pending = walk(keyed, matches)
        self._keep_from(events, keyed, masks, pending)
        return retained.build_from_rows(events, keyed.order[matches[chosen]])

    def _find_matches(self, keyed: retained.KeyedRows, masks: np.ndarray) -> np.ndarray:
        """Return the rows of each start's match, int64[starts, steps].

        The last step is the number of rows if events are still missing. A start without a possible match is left out.
        """
        rows = self._find_next_hits(keyed, masks) if self._relaxed else self._find_consecutive_hits(keyed, masks)
        ends_us = self._compute_ends_us(keyed, rows)
        in_time: np.ndarray = rows[ends_us - keyed.time[rows[:, 0]] <= self._within_us]
        return in_time

    def _compute_ends_us(self, keyed: retained.KeyedRows, rows: np.ndarray) -> np.ndarray:
        """Return the time up to which each start is decided: of its last event, or of the key's last event."""
        last = rows[:, -1]
        missing = last == len(keyed.time)
        ends_us: np.ndarray = keyed.time[np.where(missing, keyed.ends[rows[:, 0]] - 1, last)]
        return ends_us

    def _find_next_hits(self, keyed: retained.KeyedRows, masks: np.ndarray) -> np.ndarray:
        count = len(masks)
        rows = [np.flatnonzero(masks & self._plan[0].bit)]
        for bit, forbidden in self._plan[1:]:
            ends, behind = keyed.ends[rows[0]], np.minimum(rows[-1] + 1, count)
            rows.append(self._find_next_step(keyed, masks, rows, bit))
            if forbidden:  # it must not come first, nor at all while the step is still awaited
                fits = find_next_rows(masks, forbidden)[behind] >= np.minimum(rows[-1], ends)
                rows = [taken[fits] for taken in rows]
        return np.stack(rows, axis=1)

    def _find_next_step(
        self, keyed: retained.KeyedRows, masks: np.ndarray, rows: list[np.ndarray], bit: int
    ) -> np.ndarray:
        """Return, per start, the next row that fits the step after those of `rows`, or the number of rows."""
        count = len(masks)
        following = find_next_rows(masks, bit)[np.minimum(rows[-1] + 1, count)]
        hits: np.ndarray = np.where(following < keyed.ends[rows[0]], following, count)
        return hits

    def _find_consecutive_hits(self, keyed: retained.KeyedRows, masks: np.ndarray) -> np.ndarray:
        """Return the matches of directly consecutive events. A NOT means nothing here: there is no event in between."""
        count = len(masks)
        starts = np.flatnonzero(masks & self._plan[0].bit)
        rows = [starts]
        for place, (bit, _) in enumerate(self._plan[1:], 1):
            behind = np.minimum(starts + place, count)
            inside = behind < keyed.ends[starts]
            fits = ~inside
            known = [taken[inside] for taken in rows]
            fits[inside] = self._fits_consecutively(keyed, masks, known, behind[inside], bit)
            rows = [taken[fits] for taken in rows]
            starts = rows[0]
            rows.append(np.where(inside, behind, count)[fits])
        return np.stack(rows, axis=1)

    def _fits_consecutively(
        self, keyed: retained.KeyedRows, masks: np.ndarray, rows: list[np.ndarray], behind: np.ndarray, bit: int
    ) -> np.ndarray:
        """Return whether the rows `behind` fit the step after those of `rows`."""
        fits: np.ndarray = (masks[behind] & bit) != 0
        return fits

    def _keep_from(
        self, events: pa.RecordBatch, keyed: retained.KeyedRows, masks: np.ndarray, pending: np.ndarray
    ) -> None:
        edges = np.zeros(len(masks) + 1, np.int64)
        np.add.at(edges, pending, 1)
        np.add.at(edges, keyed.ends[pending], -1)
        places = np.sort(keyed.order[np.cumsum(edges[:-1]) > 0])
        self.keep(events, masks, places)


def find_next_rows(masks: np.ndarray, bits: int) -> np.ndarray:
    """Return, for each row and the end, the first row from there on that has one of the bits.

    The value is the number of rows if there is none.
    """
    count = len(masks)
    following = np.full(count + 1, count, np.int64)
    hits = np.where((masks & bits) != 0, np.arange(count), count)
    following[:-1] = np.minimum.accumulate(hits[::-1])[::-1]
    return following


def walk(keyed: retained.KeyedRows, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the matches count, and the starts that wait for more events.

    The next match that counts has the first start after the end of the previous one. A waiting start keeps all that
    follows in its key waiting.
    """
    count = len(keyed.time)
    starts, last = found[:, 0], found[:, -1]
    waits = last == count
    end = np.where(waits, keyed.ends[starts] - 1 if len(starts) else last, last)
    behind = np.searchsorted(starts, end, side="right").tolist()
    chosen, at = [], 0
    while at < len(behind):
        chosen.append(at)
        at = behind[at]
    counted = np.array(chosen, np.int64)
    waiting = waits[counted]
    return counted[~waiting], starts[counted[waiting]]
