"""The events that a matcher over whole batches keeps for later ones, with the symbols that each satisfies.

They are removed once no future match can contain them: `within_us` after their time.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.matching.retained.group_state import GroupStates
from workers.pipeline.matching.retained.keyed_rows import compute_least_by_group, find_present_keys
from workers.pipeline.matching.retained.matches import KEYED, Matches, build_empty

SCHEMA = KEYED.append(pa.field("mask", pa.int64()))


class RetainedRows:
    """`kept`: the events, in event-time order, with a column `mask` of the bits of their symbols."""

    def __init__(self, within_us: int) -> None:
        self._within_us = within_us
        self.kept = pa.RecordBatch.from_pylist([], schema=SCHEMA)

    def keep(self, events: pa.RecordBatch, masks: np.ndarray, places: np.ndarray) -> None:
        """Keep the events at these places, ascending, and no others."""
        kept = events.take(pa.array(places, pa.int64()))
        self.kept = kept.append_column(SCHEMA.field("mask"), pa.array(masks[places], pa.int64()))

    def build_masks(self) -> np.ndarray:
        """Return the symbols of the kept events, int64[events]."""
        masks: np.ndarray = self.kept.column("mask").to_numpy()
        return masks

    @property
    def open_rows(self) -> int:
        """Return how many events are kept."""
        return int(self.kept.num_rows)

    def has_open(self, keys: pa.Array) -> np.ndarray:
        """Return, per key (text, distinct), whether an event of it is kept."""
        return find_present_keys(self.kept, keys)

    def advance(self, now_us: int) -> Matches:
        """Discard the events that no match ending from `now_us` on can contain."""
        if self.kept.num_rows:
            self.kept = self.kept.filter(pc.greater_equal(self.kept.column("time"), now_us - self._within_us))
        return build_empty()

    def finish(self) -> Matches:
        """Finish: no further event will arrive."""
        self.kept = self.kept.slice(0, 0)
        return build_empty()

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the time (µs) from which on `advance` discards something."""
        least = compute_least_by_group(self.kept, "time")
        return {group: time_us + self._within_us + 1 for group, time_us in least.items()}

    def save(self, states: GroupStates) -> None:
        """Store the kept events in the states of their key groups."""
        states.put_rows("open", self.kept)

    def load(self, states: GroupStates) -> None:
        """Load the kept events from the states."""
        self.kept = states.collect_rows("open") or self.kept
