"""A chain of clamps, x → min(max(x, low), high), applied one after the other, as array operations.

The composition of two clamps is a clamp: (l1, h1) followed by (l2, h2) is (clamp2(l1), clamp2(h1)). The chain is
therefore cut into about √n runs of √n. All runs are composed in parallel, one step at a time; only the runs themselves
are applied one by one.
"""

import math

import numpy as np

_INT64_MIN, _INT64_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def clamp_chain(low: np.ndarray, high: np.ndarray, start: int) -> np.ndarray:
    """Return the value after each clamp (int64[n]), starting at `start`. low, high: int64[n], low ≤ high."""
    count = len(low)
    length = max(1, math.isqrt(count))
    runs = -(-count // length)
    lows, highs = _arrange_runs(low, runs, length, _INT64_MIN), _arrange_runs(high, runs, length, _INT64_MAX)
    for step in range(1, length):
        least, most = lows[step].copy(), highs[step].copy()
        _clamp(lows[step - 1], least, most, out=lows[step])
        _clamp(highs[step - 1], least, most, out=highs[step])
    begins = _run_starts(lows[-1].tolist(), highs[-1].tolist(), start)
    values: np.ndarray = np.minimum(np.maximum(begins, lows), highs).T.ravel()
    return values[:count]


def _arrange_runs(values: np.ndarray, runs: int, length: int, padding: int) -> np.ndarray:
    """Return the values as [step, run]; padding changes nothing."""
    padded = np.full(runs * length, padding, np.int64)
    padded[: len(values)] = values
    return padded.reshape(runs, length).T.copy()


def _clamp(values: np.ndarray, least: np.ndarray, most: np.ndarray, out: np.ndarray) -> None:
    np.maximum(values, least, out=out)
    np.minimum(out, most, out=out)


def _run_starts(lows: list[int], highs: list[int], start: int) -> np.ndarray:
    begins, value = [], start
    for low, high in zip(lows, highs, strict=True):
        begins.append(value)
        value = min(max(value, low), high)
    return np.array(begins, np.int64)
