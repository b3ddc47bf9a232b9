"""How much may be admitted now so that a part of the result queue stays free: the fast half of flow control.

The flow loop decides every other second by what was measured a second before; a batch, a burst and a process
that takes the processors come and go in less. So the loop gives its setpoint to the dispatcher, which admits,
some times a second, no more than

    (capacity - used - in flight · b  -  reserve  +  mean in flight · b) / b    events, b bytes an event

What is in flight will be in the queue soon and is counted at once; its mean is added, as without that the
free space would rest above the reserve by just so much.
"""

import math

from workers.pipeline.tiers.result_queue import Room

# The mean is one of about so long: some batches.
MEAN_SECONDS = 10.0


class Reserve:
    """Remembers how much is in flight on average."""

    def __init__(self) -> None:
        self._mean_events: float | None = None
        self._at_seconds = 0.0

    def events(self, room: Room, capacity_bytes: int, reserve_bytes: float, now_seconds: float) -> float:
        """What may be admitted now; below 0: nothing, until more has left the queue."""
        if self._mean_events is None:
            self._mean_events = float(room.in_flight_events)
        else:
            share = 1 - math.exp(-(now_seconds - self._at_seconds) / MEAN_SECONDS)
            self._mean_events += share * (room.in_flight_events - self._mean_events)
        self._at_seconds = now_seconds
        free_bytes = room.free_bytes(capacity_bytes) - reserve_bytes
        return free_bytes / max(room.bytes_per_event, 1.0) + self._mean_events
