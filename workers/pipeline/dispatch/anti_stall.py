"""Anti-stall admission: dispatches although the limits allow nothing, so that event time advances.

Results leave the result queue once event time has passed them, and event time advances with what is dispatched. If many
events have nearly the same time, or a container has held event time back, everything that the limits allow may wait for
events that they don't allow. Without this admission, nothing would ever move again.
"""

from queues.events.block import BLOCK_EVENTS
from workers.pipeline.tiers.result_queue import Room

STILL_SECONDS = 2.0


class AntiStallAdmission:
    """Admits a block if nothing has left the queue for STILL_SECONDS and nothing is in flight.

    The number of blocks doubles after each further period of that length, until something leaves the queue.
    """

    def __init__(self) -> None:
        self._since, self._released_bytes, self._events = 0.0, 0, BLOCK_EVENTS

    def count_admissible_events(self, room: Room, now: float) -> int:
        """Return how many events to admit now. Call it as often as the limits are checked."""
        if room.released_bytes != self._released_bytes or not room.used_bytes:
            self._since, self._released_bytes, self._events = now, room.released_bytes, BLOCK_EVENTS
        if room.in_flight_events or now - self._since < STILL_SECONDS:
            return 0
        self._since = now
        admitted, self._events = self._events, 2 * self._events
        return admitted
