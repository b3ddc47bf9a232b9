"""What a sensor passes to its law, and how counters continue between observations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controllers.framework.guard import ObservationQuality

Counters = Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    """An observation in the law's terms, its quality, and the counters for the next one."""

    observation: dict[str, Any]
    measured: ObservationQuality
    counters: dict[str, float]


def count_growth(before: Counters | None, counters: Mapping[str, float | None], key: str) -> float:
    """Return the growth of a counter; after a reset (a server came back empty), its whole count."""
    value = counters[key]
    if value is None or before is None or key not in before:
        return 0
    return value - before[key] if value >= before[key] else value
