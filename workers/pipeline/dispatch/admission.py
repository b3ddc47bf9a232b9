"""The number of events that the dispatcher may admit now.

It follows from the reserve of the result queue, and from an exception that prevents a stall.
"""

import math

from queues.events.block import BLOCK_EVENTS
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.dispatch.result_queue import Room

# Maximum number of batches that are dispatched and not processed yet. Controls take effect within two batches.
BATCHES_AHEAD = 2
BURST_SECONDS = 1.0
# Factor on the rate while more than the reserve is free. The reserve limits the result queue until the loop reacts.
CATCHING_UP = 1.5
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


class AdmissionLimits:
    """The limits of one dispatcher. Times are monotonic seconds, except for `clock_seconds`, since 1970."""

    def __init__(self, now: float) -> None:
        self._allowance: float | None = None
        self._checked_at = now
        self._anti_stall, self._reserve = AntiStallAdmission(), Reserve()

    def compute_limit(self, controls: Controls, room: Room, now: float, clock_seconds: float) -> tuple[int, str]:
        """Return the number of events that may be admitted now, and what limits it."""
        flying = room.in_flight_events
        used = f"{room.used_bytes / 2**20:,.0f} of {controls.result_bytes / 2**20:,.0f} MiB"
        free_events = room.free_bytes(controls.result_bytes) / max(room.bytes_per_event, 1.0)
        ahead = BATCHES_AHEAD * controls.admit_events_per_batch
        limits: list[tuple[float, str]] = [
            (float(controls.admit_events_per_batch), "admit_events_per_batch is 0"),
            (free_events, f"the result queue has no room: {used} used, {flying:,} events in flight"),
            (float(ahead - flying), f"{flying:,} dispatched events have no result yet"),
        ]
        reserve = controls.get_reserved_bytes(clock_seconds)
        within_reserve = self._reserve.count_admissible_events(room, controls.result_bytes, reserve, now)
        if reserve:
            limits.append((within_reserve, f"the result queue has no room beyond its reserve: {used} used"))
        times = CATCHING_UP if reserve else 1.0
        if (allowed := self._count_allowed(controls, times, now, clock_seconds)) is not None:
            rate = times * (controls.admit_events_per_second or 0.0)
            limits.append((allowed, f"the admission limit is {rate:g} events/s"))
        least, why = min(limits, key=lambda limit: limit[0])
        return int(least), why

    def count_stall_events(self, controls: Controls, room: Room, now: float, clock_seconds: float) -> int:
        """Return the number of events to admit beyond the limits to prevent a stall; 0 if admission is set to 0."""
        events = self._anti_stall.count_admissible_events(room, now)
        if not controls.admit_events_per_batch or controls.get_admitted_per_second(clock_seconds) == 0:
            return 0
        free_events = int(room.free_bytes(controls.result_bytes) / max(room.bytes_per_event, 1.0))
        return min(events, max(1, free_events), controls.admit_events_per_batch)

    def spend(self, events: int) -> None:
        """Count events that were admitted within the limit."""
        if self._allowance is not None:
            self._allowance -= events

    def _count_allowed(self, controls: Controls, times: float, now: float, clock_seconds: float) -> float | None:
        """Return the events that `times` times the current rate still allows.

        Events admitted while no rate was in force do not count as debt.
        """
        rate = controls.get_admitted_per_second(clock_seconds)
        if rate is None:
            self._allowance = None
        else:
            earned = times * rate * (now - self._checked_at)
            self._allowance = min(times * rate * BURST_SECONDS, (self._allowance or 0.0) + earned)
        self._checked_at = now
        return self._allowance
