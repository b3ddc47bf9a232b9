"""The keys of open attempts as numbers, in arrays.

The time to find the attempts of a key must not depend on the number of keys. A Python dictionary would take more than
100 bytes for each key. This hash table therefore consists of arrays, and finds all keys of a batch at once.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workers.pipeline.events.text_hashes import hash_texts
from workers.pipeline.matching.row_pool import GrowingArray, RowPool

MIN_PLACES = 64
MAX_LOAD = 0.6  # share of the places of a hash table that are in use
_ROUNDS = 8  # hash functions; the next one is used only if two keys have the same hash


class KeyTable:
    """Texts and their numbers, from 0 on. Each key has the number of its key group."""

    def __init__(self) -> None:
        self._places = np.full(MIN_PLACES, -1, np.int32)
        self._hashes = GrowingArray(np.uint64)
        self._texts = RowPool()
        self.groups = GrowingArray(np.int16)

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def nbytes(self) -> int:
        return self._places.nbytes + self._hashes.nbytes + self.groups.nbytes + self._texts.nbytes

    def find(self, keys: pa.Array) -> np.ndarray:
        """Return the number of each key (text), or -1."""
        return self._find(keys)[0]

    def add(self, keys: pa.Array, groups: np.ndarray) -> np.ndarray:
        """Add the missing keys (text, distinct) with their key groups, and return the number of each key."""
        numbers, hashes = self._find(keys)
        missing = np.flatnonzero(numbers < 0)
        if len(missing):
            numbers[missing] = np.arange(len(self), len(self) + len(missing))
            self._texts.append(pa.RecordBatch.from_arrays([keys.take(pa.array(missing))], ["key"]))
            self._hashes.append(hashes[missing])
            self.groups.append(groups[missing])
            if len(self) > MAX_LOAD * len(self._places):
                self._rebuild_places()
            else:
                self._insert(hashes[missing], numbers[missing])
        return numbers

    def take_texts(self, numbers: np.ndarray) -> pa.Array:
        """Return the texts of keys."""
        return self._texts.take(numbers).column("key") if len(numbers) else pa.array([], pa.string())

    def select(self, kept: np.ndarray) -> None:
        """Keep only the keys with these numbers, ascending. The new number of a key is its place in `kept`."""
        texts, groups = self.take_texts(kept), self.groups.values[kept]
        self.__init__()  # type: ignore[misc]
        self.add(texts, groups)

    def _find(self, keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each key, or -1, and the hash for its place in the table."""
        numbers, hashes = np.full(len(keys), -1, np.int64), np.zeros(len(keys), np.uint64)
        searched = np.arange(len(keys))
        for seed in range(_ROUNDS):
            texts = keys if len(searched) == len(keys) else keys.take(pa.array(searched))
            hashes[searched] = hash_texts(texts, np.full(len(texts), seed, np.int64)).view(np.uint64)
            found = self._find_hashes(hashes[searched])
            present = np.flatnonzero(found >= 0)
            equal = pc.equal(self.take_texts(found[present]), texts.take(pa.array(present)))
            is_equal = equal.to_numpy(zero_copy_only=False)
            numbers[searched[present[is_equal]]] = found[present[is_equal]]
            searched = searched[present[~is_equal]]
            if not len(searched):
                return numbers, hashes
        raise AssertionError(f"{_ROUNDS} hashes of different keys are equal")

    def _find_hashes(self, hashes: np.ndarray) -> np.ndarray:
        """Return the number of the key of each hash, or -1."""
        result = np.full(len(hashes), -1, np.int64)
        if not len(self):
            return result
        last, known = np.uint64(len(self._places) - 1), self._hashes.values
        place, active = hashes & last, np.arange(len(hashes))
        while len(active):
            numbers = self._places[place]
            used = numbers >= 0
            active, place, numbers = active[used], place[used], numbers[used]
            equal = known[numbers] == hashes[active]
            result[active[equal]] = numbers[equal]
            active, place = active[~equal], (place[~equal] + np.uint64(1)) & last
        return result

    def _insert(self, hashes: np.ndarray, numbers: np.ndarray) -> None:
        last = np.uint64(len(self._places) - 1)
        place = hashes & last
        while len(numbers):
            free = self._places[place] < 0
            self._places[place[free]] = numbers[free]  # if several keys have the same place, one of them gets it
            waits = self._places[place] != numbers
            numbers, place = numbers[waits], (place[waits] + np.uint64(1)) & last

    def _rebuild_places(self) -> None:
        capacity = len(self._places)
        while len(self) > MAX_LOAD / 2 * capacity:
            capacity *= 2
        self._places = np.full(capacity, -1, np.int32)
        self._insert(self._hashes.values, np.arange(len(self)))
