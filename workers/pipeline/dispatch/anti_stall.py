"""Anti-stall admission: what is dispatched although the limits allow nothing, so that event time goes on.

What is in the result queue leaves it when event time has passed it, and event time goes on with what is
dispatched. Where many events bear nearly the same time, or a container has held event time back, all that the
limits allow may be waiting for what they don't: nothing would move ever again.
"""

from queues.events.block import BLOCK_EVENTS
from workers.pipeline.tiers.result_queue import Room

STILL_SECONDS = 2.0


class AntiStallAdmission:
    """Lets a block through when nothing has left the queue for STILL_SECONDS and nothing is on its way there,
    twice as many after as long again, and so on until something leaves it.
    """

    def __init__(self) -> None:
        self._since, self._released_bytes, self._events = 0.0, 0, BLOCK_EVENTS

    def events(self, room: Room, now: float) -> int:
        """How many are let through now. Asked as often as the limits are checked."""
        if room.released_bytes != self._released_bytes or not room.used_bytes:
            self._since, self._released_bytes, self._events = now, room.released_bytes, BLOCK_EVENTS
        if room.in_flight_events or now - self._since < STILL_SECONDS:
            return 0
        self._since = now
        admitted, self._events = self._events, 2 * self._events
        return admitted
