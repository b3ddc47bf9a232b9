"""The open attempts of each key, the oldest first, for attempts that end in any order.

All lists are in one array. An attempt that ends keeps its place. A list that is full is written again without the
attempts that have ended, at the end of the array if it needs more room. All operations process many lists at once.
Their time is proportional to the attempts that they add or read, and does not depend on those that end.

The lists can have a number for each attempt, and find the oldest attempt whose number is below a bound
(`minimum_forest`). The array of minima has the same places as the array of attempts.
"""

import numpy as np

from workers.pipeline.matching.minimum_forest import FANOUT, MinimumForest, compute_tree_sizes
from workers.pipeline.matching.number_lists import count_runs, expand_ranges
from workers.pipeline.matching.row_pool import GrowingArray

MIN_PLACES = 4_096  # a shorter array is never written again to close gaps
MAX_GROWTH = 2  # of the array, until it is written again to close gaps
_NONE = -1


def compute_rooms(lengths: np.ndarray) -> np.ndarray:
    """Return how many attempts lists of these lengths have room for."""
    # A list gets room for its first attempt alone, since most keys have only one.
    rooms = np.where(lengths > 1, lengths + lengths // 2 + 1, lengths)
    return np.where(rooms > FANOUT, -(-rooms // FANOUT) * FANOUT, rooms)


class AttemptLists:
    """The lists of the keys 0, 1, …. Each list is empty at first.

    taken: how many events each attempt has taken, 0 if it has ended. has_minima: whether attempts have numbers.
    is_indexed: whether all open attempts have their numbers.
    """

    def __init__(self, taken: GrowingArray, has_minima: bool) -> None:
        self._taken, self._has_minima, self.is_indexed = taken, has_minima, has_minima
        self._starts, self._rooms, self._lengths, self._open = (GrowingArray(np.int32) for _ in range(4))
        self._clear_places()

    def _clear_places(self) -> None:
        self._attempts, self._minima = GrowingArray(np.int32), GrowingArray(np.float64)
        self._max_places = 0
        self._add_places(2 * FANOUT)

    def _add_places(self, count: int) -> None:
        self._attempts.append(np.full(count, _NONE, np.int32))
        if self._has_minima:
            self._minima.append(np.full(count, np.inf))

    @property
    def nbytes(self) -> int:
        arrays = (self._starts, self._rooms, self._lengths, self._open, self._attempts, self._minima)
        return sum(array.nbytes for array in arrays)

    def add_keys(self, count: int) -> None:
        """Add empty lists until there are `count` lists."""
        none = np.zeros(count - len(self._starts), np.int32)
        for array in (self._starts, self._rooms, self._lengths, self._open):
            array.append(none)

    def has_open(self, keys: np.ndarray) -> np.ndarray:
        """Return whether each key has open attempts."""
        has_open: np.ndarray = self._open.values[keys] > 0
        return has_open

    def read(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the key of each open attempt, and the attempts, list by list. keys: distinct."""
        key_of, _, attempts = self._read_open(keys)
        return key_of, attempts

    def _read_open(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same as `read`, with the place of each attempt in the array."""
        lengths = self._lengths.values[keys]
        places = expand_ranges(self._starts.values[keys], lengths)
        attempts = self._attempts.values[places]
        used = np.flatnonzero(attempts != _NONE)
        used = used[self._taken.values[attempts[used]] > 0]
        return np.repeat(np.arange(len(keys)), lengths)[used], places[used], attempts[used].astype(np.int64)

    def leave(self, keys: np.ndarray) -> None:
        """Count attempts of keys as ended."""
        distinct, counts = count_runs(np.sort(keys))
        self._open.values[distinct] -= counts

    def append(self, keys: np.ndarray, attempts: np.ndarray) -> None:
        """Append open attempts without numbers to the lists of their keys. keys: equal keys must be adjacent."""
        self.is_indexed = self.is_indexed and not len(keys)
        distinct, counts = count_runs(keys)
        self.assign(keys, expand_ranges(self.reserve(distinct, counts), counts), attempts)

    def reserve(self, keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Append places without attempts to lists, and return the first of them in each list. keys: distinct."""
        full = np.flatnonzero(self._lengths.values[keys] + counts > self._rooms.values[keys])
        if len(full) and not self._make_room(keys[full], counts[full]):
            of_lists = np.zeros(len(self._starts), np.int64)
            of_lists[keys] = counts
            self._rewrite(of_lists)
        first: np.ndarray = self._lengths.values[keys].astype(np.int64)
        self._lengths.values[keys] += counts
        return first

    def assign(self, keys: np.ndarray, places: np.ndarray, attempts: np.ndarray) -> None:
        """Put open attempts at reserved places of the lists of their keys."""
        self._attempts.values[self._starts.values[keys] + places] = attempts
        distinct, counts = count_runs(np.sort(keys))
        self._open.values[distinct] += counts

    def get_attempts(self, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the attempts at places of the lists of keys; negative for places without one."""
        attempts: np.ndarray = self._attempts.values[self._starts.values[keys] + places]
        return attempts

    def get_list(self, key: int) -> memoryview:
        """Return the attempts at the places of the list of a key, until places are reserved."""
        start = int(self._starts.values[key])
        return self._attempts.values[start : start + int(self._lengths.values[key])].data

    def get_forest(self, keys: np.ndarray) -> MinimumForest:
        """Return the trees of the numbers of keys, until places are reserved."""
        return MinimumForest(self._minima.values, self._starts.values[keys], self._rooms.values[keys])

    def index(self, numbers: np.ndarray) -> None:
        """Set the numbers of all open attempts. numbers: of each attempt."""
        self._rewrite(np.zeros(len(self._starts), np.int64), numbers)
        self.is_indexed = True

    def renumber(self, new_attempts: np.ndarray) -> None:
        """Replace each open attempt by its new one, and remove the attempts that have ended."""
        self._rewrite(np.zeros(len(self._starts), np.int64))
        used = np.flatnonzero(self._attempts.values != _NONE)
        self._attempts.values[used] = new_attempts[self._attempts.values[used]]

    def select(self, kept: np.ndarray) -> None:
        """Keep the lists of these keys only, in this order. The other lists must be empty."""
        for array in (self._starts, self._rooms, self._lengths, self._open):
            array.replace(array.values[kept])

    def _make_room(self, keys: np.ndarray, counts: np.ndarray) -> bool:
        """Remove the attempts that have ended from lists, and make room for more attempts. keys: distinct.

        Return False, without changes, if the array would have too many gaps.
        """
        key_of, places, attempts = self._read_open(keys)
        lengths = np.bincount(key_of, minlength=len(keys))
        rooms = compute_rooms(lengths + counts)
        moves = rooms > self._rooms.values[keys]
        sizes = self._compute_sizes(rooms[moves])
        if len(self._attempts) + sizes.sum() > self._max_places:
            return False
        numbers = self._minima.values[places] if self._has_minima else None
        self._empty(keys[~moves])
        self._place(keys[moves], rooms[moves], sizes)
        self._write(keys, lengths, attempts, numbers)
        return True

    def _rewrite(self, counts: np.ndarray, numbers: np.ndarray | None = None) -> None:
        """Write all lists again, without gaps. counts: room for more attempts. numbers: of each attempt, if new."""
        keys = np.arange(len(self._starts))
        key_of, places, attempts = self._read_open(keys)
        if numbers is not None:
            of_attempts = numbers[attempts]
        else:
            of_attempts = self._minima.values[places] if self._has_minima else None
        lengths = np.bincount(key_of, minlength=len(keys))
        rooms = compute_rooms(lengths + counts)
        self._clear_places()
        self._place(keys, rooms, self._compute_sizes(rooms))
        self._max_places = MAX_GROWTH * len(self._attempts) + MIN_PLACES
        self._write(keys, lengths, attempts, of_attempts)

    def _compute_sizes(self, rooms: np.ndarray) -> np.ndarray:
        return compute_tree_sizes(rooms) if self._has_minima else rooms

    def _empty(self, keys: np.ndarray) -> None:
        """Empty all places of lists."""
        places = expand_ranges(self._starts.values[keys], self._compute_sizes(self._rooms.values[keys]))
        self._attempts.values[places] = _NONE
        if self._has_minima:
            self._minima.values[places] = np.inf

    def _place(self, keys: np.ndarray, rooms: np.ndarray, sizes: np.ndarray) -> None:
        """Give lists new places at the end of the array."""
        ends = len(self._attempts) - FANOUT + np.cumsum(sizes)
        self._add_places(int(sizes.sum()))
        self._starts.values[keys] = ends - sizes
        self._rooms.values[keys] = rooms

    def _write(self, keys: np.ndarray, lengths: np.ndarray, attempts: np.ndarray, numbers: np.ndarray | None) -> None:
        """Write the attempts and their numbers, list by list, to empty lists."""
        self._lengths.values[keys] = lengths
        key_of, places = np.repeat(np.arange(len(keys)), lengths), expand_ranges(np.zeros_like(lengths), lengths)
        self._attempts.values[self._starts.values[keys][key_of] + places] = attempts
        if numbers is not None:
            self.get_forest(keys).add(key_of, places, numbers)
