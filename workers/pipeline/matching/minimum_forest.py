"""Find the first number below a bound in each of many lists of numbers.

Each list is the bottom level of a tree, which is stored in arrays. A node of the level above has the minimum of FANOUT
numbers, and so on up to a single node. To find the first number below a bound, a search descends into the first node
whose minimum is below the bound. Searches in different lists run together. A search among n numbers takes log(n) steps,
instead of n comparisons.
"""

import math

import numpy as np

FANOUT = 8


class MinimumForest:
    """The lists 0, 1, …. Each list has places for numbers, which are empty at first.

    lengths: number of places of each list. includes_equal: whether numbers equal to the bound are also found.
    """

    def __init__(self, lengths: np.ndarray, includes_equal: bool) -> None:
        self._compare = np.less_equal if includes_equal else np.less
        self._levels: list[np.ndarray] = []
        self._starts: list[np.ndarray] = []
        nodes = lengths
        while True:
            blocks = np.maximum(1, -(-nodes // FANOUT))
            self._levels.append(np.full((int(blocks.sum()), FANOUT), np.nan))
            self._starts.append(np.cumsum(blocks) - blocks)
            if not len(blocks) or blocks.max() == 1:
                break
            nodes = blocks

    def fill(self, lists: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
        """Put numbers at places of lists, before the first search. NaN is never found."""
        self._levels[0].reshape(-1)[self._starts[0][lists] * FANOUT + places] = values
        for below, above, starts, starts_above in zip(
            self._levels, self._levels[1:], self._starts, self._starts[1:], strict=False
        ):
            blocks = np.diff(starts, append=len(below))
            list_of = np.repeat(np.arange(len(starts)), blocks)
            place = np.arange(len(below)) - starts[list_of]
            above.reshape(-1)[starts_above[list_of] * FANOUT + place] = np.fmin.reduce(below, axis=1)

    def finish(self, number: int, values: np.ndarray) -> None:
        """Replace the numbers of a list after its last search."""
        start = int(self._starts[0][number]) * FANOUT
        self._levels[0].reshape(-1)[start : start + len(values)] = values

    def find(self, lists: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return, for each of some distinct lists, the first place whose number is below a bound, or -1."""
        places = np.full(len(lists), -1, np.int64)
        has_one = self._compare(self._levels[-1][lists], bounds[:, None]).any(axis=1)
        lists, own_bounds, place = lists[has_one], bounds[has_one, None], np.zeros(np.count_nonzero(has_one), np.int64)
        for level, starts in zip(reversed(self._levels), reversed(self._starts), strict=True):
            first = self._compare(level[starts[lists] + place], own_bounds).argmax(axis=1)
            place = place * FANOUT + first
        places[has_one] = place
        return places

    def get_values(self, lists: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the numbers at places of lists."""
        values: np.ndarray = self._levels[0].reshape(-1)[self._starts[0][lists] * FANOUT + places]
        return values

    def add(self, lists: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
        """Put a number at an empty place of each of some distinct lists."""
        for level, starts in zip(self._levels, self._starts, strict=True):
            places, slot = np.divmod(places, FANOUT)
            row = starts[lists] + places
            level[row, slot] = np.fmin(level[row, slot], values)

    def remove(self, lists: np.ndarray, places: np.ndarray) -> None:
        """Empty a place of each of some distinct lists."""
        values: np.ndarray | float = np.nan
        for level, starts in zip(self._levels, self._starts, strict=True):
            places, slot = np.divmod(places, FANOUT)
            row = starts[lists] + places
            level[row, slot] = values
            if level is not self._levels[-1]:
                values = np.fmin.reduce(level[row], axis=1)


class MinimumTree:
    """The same search in a single list. It is faster than arrays if there are few lists. Infinity is never found."""

    def __init__(self, values: list[float]) -> None:
        self._size = 1 << max(0, len(values) - 1).bit_length()
        leaves = [math.inf if value != value else value for value in values]
        self._minima = [math.inf] * self._size + leaves + [math.inf] * (self._size - len(values))
        for node in range(self._size - 1, 0, -1):
            self._minima[node] = min(self._minima[2 * node], self._minima[2 * node + 1])

    def find(self, bound: float) -> int:
        """Return the first place whose number is below a bound, or -1."""
        minima, node = self._minima, 1
        if not minima[1] < bound:
            return -1
        while node < self._size:
            node *= 2
            if not minima[node] < bound:
                node += 1
        return node - self._size

    def set(self, place: int, value: float) -> None:
        """Set the number at a place. NaN: the place is empty."""
        minima, node = self._minima, self._size + place
        minima[node] = math.inf if value != value else value
        while node > 1:
            node //= 2
            minima[node] = min(minima[2 * node], minima[2 * node + 1])

    def list_values(self) -> list[float]:
        """Return the numbers; infinity for empty places."""
        return self._minima[self._size :]
