"""How many slots of a pool were at work on average: what is read at an instant misses workers that are short.

Workers of half a second that begin on each full second, seen a second apart, seem never to be at work, or
always. Their begins and ends say how long they were.
"""

from collections.abc import Collection


class BusyTime:
    """Begins and ends in, means out; instants are of one monotonic clock. What is known late counts once it
    is known: over time nothing is lost, and nothing counts twice.
    """

    def __init__(self, at_seconds: float) -> None:
        self._asked_at = at_seconds
        self._seconds = 0.0  # of all slots, since it was asked
        self._counted_until: dict[int, float] = {}  # slots at work

    def begin(self, slot: int, at_seconds: float) -> None:
        self._counted_until[slot] = at_seconds

    def end(self, slot: int, at_seconds: float) -> None:
        if (since := self._counted_until.pop(slot, None)) is not None:
            self._seconds += at_seconds - since

    def mean(self, until_seconds: float, slots: Collection[int]) -> float | None:
        """Since it was asked before: (time at work) / (time), a number of slots; None where no time has
        passed. Of a slot that is none of these any more no end will come.
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
