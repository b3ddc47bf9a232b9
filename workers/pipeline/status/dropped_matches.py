"""The log's warnings about patterns that drop open matches."""

import logging
import time
from collections.abc import Callable, Mapping

from workers.pipeline.matching.attempt import MAX_BRANCHES
from workers.pipeline.tiers.finished_batch import OperatorCount

logger = logging.getLogger(__name__)
WARN_SECONDS = 60.0  # seconds between two warnings about a pattern


class DroppedMatchWarnings:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._warned_at: dict[str, float] = {}

    def warn(self, counts: Mapping[str, OperatorCount]) -> None:
        """Log each pattern that dropped open matches, or some of their branches, once every WARN_SECONDS."""
        for name, pattern in (item for count in counts.values() for item in count.patterns.items()):
            if pattern.excess and self._is_due(name):
                logger.warning(
                    "Pattern %s dropped branches %d times, because an open match had more than %d ways to match"
                    " the same events. Define its symbols so that an event satisfies only one of them.",
                    name,
                    pattern.excess,
                    MAX_BRANCHES,
                )
            if pattern.forgotten_bytes and self._is_due(name):
                logger.warning(
                    "Pattern %s dropped open matches of %.1f MiB: it has too many keys, or too many events in"
                    " a window. Shorten the window, or discard more events with rules.",
                    name,
                    pattern.forgotten_bytes / 2**20,
                )

    def _is_due(self, pattern: str) -> bool:
        """Return whether the pattern had no warning in the last WARN_SECONDS."""
        now = self._monotonic()
        is_due = now - self._warned_at.get(pattern, -WARN_SECONDS) >= WARN_SECONDS
        if is_due:
            self._warned_at[pattern] = now
        return is_due
