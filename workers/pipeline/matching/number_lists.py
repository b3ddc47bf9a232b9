"""A list of numbers for each key, in one array.

Each list has its own range of the array, with room for more numbers. A full list moves to the end of the array and gets
more room. All operations process many lists at once. Their time is proportional to the numbers that they add or read.
"""

import numpy as np

from workers.pipeline.matching.row_pool import GrowingArray

MAX_UNUSED = 3  # unused places, as a multiple of the numbers in all lists
MIN_UNUSED = 4_096  # with fewer unused places, lists never move to close gaps
ALL = 2**31 - 1  # no list has more numbers


def expand_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the numbers of all ranges, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: np.ndarray = np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
    return places


def count_runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the value of each run of equal values, and the length of the run."""
    begins = np.flatnonzero(np.diff(values, prepend=-1))
    return values[begins], np.diff(begins, append=len(values))


class NumberLists:
    """The lists of the keys 0, 1, …. Each list is empty at first."""

    def __init__(self) -> None:
        self._starts, self._lengths, self._room = (GrowingArray(np.int32) for _ in range(3))
        self._numbers = GrowingArray(np.int32)
        self._total = 0

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self._starts, self._lengths, self._room, self._numbers))

    @property
    def lengths(self) -> np.ndarray:
        """Return the length of each list."""
        return self._lengths.values

    def add_keys(self, count: int) -> None:
        """Add empty lists until there are `count` lists."""
        none = np.zeros(count - len(self._starts), np.int32)
        for array in (self._starts, self._lengths, self._room):
            array.append(none)

    def read(self, keys: np.ndarray, most: np.ndarray | int = ALL) -> tuple[np.ndarray, np.ndarray]:
        """Return the first numbers of the lists, list by list, and the place of the key of each number.

        keys: distinct. most: maximum count of numbers from each list.
        """
        counts = np.minimum(self._lengths.values[keys].astype(np.int64), most)
        numbers = self._numbers.values[expand_ranges(self._starts.values[keys], counts)]
        return np.repeat(np.arange(len(keys)), counts), numbers.astype(np.int64)

    def drop_first(self, keys: np.ndarray) -> None:
        """Remove the first number of the list of each key. A key that occurs n times loses its first n numbers."""
        distinct, counts = count_runs(np.sort(keys))
        self._starts.values[distinct] += counts
        self._lengths.values[distinct] -= counts
        self._room.values[distinct] -= counts
        self._total -= len(keys)

    def append(self, keys: np.ndarray, numbers: np.ndarray) -> None:
        """Append numbers to the lists of their keys. keys: equal keys must be adjacent."""
        distinct, counts = count_runs(keys)
        before = self._lengths.values[distinct].astype(np.int64)
        self._make_room(distinct, before + counts)
        self._numbers.values[expand_ranges(self._starts.values[distinct] + before, counts)] = numbers
        self._lengths.values[distinct] += counts
        self._total += len(numbers)

    def renumber(self, new_numbers: np.ndarray) -> None:
        """Replace each number by its new number."""
        used = expand_ranges(self._starts.values, self._lengths.values)
        values = self._numbers.values
        values[used] = new_numbers[values[used]]

    def select(self, kept: np.ndarray) -> None:
        """Keep the lists with these numbers only, in this order."""
        for array in (self._starts, self._lengths, self._room):
            array.replace(array.values[kept])

    def _make_room(self, keys: np.ndarray, wanted: np.ndarray) -> None:
        """Give the lists of keys room for this many numbers."""
        if len(self._numbers) > MAX_UNUSED * self._total + MIN_UNUSED:
            self._close_gaps()
        full = wanted > self._room.values[keys]
        if not full.any():
            return
        keys, wanted = keys[full], wanted[full]
        # A list gets room for its first number alone, since most keys have only one.
        room = np.where(wanted > 1, wanted + wanted // 2 + 1, wanted)
        starts = len(self._numbers) + np.cumsum(room) - room
        lengths = self._lengths.values[keys]
        moved = self._numbers.values[expand_ranges(self._starts.values[keys], lengths)]
        self._numbers.append(np.empty(int(room.sum()), np.int32))
        self._numbers.values[expand_ranges(starts, lengths)] = moved
        self._starts.values[keys] = starts
        self._room.values[keys] = room

    def _close_gaps(self) -> None:
        lengths = self._lengths.values.astype(np.int64)
        self._numbers.replace(self._numbers.values[expand_ranges(self._starts.values, lengths)])
        self._starts.replace(np.cumsum(lengths) - lengths)
        self._room.replace(lengths)


class StepQueues:
    """The open attempts of each key in queues, one for each number of events taken. Each queue is empty at first.

    Attempts leave a queue in the order in which they joined it. steps: number of events of a match.
    """

    def __init__(self, steps: int) -> None:
        self._queues = [NumberLists() for _ in range(max(1, steps - 1))]

    @property
    def nbytes(self) -> int:
        return sum(queue.nbytes for queue in self._queues)

    def add_keys(self, count: int) -> None:
        """Add keys without attempts until there are `count` keys."""
        for queue in self._queues:
            queue.add_keys(count)

    def has_open(self, keys: np.ndarray) -> np.ndarray:
        """Return whether each key has open attempts."""
        has_open: np.ndarray = np.logical_or.reduce([queue.lengths[keys] > 0 for queue in self._queues])
        return has_open

    def read(self, keys: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of the key of each attempt, and the attempts, queue by queue.

        keys: distinct. most: maximum count from each queue of the key.
        """
        parts = [queue.read(keys, most) for queue in self._queues]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def leave(self, keys: np.ndarray, taken: np.ndarray) -> None:
        """Remove the oldest attempts of keys. taken: how many events each of them has taken."""
        for step, queue in enumerate(self._queues, 1):
            queue.drop_first(keys[taken == step])

    def join(self, keys: np.ndarray, taken: np.ndarray, attempts: np.ndarray) -> None:
        """Append attempts to their queues. keys: equal keys must be adjacent."""
        for step, queue in enumerate(self._queues, 1):
            queue.append(keys[taken == step], attempts[taken == step])

    def renumber(self, new_attempts: np.ndarray) -> None:
        """Replace each attempt by its new number."""
        for queue in self._queues:
            queue.renumber(new_attempts)

    def select(self, kept: np.ndarray) -> None:
        """Keep only these keys, in this order."""
        for queue in self._queues:
            queue.select(kept)
