"""The observation that a sensor passes to its law, and how counters continue between observations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from common.stored_document import get_decoder
from controllers.framework.guard import ObservationQuality

Counters = Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    observation: dict[str, Any]
    measured: ObservationQuality
    counters: dict[str, float]

    @classmethod
    def of(cls, observation: msgspec.Struct, measured: ObservationQuality, counters: dict[str, float]) -> "Measurement":
        """Return the measurement of a law's observation; values that are unknown (None) are left out."""
        document = get_decoder(Any).decode(msgspec.json.encode(observation))  # lists as in a document, not tuples
        return cls({name: value for name, value in document.items() if value is not None}, measured, counters)


def count_growth(before: Counters | None, counters: Mapping[str, float | None], key: str) -> float:
    """Return the growth of a counter; after a reset (a server came back empty), its whole count."""
    value = counters[key]
    if value is None or before is None or key not in before:
        return 0
    return value - before[key] if value >= before[key] else value
