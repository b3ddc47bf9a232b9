"""Find the first number below a bound in each of many lists of numbers.

Each list is the bottom level of a tree. A node of the level above has the minimum of FANOUT numbers, and so on up to a
level of at most FANOUT nodes. To find the first number below a bound, a search descends into the first node whose
minimum is below the bound. Searches in different lists run together. A search among n numbers takes log(n) steps,
instead of n comparisons. A list that gets or loses a number changes one node of each level.

All trees are in one array, so they can grow and stay between batches. The levels of a tree follow each other, the
numbers first. Places without a number are infinite, so infinity is never found.
"""

from typing import cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

FANOUT = 8


def compute_tree_sizes(rooms: np.ndarray) -> np.ndarray:
    """Return how many places of the array the trees of lists take. rooms: up to FANOUT, or multiples of FANOUT."""
    sizes, nodes = rooms.astype(np.int64), rooms
    while (nodes > FANOUT).any():
        nodes = _count_parents(nodes)
        sizes += nodes
    return sizes


def _count_parents(nodes: np.ndarray) -> np.ndarray:
    """Return the places of the level above a level, a multiple of FANOUT; 0 if there is no such level."""
    parents: np.ndarray = np.where(nodes > FANOUT, -(-nodes // FANOUT**2) * FANOUT, 0)
    return parents


class MinimumForest:
    """Some trees of an array.

    minima: float64. Its first and its last FANOUT places belong to no tree. starts, rooms: first place of each tree,
    and how many numbers its list has room for.
    """

    def __init__(self, minima: np.ndarray, starts: np.ndarray, rooms: np.ndarray) -> None:
        self._minima, self._rooms = minima, rooms
        self._blocks = sliding_window_view(minima, FANOUT)
        # The levels above the top of a tree are the first places of the array. A search finds their first node.
        starts = starts.astype(np.int64)
        self._levels = [starts]
        nodes = rooms.astype(np.int64)
        while (has_parents := nodes > FANOUT).any():
            starts, nodes = starts + nodes, _count_parents(nodes)
            self._levels.append(np.where(has_parents, starts, 0))

    def find(self, trees: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Return, for each of some distinct trees, the place in its list of the first number below a bound, or -1."""
        places, limits = np.zeros(len(trees), np.int64), bounds[:, None]
        for level in reversed(self._levels):
            blocks = self._blocks[level[trees] + places * FANOUT]
            places = places * FANOUT + (blocks < limits).argmax(axis=1)
        # A list with less room than FANOUT is followed by the numbers of other lists.
        is_found = (places < self._rooms[trees]) & (self._minima[self._levels[0][trees] + places] < bounds)
        return np.where(is_found, places, -1)

    def add(self, trees: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
        """Put numbers at empty places of lists. trees: equal trees must be adjacent, with ascending places."""
        for level in self._levels:
            at = level[trees] + places
            begins = np.flatnonzero(np.diff(at, prepend=-1))
            if len(begins) < len(at):
                values = np.minimum.reduceat(values, begins)
                at, trees, places = at[begins], trees[begins], places[begins]
            self._minima[at] = np.minimum(self._minima[at], values)
            places = places // FANOUT

    def remove(self, trees: np.ndarray, places: np.ndarray) -> None:
        """Empty a place of each of some distinct lists."""
        below = self._levels[0][trees]
        self._minima[below + places] = np.inf
        for level in self._levels[1:]:
            places = places // FANOUT
            blocks, below = self._blocks[below + places * FANOUT], level[trees]
            while blocks.shape[1] > 1:  # faster than a reduction of short rows
                half = blocks.shape[1] // 2
                blocks = np.minimum(blocks[:, :half], blocks[:, half:])
            self._minima[below + places] = blocks[:, 0]

    def get_tree(self, tree: int) -> "MinimumTree":
        """Return a single tree."""
        levels = [int(level[tree]) for level in self._levels]
        top = levels.index(0) if 0 in levels else len(levels)
        minima = cast("memoryview[float]", self._minima.data)
        return MinimumTree(minima, levels[:top], int(self._rooms[tree]))


class MinimumTree:
    """A single tree of a forest. For few trees, its search is faster than one that uses arrays.

    levels: first place of each level, the numbers first.
    """

    def __init__(self, minima: "memoryview[float]", levels: list[int], room: int) -> None:
        self._minima, self._levels, self._width = minima, levels, min(room, FANOUT)
        self._top_down = levels[::-1]

    def find(self, bound: float) -> int:
        """Return the place of the first number below a bound, or -1."""
        minima, place = self._minima, 0
        for level in self._top_down:
            start = level + place * FANOUT
            for node in range(start, start + self._width):
                if minima[node] < bound:
                    place = node - level
                    break
            else:
                return -1
        return place

    def set(self, place: int, value: float) -> None:
        """Set the number at a place. Infinity: the place is empty."""
        minima, below = self._minima, self._levels[0]
        minima[below + place] = value
        for level in self._levels[1:]:
            place //= FANOUT
            start = below + place * FANOUT
            least = min(minima[start : start + FANOUT])
            if minima[level + place] == least:
                return
            minima[level + place], below = least, level
