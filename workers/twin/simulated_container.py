"""A container of the simulated plant: a queue's events on one node, and its workers."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from queues.nodes.heartbeat import ContainerCounters
from workers.snapshot.readings import Workers

ROUNDING = 1e-6  # events


@dataclass
class SimulatedContainer:
    """A container with exact counts, which may be fractions. Reports contain whole events.

    received_events and sent_events count transfers between nodes. They are included in the inserted and removed events.
    server_time_share: its share of the time of the node's server; None: not measured. busy: its running workers.
    """

    inserted_events: float = 0.0
    removed_events: float = 0.0
    dead_events: float = 0.0
    received_events: float = 0.0
    sent_events: float = 0.0
    server_time_share: float | None = None
    busy: int = 0
    busy_seconds: float = 0.0
    submitted: list[str] = field(default_factory=list)
    _claimed: set[str] = field(default_factory=set)
    _shared_events: float = 0.0  # events inserted until the newest `server_time_share`
    _arrivals: deque[tuple[float, float]] = field(default_factory=deque)  # (time, events inserted until then)

    @property
    def waiting_events(self) -> float:
        return max(0.0, self.inserted_events - self.removed_events)

    def insert(self, events: float, at: float) -> None:
        if events > 0:
            self.inserted_events += events
            self._arrivals.append((at, self.inserted_events))

    def remove(self, events: float) -> float:
        """Remove up to this number of events, the oldest first, and return how many there were."""
        removed = min(events, self.waiting_events)
        self.removed_events += removed
        while self._arrivals and self._arrivals[0][1] <= self.removed_events + ROUNDING:
            self._arrivals.popleft()
        return removed

    def send(self, events: float, target: "SimulatedContainer", at: float) -> None:
        """Transfer events to another node's container."""
        sent = self.remove(events)
        self.sent_events += sent
        target.insert(sent, at)
        target.received_events += sent

    def update_server_time_share(self, seconds: float, per_second: float) -> None:
        """Set its share of the time of a server that handles this many events/s."""
        self.server_time_share = (self.inserted_events - self._shared_events) / seconds / per_second
        self._shared_events = self.inserted_events

    def submit(self, ids: Sequence[str]) -> None:
        """Submit workers. A worker that is submitted again runs only once."""
        waiting = set(self.submitted)
        self.submitted += [each for each in ids if each not in waiting and each not in self._claimed]

    def start_workers(self, limit: int | None = None) -> int:
        """Start the submitted workers, up to a limit, and return how many started."""
        started = self.submitted[:limit]
        self._claimed.update(started)
        self.submitted = self.submitted[len(started) :]
        return len(started)

    def build_counters(self, now: float) -> ContainerCounters:
        """Return what the node's agent reports."""
        return ContainerCounters(
            inserted_events=round(self.inserted_events),
            removed_events=min(round(self.inserted_events), round(self.removed_events)),
            dead_events=round(self.dead_events),
            received_events=round(self.received_events),
            sent_events=round(self.sent_events),
            oldest_seconds=round(max(0.0, now - self._arrivals[0][0]), 3) if self._arrivals else None,
            server_time_share=self.server_time_share,
        )

    def build_workers(self) -> Workers:
        """Return what its workers report."""
        counts = {
            "started": len(self._claimed),
            "busy_ms": round(1_000 * self.busy_seconds),
            "events": round(self.removed_events),
        }
        return Workers(len(self.submitted), self.busy, counts)
