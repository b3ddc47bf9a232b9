"""Rates of cumulative counters that are read once a second."""

from collections import deque
from collections.abc import Container

WINDOW_SECONDS = 3.0
# Workers start every few seconds and take thousands of events at once, so output is averaged over a longer
# time.
LEAVING_WINDOW_SECONDS = 15.0


class Rates:
    """rate = (newest - oldest) / (time between), over the samples of a window.

    The window averages over writes just before and just after a reading. Times are monotonic seconds. A counter that
    decreased was reset (a server restarted empty, or with data of a second ago): its history is dropped, and the rate
    is unknown until the next sample instead of having a jump that never happened.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def add(self, name: str, value: float, at_seconds: float, window_seconds: float = WINDOW_SECONDS) -> float | None:
        """Add a sample; return the rate per second, or None while there is only one."""
        samples = self._samples.setdefault(name, deque())
        if samples and value < samples[-1][1]:
            samples.clear()
        samples.append((at_seconds, value))
        # One sample older than the window stays, so that the window is spanned completely.
        while len(samples) > 2 and samples[1][0] <= at_seconds - window_seconds:
            samples.popleft()
        return self.get_latest(name)

    def get_latest(self, name: str) -> float | None:
        """Return the rate as of the newest sample, for a counter that has not been read since."""
        samples = self._samples.get(name)
        if not samples:
            return None
        (first_seconds, first), (last_seconds, last) = samples[0], samples[-1]
        return (last - first) / (last_seconds - first_seconds) if last_seconds > first_seconds else None

    def forget(self, name: str) -> None:
        """Forget a counter that is unknown now: its next sample is a first one."""
        self._samples.pop(name, None)

    def forget_others(self, names: Container[str]) -> None:
        """Keep only the counters with these names."""
        for name in [sample for sample in self._samples if sample not in names]:
            self.forget(name)
