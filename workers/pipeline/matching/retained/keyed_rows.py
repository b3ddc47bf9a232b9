"""Events grouped by key, in arrays: the input of the array matchers."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.matching.retained.matches import KEYED

_RADIX = 1 << 16  # NumPy sorts 16-bit numbers by radix, several times faster than longer ones


@dataclass(frozen=True)
class KeyedRows:
    """Rows sorted by key, and within a key in their order.

    order: the original place of each row. code: number of its key. starts: first row of its key, for each row. last_us:
    time of the last row of its key, for each row.
    """

    order: np.ndarray
    code: np.ndarray
    time: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    @property
    def last_us(self) -> np.ndarray:
        last_us: np.ndarray = self.time[self.ends - 1]
        return last_us

    @classmethod
    def build(cls, keys: pa.Array, times_us: np.ndarray) -> "KeyedRows":
        """Build from keys (text, none null) and times_us (in event-time order within each key)."""
        code = keys.dictionary_encode().indices.to_numpy()
        order = compute_stable_order(code)
        code = code[order]
        begins = np.flatnonzero(np.diff(code, prepend=-1))
        lengths = np.diff(begins, append=len(code))
        starts = np.repeat(begins, lengths)
        return cls(order, code, times_us[order], starts, starts + np.repeat(lengths, lengths))


def compute_stable_order(code: np.ndarray) -> np.ndarray:
    """Return a stable argsort of numbers from 0 on."""
    most = int(code.max()) if len(code) else 0
    if most < _RADIX:
        return np.argsort(code.astype(np.uint16), kind="stable")
    low = np.argsort((code & (_RADIX - 1)).astype(np.uint16), kind="stable")
    high = (code >> 16)[low]
    return low[np.argsort(high.astype(np.uint16), kind="stable")]


def append_rows(kept: pa.RecordBatch | None, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the kept rows followed by the new rows, as KEYED."""
    new = rows.select(KEYED.names).cast(KEYED)
    return new if kept is None or not kept.num_rows else pa.concat_batches([kept.select(KEYED.names), new])


def group_rows(rows: pa.RecordBatch) -> dict[int, pa.RecordBatch]:
    """Return the rows by their column `group`, in their order."""
    groups = rows.column("group").to_numpy()
    order = compute_stable_order(groups)
    groups, rows = groups[order], rows.take(pa.array(order))
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    ends = np.append(begins[1:], len(groups))
    return {
        int(groups[begin]): rows.slice(begin, end - begin)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    }


def find_present_keys(kept: pa.RecordBatch, keys: pa.Array) -> np.ndarray:
    """Return, per key, whether rows of it are among those kept."""
    present: np.ndarray = pc.is_in(keys, kept.column("match_key")).to_numpy(zero_copy_only=False)
    return present


def compute_least_by_group(rows: pa.RecordBatch, column: str) -> dict[int, int]:
    """Return the minimum of a column for each `group`."""
    groups, values = rows.column("group").to_numpy(), rows.column(column).to_numpy()
    order = np.argsort(values, kind="stable")
    groups_present, first = np.unique(groups[order], return_index=True)
    return dict(zip(groups_present.tolist(), values[order][first].tolist(), strict=True))
