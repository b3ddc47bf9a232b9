"""The input of a handler: a block, or a part of one that is checked alone during the separation of poison."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


@cache
def _rows_as_text(power: int) -> pa.Array:
    """Return the first 2^power numbers.

    One cached array per block size would fill a process's memory within days.
    """
    return pc.cast(pa.array(range(1 << power), pa.int64()), pa.string())


def _row_numbers(start: int, stop: int) -> pa.Array:
    """Return the numbers from start (included) to stop (excluded) as text."""
    return _rows_as_text(stop.bit_length()).slice(start, stop - start)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows from `first_row` of a block. `whole` is false for a part.

    `key` permanently identifies exactly these rows: a block id, or `{block id}:{first}-{last}` for a part.
    """

    block_id: str
    batch: pa.RecordBatch
    first_row: int = 0
    whole: bool = True

    @property
    def events(self) -> int:
        return int(self.batch.num_rows)

    @property
    def key(self) -> str:
        if self.whole:
            return self.block_id
        return f"{self.block_id}:{self.first_row}-{self.first_row + self.events - 1}"

    def get_event_ids(self) -> pa.Array:
        """Return the event ids: the producer's own, or `{block id}:{row}` with the row in the whole block."""
        own = self.batch.column("id")
        if own.null_count == 0:
            return own
        rows = _row_numbers(self.first_row, self.first_row + self.events)
        return pc.coalesce(own, pc.binary_join_element_wise(self.block_id, rows, ":"))

    def fill_ids(self) -> pa.RecordBatch:
        """Return the rows with the id column filled."""
        return self.batch.set_column(self.batch.schema.get_field_index("id"), "id", self.get_event_ids())

    def extract_part(self, start: int, stop: int) -> "Delivery":
        """Return the rows start (included) to stop (excluded) of this delivery."""
        return Delivery(self.block_id, self.batch.slice(start, stop - start), self.first_row + start, whole=False)

    def collect_rows(self) -> Iterator[dict[str, Any]]:
        """Return the events as dictionaries: `time` an aware datetime, `attributes` the JSON text or None."""
        yield from self.fill_ids().to_pylist()
