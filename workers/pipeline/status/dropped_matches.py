"""The log's warnings about patterns that drop open matches."""

import logging
import time
from collections.abc import Callable, Mapping

from workers.pipeline.tiers.finished_batch import OperatorCount

logger = logging.getLogger(__name__)
WARN_SECONDS = 60.0  # seconds between two warnings about a pattern


class DroppedMatchWarnings:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._warned_at: dict[str, float] = {}

    def warn(self, counts: Mapping[str, OperatorCount]) -> None:
        """Log each pattern that dropped open matches, once every WARN_SECONDS."""
        now = self._monotonic()
        patterns = (pattern_count for count in counts.values() for pattern_count in count.patterns.items())
        for name, pattern in patterns:
            if pattern.forgotten_bytes and now - self._warned_at.get(name, -WARN_SECONDS) >= WARN_SECONDS:
                self._warned_at[name] = now
                logger.warning(
                    "Pattern %s dropped open matches of %.1f MiB: it has too many keys, or too many events in"
                    " a window. Shorten the window, or keep fewer events with rules.",
                    name,
                    pattern.forgotten_bytes / 2**20,
                )
