"""How many slots of a pool were busy on average: instantaneous readings miss short workers.

Workers of half a second that start on each full second, read a second apart, seem never to be busy, or always. Their
starts and ends give the true duration.
"""

from collections.abc import Collection


class BusyTime:
    """Mean busy slots from starts and ends; instants are from one monotonic clock.

    Late information counts once it is known: over time nothing is lost, and nothing counts twice.
    """

    def __init__(self, at_seconds: float) -> None:
        self._asked_at = at_seconds
        self._seconds = 0.0  # of all slots, since the last call
        self._counted_until: dict[int, float] = {}  # busy slots

    def begin(self, slot: int, at_seconds: float) -> None:
        self._counted_until[slot] = at_seconds

    def end(self, slot: int, at_seconds: float) -> None:
        if (since := self._counted_until.pop(slot, None)) is not None:
            self._seconds += at_seconds - since

    def compute_mean(self, until_seconds: float, slots: Collection[int]) -> float | None:
        """Return (busy time) / (time) since the last call, a number of slots; None if no time has passed.

        A slot that no longer exists reports no end.
        """
        passed = until_seconds - self._asked_at
        if passed <= 0:
            return None
        for slot, since in list(self._counted_until.items()):
            if slot not in slots:
                del self._counted_until[slot]
            elif since < until_seconds:
                self._seconds += until_seconds - since
                self._counted_until[slot] = until_seconds
        mean, self._seconds, self._asked_at = self._seconds / passed, 0.0, until_seconds
        return mean
