"""Growing arrays of values, and growing sets of rows.

Appended values are copied a constant number of times on average.
"""

import numpy as np
import pyarrow as pa

from workers.pipeline.events.layout import append_batch, as_schema

GROWTH = 1.3  # factor by which a full array grows
MIN_CAPACITY = 64
MAX_CHUNK_BYTES = 2**29  # Arrow limits a column of texts to 2 GiB


class GrowingArray:
    """An array to which you can append values. `values` is a view that the next `append` may replace."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._buffer = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> np.ndarray:
        return self._buffer[: self._size]

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    def append(self, values: np.ndarray) -> None:
        end = self._size + len(values)
        if end > len(self._buffer):
            grown = np.empty(max(MIN_CAPACITY, end, int(GROWTH * len(self._buffer))), self._buffer.dtype)
            grown[: self._size] = self.values
            self._buffer = grown
        self._buffer[self._size : end] = values
        self._size = end

    def replace(self, values: np.ndarray) -> None:
        """Replace all values."""
        self._buffer = values.astype(self._buffer.dtype, copy=True)
        self._size = len(values)


class RowPool:
    """Arrow rows with places from 0 on.

    The rows are in chunks. `append` joins a chunk with the next one, unless the first chunk is at least twice as long.
    There are therefore few chunks.
    """

    def __init__(self) -> None:
        self._chunks: list[pa.RecordBatch] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return self._starts[-1] + self._chunks[-1].num_rows if self._chunks else 0

    @property
    def nbytes(self) -> int:
        return sum(int(chunk.nbytes) for chunk in self._chunks)

    def append(self, rows: pa.RecordBatch) -> None:
        """Append rows. A column gets its type from the new rows, unless it has no values in them."""
        if not rows.num_rows:
            return
        if self._chunks and rows.schema != self._chunks[-1].schema:
            rows = append_batch(self._chunks[-1].slice(0, 0), rows)
            self._chunks = [as_schema(chunk.select(rows.schema.names), rows.schema) for chunk in self._chunks]
        start = len(self)
        while self._chunks and self._is_joined(rows):
            rows = pa.concat_batches([self._chunks.pop(), rows])
            start = self._starts.pop()
        self._chunks.append(rows)
        self._starts.append(start)

    def _is_joined(self, rows: pa.RecordBatch) -> bool:
        last = self._chunks[-1]
        return bool(last.num_rows < 2 * rows.num_rows and last.nbytes + rows.nbytes < MAX_CHUNK_BYTES)

    def take(self, places: np.ndarray, names: list[str] | None = None) -> pa.RecordBatch:
        """Return the rows at these places (at least one place). names: the columns; None: all columns."""
        chunks = self._chunks if names is None else [chunk.select(names) for chunk in self._chunks]
        if len(chunks) == 1:
            return chunks[0].take(pa.array(places))
        chunk_of = np.searchsorted(self._starts, places, side="right") - 1
        order = np.argsort(chunk_of.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(chunk_of, minlength=len(chunks))).tolist()
        parts, start = [], 0
        for chunk, first, end in zip(chunks, self._starts, ends, strict=True):
            if end > start:
                parts.append(chunk.take(pa.array(places[order[start:end]] - first)))
            start = end
        if len(parts) == 1:
            return parts[0]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(parts).take(pa.array(back))
