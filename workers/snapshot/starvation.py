"""The queue whose workers hold the worker slots, and the queues that wait for a slot only because of it.

share of a queue = the slots that its workers have / all slots, averaged over about MEMORY_SECONDS
it crowds        when all queues together have FULL of the slots, and it at least CROWDS of them; until
                 it has less than CROWDED of them; not a queue that was crowded within FREED_SECONDS
it is crowded    a queue with less than LIGHT of them while another one crowds, or with less than HALF of what
                 that one has (of few slots, one is a large share); and for LINGER_SECONDS after that, since
                 its backlog keeps its own workers busy then
it holds most    when it has MOST of the slots, until it has less than LEAST; all, when it has ALL, until it
                 has less than MOST
"""

import math

from workers.alerts.lifecycle.inhibition import LINGER_SECONDS
from workers.documents.queues import SlotHolder
from workers.documents.snapshot import Snapshot

MEMORY_SECONDS = 4.0
FULL, CROWDS, CROWDED, LIGHT = 0.8, 0.4, 0.3, 0.2
HALF = 0.5
ALL, MOST, LEAST = 0.7, 0.55, 0.45
FREED_SECONDS = 10.0


class Starvation:
    """The starvation state, updated with one snapshot after another."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._shares: dict[str, float] = {}
        self._seconds: float | None = None
        self._crowding, self._holds_all, self._holds_most = "", False, False
        # Queue → the queue that it waited because of, and when last.
        self._crowded: dict[str, tuple[str, float]] = {}

    def follow(self, snapshot: Snapshot | None, monotonic_seconds: float) -> SlotHolder | None:
        """Return the starvation as of this snapshot; None while no queue starves others, or nothing is known."""
        slots = snapshot.totals.worker_slots if snapshot else None
        if snapshot is None or not slots:
            self._forget()
            return None
        self._average(snapshot, slots, monotonic_seconds)
        first = max(self._shares, key=lambda name: self._shares[name], default="")
        full = sum(self._shares.values()) >= FULL
        if self._shares.get(self._crowding, 0.0) < CROWDED:
            _, crowded_at = self._crowded.get(first, ("", -math.inf))
            waited = monotonic_seconds - crowded_at <= FREED_SECONDS
            self._crowding = first if full and self._shares[first] >= CROWDS and not waited else ""
        if self._crowding:
            self._crowded.pop(self._crowding, None)
            less = max(LIGHT, HALF * self._shares[self._crowding])
            light = {name for name, share in self._shares.items() if share < less} - {self._crowding}
            self._crowded |= dict.fromkeys(light, (self._crowding, monotonic_seconds))
        self._crowded = {
            name: (queue, at)
            for name, (queue, at) in self._crowded.items()
            if name in self._shares and monotonic_seconds - at <= LINGER_SECONDS
        }
        last = max(self._crowded.values(), key=lambda party: party[1], default=("", 0.0))[0]
        if not (self._crowding or last):
            return None
        share = self._shares.get(self._crowding, 0.0)
        self._holds_all = share >= (MOST if self._holds_all else ALL)
        self._holds_most = share >= (LEAST if self._holds_most else MOST)
        return SlotHolder(
            queue=self._crowding or last,
            crowded={name: queue for name, (queue, _) in self._crowded.items()},
            holds_all=self._holds_all,
            active=self._holds_most,
        )

    def _average(self, snapshot: Snapshot, slots: float, monotonic_seconds: float) -> None:
        elapsed = 0.0 if self._seconds is None else monotonic_seconds - self._seconds
        self._seconds = monotonic_seconds
        weight = 1 - math.exp(-elapsed / MEMORY_SECONDS)
        before, self._shares = self._shares, {}
        for name, queue in snapshot.queues.items():
            if queue.kind == "jobs":
                share = sum(row.workers_busy or 0 for row in queue.containers.values()) / slots
                self._shares[name] = before.get(name, 0.0) + weight * (share - before.get(name, 0.0))
