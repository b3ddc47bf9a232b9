"""Rates from cumulative counters that are checked once a second."""

from collections import deque
from collections.abc import Container

WINDOW_SECONDS = 3.0
# Workers start every few seconds and take thousands of events at once: what leaves is judged over longer.
LEAVING_WINDOW_SECONDS = 15.0


class Rates:
    """rate = (newest - oldest) / (time between), over the samples of a window.

    The window evens out who flushed just before and who just after the check. Times are monotonic seconds. A
    counter that fell was reset (a server came back empty, or a second older): what was counted before is
    forgotten, and the rate is unknown until the next sample, rather than a jump that never happened.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def add(
        self, name: str, value: float, at_seconds: float, window_seconds: float = WINDOW_SECONDS
    ) -> float | None:
        """Take a sample; the rate per second, or None while only one is known."""
        samples = self._samples.setdefault(name, deque())
        if samples and value < samples[-1][1]:
            samples.clear()
        samples.append((at_seconds, value))
        # One sample older than the window stays: the window is then spanned in full.
        while len(samples) > 2 and samples[1][0] <= at_seconds - window_seconds:
            samples.popleft()
        return self.last(name)

    def last(self, name: str) -> float | None:
        """The rate as of the newest sample: for a counter that nobody has read again since."""
        samples = self._samples.get(name)
        if not samples:
            return None
        (first_seconds, first), (last_seconds, last) = samples[0], samples[-1]
        return (last - first) / (last_seconds - first_seconds) if last_seconds > first_seconds else None

    def forget(self, name: str) -> None:
        """A counter that is not known now: its next sample is a first one."""
        self._samples.pop(name, None)

    def forget_others(self, names: Container[str]) -> None:
        """Only the counters of these names stay."""
        for name in [sample for sample in self._samples if sample not in names]:
            self.forget(name)
