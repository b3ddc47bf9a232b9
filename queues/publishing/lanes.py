"""Lanes of a fair queue: a publisher diverts the events of heavy keys into blocks of their own.

A publisher counts its events per key group over the last seconds. A group is heavy if it has more than `MAX_SHARES`
times the median of the active groups. A flood is therefore diverted within the call that starts it. The lane of a heavy
group is the emptier one of two that its hash selects (shuffle sharding), so that two floods rarely share a lane.

All steps work on whole columns. While no key is heavy, only a sample of a large call is counted.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queues.events.block import MAX_TEXT, SCHEMA
from queues.fairness import LANES, KeyWeight, get_override_lane

GROUP_BITS = 14
GROUPS = 2**GROUP_BITS  # with 1,000 keys, few groups have several
HALF_LIFE_SECONDS = 5.0
MAX_SHARES = 4.0  # the multiple of the median from which a group is heavy
MIN_ROWS = 32  # counted in the last seconds; groups with fewer are never heavy
EVALUATE_EVENTS, EVALUATE_SECONDS = 1_024, 0.25
SAMPLED_ROWS = 2_048  # a call with more rows is sampled
# An odd number, so that all keys in a regular order, such as alternating ones, are sampled.
SAMPLE_STEP = 7
KEY = SCHEMA.get_field_index("key")
# A key's hash: the sum of its bytes times one of these odd numbers per place, modulo 2^64.
_FACTORS = np.random.default_rng(61).integers(0, 2**63, MAX_TEXT, np.uint64) * np.uint64(2) + np.uint64(1)


class LaneSplitter:
    """Divides what one publisher sends to one queue into lanes. Not thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._counts = np.zeros(GROUPS)
        self._lanes = np.zeros(GROUPS, np.int64)  # of heavy groups; 0 for all others
        self._decayed_at = monotonic()
        self._unevaluated = 0
        self._sampled_from = 0

    def split(self, batch: pa.RecordBatch, overrides: Mapping[str, KeyWeight]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield (lane, events) for each lane that has events of the batch; their order within a lane is kept.

        Events without a key belong to lane 0.
        """
        keys = batch.column(KEY)
        if batch.num_rows > SAMPLED_ROWS and not overrides and not self._lanes.any():
            self._sampled_from = (self._sampled_from + 1) % SAMPLE_STEP
            sample = pc.dictionary_encode(keys.take(pa.array(np.arange(self._sampled_from, len(keys), SAMPLE_STEP))))
            self._count(sample.dictionary, _get_rows(sample), SAMPLE_STEP)
            if not self._lanes.any():
                yield 0, batch
                return
        else:
            sample = None
        encoded = pc.dictionary_encode(keys)
        names, rows = encoded.dictionary, _get_rows(encoded)
        if sample is None:
            self._count(names, rows, 1)
        lanes = np.append(self._lanes[compute_groups(names)], 0)
        if overrides and len(names):
            places = pc.index_in(pa.array(overrides, pa.string()), names)
            for place, name in zip(places.to_pylist(), overrides, strict=True):
                if place is not None:
                    lanes[place] = get_override_lane(name)
        if not lanes.any():
            yield 0, batch
            return
        lane_of_row = lanes[rows]
        for lane in np.unique(lane_of_row).tolist():
            yield lane, batch.filter(pa.array(lane_of_row == lane))

    def _count(self, names: pa.StringArray, rows: npt.NDArray[np.int64], events_per_row: int) -> None:
        """Count events by key group. rows: the place of each row's name, or the number of names for none."""
        events = np.bincount(rows, minlength=len(names) + 1)[: len(names)] * events_per_row
        np.add.at(self._counts, compute_groups(names), events)
        self._unevaluated += int(events.sum())
        elapsed_seconds = self._monotonic() - self._decayed_at
        if self._unevaluated >= EVALUATE_EVENTS or elapsed_seconds >= EVALUATE_SECONDS:
            self._evaluate(elapsed_seconds, float(MIN_ROWS * events_per_row))

    def _evaluate(self, elapsed_seconds: float, min_events: float) -> None:
        """Select the heavy groups anew. A heavy group keeps its lane until it has less than half of the limit."""
        self._counts *= 0.5 ** (elapsed_seconds / HALF_LIFE_SECONDS)
        self._decayed_at += elapsed_seconds
        self._unevaluated = 0
        active = self._counts[self._counts >= 1.0]
        limit = max(min_events, MAX_SHARES * float(np.median(active))) if active.size else min_events
        self._lanes[self._counts <= limit / 2] = 0
        heavy = np.flatnonzero(self._counts > limit)
        if not heavy.size:
            return
        lane_counts = np.bincount(self._lanes, self._counts, LANES + 1)
        for group in heavy[self._lanes[heavy] == 0].tolist():
            lane = min(_choose_lanes(group), key=lambda choice: lane_counts[choice])
            self._lanes[group] = lane
            lane_counts[lane] += self._counts[group]


def _get_rows(encoded: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Return the place of each row's name in the dictionary; the size of the dictionary for a row without a name."""
    rows: npt.NDArray[np.int64] = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return rows


def compute_groups(names: pa.StringArray) -> npt.NDArray[np.int64]:
    """Return the key group of each of these names, none of which is null."""
    offsets = np.frombuffer(names.buffers()[1], np.int32)[names.offset : names.offset + len(names) + 1].astype(np.int64)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if not sizes.any():
        return np.zeros(len(names), np.int64)
    data = np.frombuffer(names.buffers()[2], np.uint8)[starts[0] : offsets[-1]]
    places = np.arange(len(data)) - np.repeat(starts - starts[0], sizes)
    products = _FACTORS[places % MAX_TEXT] * (data + np.uint64(1))
    sums, is_text = np.zeros(len(names), np.uint64), sizes > 0
    # reduceat would give an empty name the hash of the next one.
    sums[is_text] = np.add.reduceat(products, starts[is_text] - starts[0])
    hashes = (sums ^ (sums >> np.uint64(32))) * _FACTORS[0]
    groups: npt.NDArray[np.int64] = (hashes >> np.uint64(64 - GROUP_BITS)).astype(np.int64)
    return groups


def _choose_lanes(group: int) -> tuple[int, int]:
    """Return the two lanes of a group."""
    first = zlib.crc32(b"first %d" % group) % LANES
    second = (first + 1 + zlib.crc32(b"second %d" % group) % (LANES - 1)) % LANES
    return first + 1, second + 1
