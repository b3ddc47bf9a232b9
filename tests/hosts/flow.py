"""Events from the desk while a plant over hosts is disturbed, and what is said of the plant meanwhile."""

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg
import redis

from common.errors import WeirError
from queues import keys
from queues.points import TOTAL
from queues.publishing.client import Client
from queues.topology import Topology
from tests.hosts.whole_plant import QUEUE, TABLE, WholePlant
from tests.waiting import until

logger = logging.getLogger(__name__)
EVENTS_PER_FLUSH, FLUSHES_PER_SECOND = 20, 5


@dataclass
class Flow:
    """Use it as a context. acknowledged: keys of events; rerouted: sent to another node than was meant.

    queue: they are published to it; effect: the type that their complex events have in the table, whose source is the
    event's key; "" where the events themselves stand there.
    """

    plant: WholePlant
    name: str
    queue: str = QUEUE
    effect: str = ""
    acknowledged: set[str] = field(default_factory=set)
    refused: int = 0
    rerouted: int = 0
    topologies: dict[int, Topology] = field(default_factory=dict)
    said: dict[str, set[str]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Flow":
        for act in (self._publish, self._listen):
            thread = threading.Thread(target=act, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _publish(self) -> None:
        number = 0
        with Client(self.plant.server_url("control"), producer="desk") as client:
            while not self._stop.wait(1 / FLUSHES_PER_SECOND):
                events = [f"{self.name}-{number + place}" for place in range(EVENTS_PER_FLUSH)]
                number += EVENTS_PER_FLUSH
                try:
                    done = client.publish(self.queue, [{"type": self.name, "key": key} for key in events])
                except WeirError:
                    self.refused += EVENTS_PER_FLUSH
                else:
                    self.acknowledged.update(events)
                    self.rerouted += done.rerouted

    def _listen(self) -> None:
        """Every topology that stands, and every state that is said of a subject."""
        while not self._stop.wait(0.25):
            with suppress(redis.RedisError):
                with self.plant.server("control") as control:
                    topology = Topology.from_json(control.get(keys.TOPOLOGY))
                self.topologies[topology.revision] = topology
                for about, subject in (self.plant.snapshot() or {}).get("states", {}).items():
                    self.said.setdefault(about, set()).add(subject["word"])

    def handled(self) -> list[tuple[str, int]]:
        column = "source" if self.effect else "key"
        question = f"SELECT {column}, count(*) FROM {TABLE} WHERE type = %s AND {column} LIKE %s GROUP BY 1"
        values = (self.effect or self.name, f"{self.name}-%")
        try:
            return [(str(key), int(count)) for key, count in self.plant.ask(question, *values)]
        except psycopg.errors.UndefinedTable:
            return []  # the first worker makes it

    def end(self) -> None:
        """Publishes nothing more. Raises AssertionError unless every event that was acknowledged has had its
        effect once, and every topology gave each queue all its points, each to one node.
        """
        self.__exit__()
        assert self.acknowledged
        try:
            until(lambda: self.acknowledged <= {key for key, _ in self.handled()}, 120, 0.5)
        except AssertionError:
            lost = self.acknowledged - {key for key, _ in self.handled()}
            raise AssertionError(f"{len(lost)} events lost: {self.plant.ends_of_logs()}") from None
        assert [row for row in self.handled() if row[1] != 1] == []
        for topology in self.topologies.values():
            for queue in topology.queues.values():
                assert sum(queue.points.values()) == TOTAL, topology
        logger.warning(
            "%s: %d events handled once, %d refused, %d sent elsewhere",
            *(self.name, len(self.acknowledged), self.refused, self.rerouted),
        )
