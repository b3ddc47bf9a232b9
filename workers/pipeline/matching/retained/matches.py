"""The matches of a matcher, in columns: as many matches as `keys`, their events one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

# What a match reports of a contributing event, besides its key and the key group of that key.
EVENT = pa.schema(
    [
        pa.field("time", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("type", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("source", pa.string()),
    ]
)
KEYED = EVENT.append(pa.field("match_key", pa.string())).append(pa.field("group", pa.int32()))


@dataclass(frozen=True)
class Matches:
    """Matches in columns.

    events: rows of KEYED, match after match in the order of completion. ends: where each match's events end.
    suppressed: per match, whether it is only counted.
    """

    events: pa.RecordBatch
    ends: np.ndarray
    suppressed: np.ndarray

    @classmethod
    def build(cls, events: pa.RecordBatch, ends: np.ndarray) -> "Matches":
        return cls(events, ends, np.zeros(len(ends), bool))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> np.ndarray:
        return np.concatenate((np.zeros(1, np.int64), self.ends[:-1])) if len(self) else self.ends

    @property
    def keys(self) -> pa.Array:
        """Return the key of each match."""
        return self.events.column("match_key").take(pa.array(self.ends - 1))

    @property
    def groups(self) -> np.ndarray:
        """Return the key group of each match."""
        groups: np.ndarray = self.events.column("group").to_numpy()
        of_last: np.ndarray = groups[self.ends - 1]
        return of_last

    @property
    def completed_us(self) -> np.ndarray:
        """Return the time of each match's last event."""
        times_us: np.ndarray = self.events.column("time").to_numpy()
        of_last: np.ndarray = times_us[self.ends - 1]
        return of_last

    def get_event_ids(self) -> list[list[str]]:
        """Return the ids of the events of each match."""
        ids = self.events.column("id").to_pylist()
        return [ids[start:end] for start, end in self._iterate_bounds()]

    def list_emitted(self) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """Return, for each match that is not suppressed, its key and its events (values of EVENT)."""
        rows = list(zip(*(self.events.column(name).to_pylist() for name in EVENT.names), strict=True))
        for key, suppressed, (start, end) in zip(
            self.keys.to_pylist(), self.suppressed, self._iterate_bounds(), strict=True
        ):
            if not suppressed:
                yield key, rows[start:end]

    def _iterate_bounds(self) -> Iterator[tuple[int, int]]:
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)


def build_empty() -> Matches:
    return Matches.build(pa.RecordBatch.from_pylist([], schema=KEYED), np.zeros(0, np.int64))


def build_from_rows(events: pa.RecordBatch, rows: np.ndarray) -> Matches:
    """Build matches with equally many events.

    rows: int64[matches, events], the places in `events`, which are in the order of arrival.
    """
    rows = rows[np.argsort(rows[:, -1])]
    ends = np.arange(1, len(rows) + 1) * rows.shape[1]
    return Matches.build(events.take(pa.array(rows.ravel())), ends)


def concatenate(parts: list[Matches]) -> Matches:
    """Return the matches of all parts, in their order."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else build_empty()
    before = np.cumsum([0, *(part.events.num_rows for part in parts[:-1])])
    return Matches(
        pa.concat_batches([part.events for part in parts]),
        np.concatenate([part.ends + rows for part, rows in zip(parts, before, strict=True)]),
        np.concatenate([part.suppressed for part in parts]),
    )
