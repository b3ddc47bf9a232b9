"""Lanes of a fair queue: a publisher diverts the events of heavy keys into blocks of their own.

A publisher counts its events per key group over the last seconds. A group is heavy if it has more than `MAX_SHARES`
times the median of the active groups. A flood is therefore diverted within the call that starts it. The lane of a heavy
group is the emptier one of two that its hash selects (shuffle sharding), so that two floods rarely share a lane.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queues.events.block import SCHEMA
from queues.fairness import LANES, KeyWeight, get_override_lane

GROUPS = 16_384  # with 1,000 keys, few groups have several
HALF_LIFE_SECONDS = 5.0
MAX_SHARES = 4.0  # the multiple of the median from which a group is heavy
MIN_EVENTS = 256  # in the last seconds; groups with fewer events are never heavy
EVALUATE_EVENTS, EVALUATE_SECONDS = 1_024, 0.25
KEY = SCHEMA.get_field_index("key")


class LaneSplitter:
    """Divides what one publisher sends to one queue into lanes. Not thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._counts = np.zeros(GROUPS)
        self._lane_counts = np.zeros(LANES + 1)
        self._heavy: dict[int, int] = {}  # group → lane
        self._decayed_at = monotonic()
        self._unevaluated = 0

    def split(self, batch: pa.RecordBatch, overrides: Mapping[str, KeyWeight]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (lane, events) for each lane that has events of the batch; their order within a lane is kept.

        Events without a key belong to lane 0.
        """
        encoded = pc.dictionary_encode(batch.column(KEY))
        names = encoded.dictionary.to_pylist()
        if not names:
            yield 0, batch
            return
        groups = np.array([zlib.crc32(name.encode()) for name in names], np.int64)
        rows = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        self._count(groups % GROUPS, np.bincount(rows, minlength=len(names) + 1)[: len(names)])
        lanes = np.zeros(len(names) + 1, np.int64)
        for place, (name, group) in enumerate(zip(names, (groups % GROUPS).tolist(), strict=True)):
            lanes[place] = get_override_lane(name) if name in overrides else self._heavy.get(group, 0)
        if not lanes.any():
            yield 0, batch
            return
        lane_of_row = lanes[rows]
        for lane in np.unique(lane_of_row).tolist():
            yield lane, batch.take(pa.array(np.flatnonzero(lane_of_row == lane)))

    def _count(self, groups: Any, events: Any) -> None:
        np.add.at(self._counts, groups, events)
        self._unevaluated += int(events.sum())
        elapsed_seconds = self._monotonic() - self._decayed_at
        if self._unevaluated >= EVALUATE_EVENTS or elapsed_seconds >= EVALUATE_SECONDS:
            self._evaluate(elapsed_seconds)

    def _evaluate(self, elapsed_seconds: float) -> None:
        """Select the heavy groups anew. A heavy group keeps its lane until it has less than half of the limit."""
        decay = 0.5 ** (elapsed_seconds / HALF_LIFE_SECONDS)
        self._counts *= decay
        self._decayed_at += elapsed_seconds
        self._unevaluated = 0
        active = self._counts[self._counts >= 1.0]
        limit = max(MIN_EVENTS, MAX_SHARES * float(np.median(active))) if active.size else float(MIN_EVENTS)
        self._heavy = {group: lane for group, lane in self._heavy.items() if self._counts[group] > limit / 2}
        self._lane_counts[:] = 0
        for group, lane in self._heavy.items():
            self._lane_counts[lane] += self._counts[group]
        for group in np.flatnonzero(self._counts > limit).tolist():
            if group not in self._heavy:
                lane = min(_choose_lanes(group), key=lambda choice: self._lane_counts[choice])
                self._heavy[group] = lane
                self._lane_counts[lane] += self._counts[group]


def _choose_lanes(group: int) -> tuple[int, int]:
    """Return the two lanes of a group."""
    first = zlib.crc32(b"first %d" % group) % LANES
    second = (first + 1 + zlib.crc32(b"second %d" % group) % (LANES - 1)) % LANES
    return first + 1, second + 1
