"""A handler that computes, so that the processor limits a pool: `python:bench.laws.on_plant.work.compute`."""

from collections.abc import Sequence
from typing import Any

ROUNDS = 20_000  # about a millisecond of an event


def compute(events: Sequence[Any]) -> None:
    """Take the processor for each event."""
    for _ in events:
        sum(range(ROUNDS))
