"""Shared code of the matchers of sequences with the policy `once`, whose open attempts are in columns."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from workers.pipeline.events.layout import append_batch
from workers.pipeline.matching import retained
from workers.pipeline.matching.open_attempts import AttemptTable


@dataclass(frozen=True)
class BatchKeys:
    """The keys of the rows of a batch.

    texts, groups: distinct keys, and their key groups. numbers: their numbers among the keys of open attempts, or -1.
    codes: for each row, the place of its key in `texts`.
    """

    texts: pa.Array
    groups: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray

    @classmethod
    def build(cls, rows: pa.RecordBatch, attempts: AttemptTable) -> "BatchKeys":
        encoded = rows.column("match_key").dictionary_encode()
        codes = encoded.indices.to_numpy()
        groups = np.empty(len(encoded.dictionary), np.int64)
        groups[codes] = rows.column("group").to_numpy()
        return cls(encoded.dictionary, groups, attempts.keys.find(encoded.dictionary), codes)


class AttemptMatcher:
    """A matcher whose state is its open attempts."""

    attempts: AttemptTable

    @property
    def open_rows(self) -> int:
        """Return how many attempts are open."""
        return len(self.attempts)

    def has_open(self, keys: pa.Array) -> np.ndarray:
        """Return, for each key (text, distinct), whether the key has an open attempt."""
        return self.attempts.has_open(keys)

    def advance(self, now_us: int) -> retained.Matches:
        """End the attempts that no event from `now_us` on can complete."""
        self.attempts.advance(now_us)
        return retained.build_empty()

    def finish(self) -> retained.Matches:
        self.attempts.clear()
        return retained.build_empty()

    def compute_timers(self) -> dict[int, int]:
        """Return, per key group, the earliest time (µs) at which `advance` ends an attempt."""
        return self.attempts.compute_timers()

    def save(self, states: retained.GroupStates) -> None:
        self.attempts.save(states)

    def load(self, states: retained.GroupStates) -> None:
        self.attempts.load(states)

    def add_keys(self, batch_keys: BatchKeys, codes: np.ndarray) -> np.ndarray:
        """Add the missing keys, and return the number of each attempt's key. codes: the code of each attempt's key."""
        numbers = batch_keys.numbers
        is_missing = np.zeros(len(numbers), bool)
        is_missing[codes[numbers[codes] < 0]] = True
        missing = np.flatnonzero(is_missing)
        if len(missing):
            texts = batch_keys.texts.take(pa.array(missing))
            numbers[missing] = self.attempts.add_keys(texts, batch_keys.groups[missing])
        of_attempt: np.ndarray = numbers[codes]
        return of_attempt

    def find_events(
        self, rows: pa.RecordBatch, attempts: np.ndarray, places: np.ndarray
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Return the events of attempts, followed by the rows of a batch, and the place of each event among them.

        attempts: numbers, or -1 for attempts that began in the batch. places: int64[attempts, steps], the rows of the
        batch that they took, or -1. The result also has -1 for steps without an event.
        """
        before = np.flatnonzero(attempts >= 0)
        own = self.attempts.get_events(attempts[before])
        number, step = np.nonzero(own >= 0)
        if not len(number):
            return rows, places
        events = self.attempts.take_events(own[number, step], self.attempts.get_keys(attempts[before[number]]))
        places = np.where(places >= 0, places + len(number), -1)
        places[before[number], step] = np.arange(len(number))
        return append_batch(events, rows), places
