"""Fewer points for a chart, with every peak and dip kept."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

Column = Sequence[float | None]


def downsample(
    time: Sequence[float], columns: Mapping[str, Column], points: int
) -> tuple[list[float], dict[str, list[float | None]]]:
    """Return at most `points` rows over one time axis.

    They have the minimum and maximum of each column in each interval. The rows are split into points/2 intervals of
    nearly equal size. Each gives two rows, at its first and last time, with minimum and maximum in the order in which
    they occurred; None if unknown. An extreme is therefore at most one interval off in time, and never lost.
    """
    if len(time) <= points:
        return list(time), {name: list(column) for name, column in columns.items()}
    stretches = _split_into_ranges(len(time), max(1, points // 2))
    kept_time = [at for start, end in stretches for at in (time[start], time[end - 1])]
    kept = {
        name: [value for start, end in stretches for value in _find_extremes(column[start:end])]
        for name, column in columns.items()
    }
    return kept_time, kept


def _split_into_ranges(rows: int, count: int) -> list[tuple[int, int]]:
    edges = [rows * index // count for index in range(count + 1)]
    return list(pairwise(edges))


def _find_extremes(values: Column) -> tuple[float | None, float | None]:
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    if not known:
        return None, None
    least, greatest = min(known), max(known, key=lambda pair: pair[0])
    first, second = sorted((least, greatest), key=lambda pair: pair[1])
    return first[0], second[0]
