"""Ages of values by the watcher's own monotonic clock, so that a jump of the wall clock makes nothing old."""

from collections.abc import Hashable, Iterable

MAX_LAG_SECONDS = 1.0


class Freshness:
    """Ages of marks (a sequence number, a time stamp) that change with every sign of life."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def compute_age_seconds(self, name: str, mark: Hashable, now_seconds: float, lag_seconds: float = 0.0) -> float:
        """Return the seconds since the mark changed.

        `lag_seconds` is the age that the mark itself claims (wall clock now - its time stamp). It is used at first,
        when nothing better is known; later only up to MAX_LAG_SECONDS, so that a clock that jumps has no effect.
        """
        known = self._seen.get(name)
        if known is None or known[0] != mark:
            lag = max(0.0, lag_seconds)
            since = now_seconds - (lag if known is None else min(lag, MAX_LAG_SECONDS))
            self._seen[name] = known = (mark, since)
        return now_seconds - known[1]

    def forget_others(self, kind: str, names: Iterable[str]) -> None:
        """Forget the marks whose names start with the kind and "/", except those with these names."""
        there = {f"{kind}/{name}" for name in names}
        for name in [each for each in self._seen if each.startswith(f"{kind}/") and each not in there]:
            del self._seen[name]
