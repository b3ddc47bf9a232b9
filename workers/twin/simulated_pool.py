"""Pools of worker hosts on the simulated plant, which the shipped concurrency loop sizes.

A scenario sets the threads and reports the completions, which the host counts like a real host. Events do not wait in
the queue: the publisher waits for an answer, as in the paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from common.stored_document import convert
from controllers.concurrency.law import LAW
from queues.points import TOTAL
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.documents.hosts import PoolWork
from workers.models import Loop
from workers.pool.departures import BEGAN, DONE, Departures, WorkerNote
from workers.twin.simulated_plant import SimulatedPlant
from workers.twin.twin import Twin

QUEUE, NODE = "orders", "n1"
MAX_THREADS = 1_000  # limit that people set if the memory of the host suffices


def build_twin(hosts: Mapping[str, int], parameters: Mapping[str, Any]) -> Twin:
    """Return worker hosts with these sizes, with loops that people have set to auto."""
    queue = QueueSpec(QUEUE, "jobs", {NODE: TOTAL}, minimum_containers=1)
    plant = SimulatedPlant(Topology(1, {NODE: NodeSpec(NODE, "")}, {QUEUE: queue}), hosts)
    given = {"maximum": MAX_THREADS, **parameters}
    twin = Twin(plant, [LAW.name], modes={LAW.name: Loop.Mode.AUTO}, parameters={LAW.name: given})
    for loop in twin.loops.values():
        loop.guard = {**loop.guard, "maximum": float(given["maximum"])}
    return twin


class ReportedPool:
    """The pool of one worker host and its loop. `rests` are the time and the size at the start of each steady state."""

    def __init__(self, twin: Twin, host: str) -> None:
        self.plant, self.host = twin.plant, twin.plant.hosts[host]
        self.loop = twin.loops[f"{LAW.name}/{host}"]
        self.rests: list[tuple[float, int]] = []
        self._began, self._was_steady = self.plant.clock(), False
        self._departures, self._slots = Departures(0, self._began), 0

    @property
    def threads(self) -> int:
        """Return the ordered size of the host."""
        return self.host.slots

    @property
    def machine(self) -> Mapping[str, Any]:
        """Return the exploration from the loop's memory."""
        law_state: Mapping[str, Any] = (self.loop.state or {}).get("law", {"machine": {"phase": "probe"}})
        machine: Mapping[str, Any] = law_state["machine"]
        return machine

    @property
    def is_steady(self) -> bool:
        return bool(self.machine["phase"] == "steady" and self.machine["steady_per_second"] > 0)

    @property
    def epoch(self) -> int:
        return int((self.loop.state or {}).get("law", {}).get("epoch", 0))

    def report(self, slots: int, completed_at: Sequence[float], at: float) -> None:
        """Report the completions of busy slots, until `at` seconds of the run."""
        now = self._began + at
        self._departures.resize(slots, now)
        for slot in range(self._slots, slots):
            self._departures.add([WorkerNote(now, slot, BEGAN)], now, slot)
        self._slots = slots
        for slot in range(slots):
            self._departures.add([], now, slot)
        for done in completed_at:
            self._departures.add([WorkerNote(self._began + done, 0, DONE, 1, QUEUE)], now, 0)
        self._departures.settle(now, range(slots))
        self.host.alive, self.host.busy, self.host.at_work = slots, slots, float(slots)
        self.host.done = convert(PoolWork, self._departures.to_json(), "done")
        self.note_rest(at)

    def note_rest(self, at: float) -> None:
        if self.is_steady and not self._was_steady:
            self.rests.append((at, int(self.machine["threads"])))
        self._was_steady = self.is_steady
