"""The previous event of the same key: what prev() in a predicate reads."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.events.kinds import as_schema
from workers.pipeline.matching.retained.group_state import GroupStates
from workers.pipeline.matching.retained.keyed_rows import KeyedRows, compute_least_by_group
from workers.pipeline.patterns.pattern import Pattern
from workers.pipeline.patterns.predicate import format_previous_name

# A key that was silent for this long starts over: the last events of all past keys can't be kept.
RETAINED_US = 86_400_000_000


def compute_previous_places(rows: KeyedRows) -> np.ndarray:
    """Return, for each row in event-time order, the place of the previous row of its key; -1 at the first."""
    first = rows.starts == np.arange(len(rows.order))
    before = np.empty(len(rows.order), np.int64)
    before[rows.order] = np.where(first, -1, np.roll(rows.order, 1))
    return before


class PreviousEvents:
    """The last event of each key, with the columns that the predicates read."""

    def __init__(self, pattern: Pattern) -> None:
        read = (pattern.defines[symbol].previous for symbol in pattern.symbols)
        self._columns = tuple(sorted(frozenset().union(*read)))
        self._kept_us = max(RETAINED_US, pattern.within_us)
        self.last: pa.RecordBatch | None = None

    def build_columns(self, rows: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the columns of the previous event for each row in event-time order.

        They are null at the first row of a key.
        """
        own = dict.fromkeys(("time", "match_key", "group", *self._columns))
        rows, kept = rows.select(list(own)), 0
        if self.last is not None:
            # An earlier version may have read the columns with another type.
            last = as_schema(self.last, rows.schema)
            rows, kept = pa.concat_batches([last, rows]), last.num_rows
        keyed = KeyedRows.build(rows.column("match_key"), rows.column("time").to_numpy())
        before = compute_previous_places(keyed)
        places = pa.array(before[kept:], mask=before[kept:] < 0)
        last = keyed.order[keyed.ends == np.arange(len(keyed.order)) + 1]
        self.last = rows.take(pa.array(np.sort(last)))
        return {format_previous_name(name): rows.column(name).take(places) for name in self._columns}

    def advance(self, now_us: int) -> None:
        if self.last is not None:
            self.last = self.last.filter(pc.greater_equal(self.last.column("time"), now_us - self._kept_us))

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` removes something."""
        least = {} if self.last is None else compute_least_by_group(self.last, "time")
        return {group: time_us + self._kept_us + 1 for group, time_us in least.items()}

    def save(self, states: GroupStates) -> None:
        states.put_rows("previous", self.last)

    def load(self, states: GroupStates) -> None:
        self.last = states.collect_rows("previous")
