"""Which queue's workers fill the pool, and which queues wait for a slot only because of it.

share of a queue = the slots that its workers have / all slots, averaged over about MEMORY_SECONDS
it crowds        when all queues together have FULL of the slots, and it at least CROWDS of them; until
                 it has less than CROWDED of them
it is crowded    a queue with less than LIGHT of them while another one crowds
"""

import math
from dataclasses import dataclass

from workers.documents.snapshot import Snapshot

MEMORY_SECONDS = 10.0
FULL, CROWDS, CROWDED, LIGHT = 0.8, 0.4, 0.3, 0.2


@dataclass(frozen=True, slots=True)
class Crowd:
    """queue: the one that crowds; crowded: those that wait because of it."""

    queue: str
    crowded: frozenset[str]


class Crowding:
    """Follows snapshots, one after another."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}
        self._seconds: float | None = None
        self._crowding = ""

    def follow(self, snapshot: Snapshot | None, monotonic_seconds: float) -> Crowd | None:
        """What is known with this snapshot; None while no queue crowds, or nothing is known."""
        slots = snapshot.totals.worker_slots if snapshot else None
        if snapshot is None or not slots:
            self._shares, self._seconds, self._crowding = {}, None, ""
            return None
        elapsed = 0.0 if self._seconds is None else monotonic_seconds - self._seconds
        self._seconds = monotonic_seconds
        weight = 1 - math.exp(-elapsed / MEMORY_SECONDS)
        busy = {
            name: sum(row.workers_busy or 0 for row in queue.containers.values()) / slots
            for name, queue in snapshot.queues.items()
            if queue.kind == "jobs"
        }
        before = self._shares
        self._shares = {
            name: before.get(name, 0.0) + weight * (share - before.get(name, 0.0))
            for name, share in busy.items()
        }
        self._crowding = self._now_crowding()
        if not self._crowding:
            return None
        light = {name for name, share in self._shares.items() if share < LIGHT}
        return Crowd(self._crowding, frozenset(light - {self._crowding}))

    def _now_crowding(self) -> str:
        if self._shares.get(self._crowding, 0.0) >= CROWDED:
            return self._crowding
        first = max(self._shares, key=lambda name: self._shares[name], default="")
        full = sum(self._shares.values()) >= FULL
        return first if full and self._shares[first] >= CROWDS else ""
