"""How much the dispatcher may admit now: the reserve of the result queue, and the exception that prevents a stall."""

import math

from queues.events.block import BLOCK_EVENTS
from workers.pipeline.dispatch.result_queue import Room

# Averaging time of the mean: some batches.
MEAN_SECONDS = 10.0


class Reserve:
    """Keeps the average number of events in flight."""

    def __init__(self) -> None:
        self._mean_events: float | None = None
        self._at_seconds = 0.0

    def count_admissible_events(
        self, room: Room, capacity_bytes: int, reserve_bytes: float, now_seconds: float
    ) -> float:
        """Return how many events may be admitted now. Below 0, none may be until more has left the queue."""
        if self._mean_events is None:
            self._mean_events = float(room.in_flight_events)
        else:
            share = 1 - math.exp(-(now_seconds - self._at_seconds) / MEAN_SECONDS)
            self._mean_events += share * (room.in_flight_events - self._mean_events)
        self._at_seconds = now_seconds
        free_bytes = room.free_bytes(capacity_bytes) - reserve_bytes
        return free_bytes / max(room.bytes_per_event, 1.0) + self._mean_events


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
