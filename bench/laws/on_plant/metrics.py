"""Metrics of laws from samples of a plant, and their comparison with the baseline of the same run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SAMPLE_SECONDS = 5


@dataclass(frozen=True)
class Comparison:
    """A metric of the law and of its baseline; None: not measured. is_higher_better: False: lower is better."""

    name: str
    law: float | None
    baseline: float | None
    is_higher_better: bool = field(default=False, kw_only=True)

    @property
    def ratio(self) -> float | None:
        """Return how many times better the law is; below 1, the baseline is better."""
        if self.law is None or self.baseline is None:
            return None
        better, worse = (self.law, self.baseline) if self.is_higher_better else (self.baseline, self.law)
        if better == worse:
            return 1.0
        return better / worse if worse else math.inf


def summarize(comparisons: Iterable[Comparison]) -> dict[str, Any]:
    """Return the document of a bench: figures of the laws, peers (the baselines), and ratios."""
    rows = list(comparisons)
    return {
        "figures": {row.name: row.law for row in rows if row.law is not None},
        "peers": {row.name: row.baseline for row in rows if row.baseline is not None},
        "ratio": {row.name: row.ratio for row in rows if row.ratio is not None and math.isfinite(row.ratio)},
    }


def sum_samples(values: Sequence[float], every: int = SAMPLE_SECONDS) -> float:
    """Return the sum of every n-th of the values per second, as the thesis samples queue lengths."""
    return sum(values[every - 1 :: every])


def compute_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def compute_rms(values: Iterable[float | None], reference: float) -> float | None:
    """Return the root mean square of the distances from the reference."""
    squares = compute_mean(None if value is None else (value - reference) ** 2 for value in values)
    return None if squares is None else math.sqrt(squares)


def compute_recall(matches: float, possible: float) -> float | None:
    """Return the share of the possible matches; None if there are none."""
    return min(1.0, matches / possible) if possible else None


class PublishedBlock(NamedTuple):
    """The times at which a publisher began and finished sending a block, and whether the block was stored."""

    began: float
    ended: float
    stored: bool


def compute_divert_seconds(blocks: Iterable[PublishedBlock], failed_at: float) -> float | None:
    """Return the time from a failure until the last lost block, or the longest that a block took to be stored.

    None if no block was sent after the failure.
    """
    after = (block for block in blocks if block.ended >= failed_at)
    return max((block.ended - (block.began if block.stored else failed_at) for block in after), default=None)


def count_growth(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return the total growth of counters by name. New and reset counters count from 0."""
    return sum(value - before.get(name, 0) if value >= before.get(name, 0) else value for name, value in after.items())
