"""A handler that computes, so that the processor limits a pool: `python:bench.laws.on_plant.work.compute`."""

from collections.abc import Sequence
from typing import Any

ROUNDS = 20_000  # about 1 ms per event


def compute(events: Sequence[Any]) -> None:
    """Compute for about 1 ms per event."""
    for _ in events:
        sum(range(ROUNDS))
