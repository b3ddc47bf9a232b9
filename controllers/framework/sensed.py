"""What a sensor gives to its law, and how it counts from one observation to the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.framework.guard import Measured

Counters = Mapping[str, float]


@dataclass(frozen=True)
class Sensed:
    """An observation in the law's words, how good it is, and the counters the next one is counted from."""

    observation: dict[str, Any]
    measured: Measured
    counters: dict[str, float]


def since(before: Counters | None, counters: Mapping[str, float | None], key: str) -> float:
    """The growth of a counter; after a reset (a server came back empty) all it counts is new."""
    value = counters[key]
    if value is None or before is None or key not in before:
        return 0
    return value - before[key] if value >= before[key] else value
