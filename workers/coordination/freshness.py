"""How long ago something last changed, by the watcher's own monotonic clock: a jumping wall clock makes
nothing old.
"""

from collections.abc import Hashable, Iterable

MOST_LAG_SECONDS = 1.0


class Freshness:
    """Ages of marks that change with every sign of life (a sequence number, a time stamp)."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def age_seconds(self, name: str, mark: Hashable, now_seconds: float, lag_seconds: float = 0.0) -> float:
        """Seconds since the mark changed.

        `lag_seconds` is what the mark itself claims to be old (wall clock now - its time stamp). It is
        believed at first, as nothing better is known; later only up to MOST_LAG_SECONDS, so that a
        clock that jumps can't matter.
        """
        known = self._seen.get(name)
        if known is None or known[0] != mark:
            lag = max(0.0, lag_seconds)
            since = now_seconds - (lag if known is None else min(lag, MOST_LAG_SECONDS))
            self._seen[name] = known = (mark, since)
        return now_seconds - known[1]

    def forget_others(self, kind: str, names: Iterable[str]) -> None:
        """Of the marks whose names begin with the kind and "/", only those of these names stay."""
        there = {f"{kind}/{name}" for name in names}
        for name in [each for each in self._seen if each.startswith(f"{kind}/") and each not in there]:
            del self._seen[name]
