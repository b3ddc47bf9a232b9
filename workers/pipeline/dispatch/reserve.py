"""How much may be admitted now so that a part of the result queue stays free: the fast half of flow control.

The flow loop decides every other second from measurements of the previous second. A batch, a burst, or a process that
uses the processors comes and goes in less time. The loop therefore gives its setpoint to the dispatcher, which admits,
some times per second, no more than

    (capacity - used - in flight · b  -  reserve  +  mean in flight · b) / b    events, b bytes an event

Events in flight will be in the queue soon and are counted at once. Their mean is added because the free space would
otherwise settle above the reserve by just that amount.
"""

import math

from workers.pipeline.tiers.result_queue import Room

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
