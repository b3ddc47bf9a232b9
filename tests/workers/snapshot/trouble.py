"""A virtual plant of three nodes, three jobs queues, two worker slots, and a pipeline, to which a test does harm.

It is observed once a second as the observer does: with the memory of queues, who holds
the slots, the states, their causes, and the headline.
"""

import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from common.stored_document import replace_fields
from queues.topology import QueueSpec
from tests.workers.snapshots import snapshot_of
from workers.documents.snapshot import NOTHING_SEEN, PlantHealth, Snapshot
from workers.documents.states import SubjectState
from workers.snapshot.evaluate import evaluate_states
from workers.snapshot.headline import Headline
from workers.snapshot.health import evaluate_health
from workers.snapshot.parts import PartsRecord
from workers.snapshot.problem_memory import ProblemMemory
from workers.snapshot.queue_memory import QueueMemory
from workers.snapshot.recovery import SolvingAction
from workers.snapshot.starvation import Starvation

START = 1_000_000.0
JOBS = ("alert", "process", "slow")
NODES = ("n1", "n2", "n3")
APPLICATION = "performance"


def build_queue(kind: str, arriving: float, service: float | None = 0.1) -> dict[str, Any]:
    share = arriving / len(NODES)
    part = {"points": 333, "waiting_events": 1, "in_per_second": share, "out_per_second": share, "workers_busy": 0}
    return {
        "kind": kind,
        "waiting_events": 3,
        "wait_seconds": 0.5,
        "in_per_second": arriving,
        "out_per_second": arriving,
        "latency_p95_seconds": 1.0,
        "clearing_seconds": 0.1,
        "trend": "steady",
        "dead_letters": 0,
        "service_seconds": service if kind == "jobs" else None,
        "containers": {name: dict(part) for name in NODES},
    }


def build_plant() -> dict[str, Any]:
    """A calm plant."""
    loops = {
        f"worker_rate/{queue}/{node}": {
            "law": "worker_rate",
            "mode": "auto",
            "target": {"queue": queue, "node": node},
            "interval_seconds": 1.0,
        }
        for queue in JOBS
        for node in NODES
    }
    loops["concurrency/jobs@vm"] = {"law": "concurrency", "mode": "advise", "target": {"host": "jobs@vm"}}
    loops["rebalancing"] = {"law": "rebalancing", "mode": "auto", "target": {}, "interval_seconds": 5.0}
    loops[f"flow/{APPLICATION}"] = {"law": "flow", "mode": "auto", "target": {"application": APPLICATION}}
    return {
        "nodes": {name: {"state": "NORMAL", "age_seconds": 0.4, "utilisation": 0.2, "points": 1_332} for name in NODES},
        "queues": {**{name: build_queue("jobs", 5.0) for name in JOBS}, "telemetry": build_queue("pipeline", 25.0)},
        "hosts": {
            "jobs@vm": {"role": "jobs", "slots": 2, "age_seconds": 0.4},
            "control@vm": {"role": "control", "slots": 2, "age_seconds": 0.4},
        },
        "pipeline": {
            "state": "running",
            "age_seconds": 0.5,
            "applications": {APPLICATION: {"state": "running", "queues": ["telemetry"]}},
        },
        "totals": {"worker_slots": 2},
        "producers": {"web": {"queues": {"process": 5.0}}, "app": {"queues": {"process": 4.0}}},
        "loops": loops,
    }


@dataclass(frozen=True)
class Seen:
    """Texts of the overview at one time. seconds: since the trouble began."""

    seconds: float
    health: PlantHealth

    @property
    def sentence(self) -> str:
        return self.health.sentence


class VirtualPlant:
    """The plant and its observer."""

    def __init__(self) -> None:
        self.now, self.document = START, build_plant()
        self.listed = ("jobs@vm", "control@vm")
        self._memory, self._starvation = QueueMemory(NOTHING_SEEN), Starvation()
        self._headline, self._parts = Headline(), PartsRecord()
        self._problems = ProblemMemory(NOTHING_SEEN, lambda problem: self.action)
        self.action: SolvingAction | None = None  # of a loop on the subject of each problem
        self.states: dict[str, SubjectState] = {}
        self.snapshot: Snapshot = NOTHING_SEEN
        self.specs = {name: QueueSpec(name, points={}, handler="emulate", kind="jobs") for name in JOBS}

    def observe(self) -> PlantHealth:
        """Observe a second later, as `workers.snapshot.local` does."""
        self.now += 1.0
        document = copy.deepcopy(self.document) | {"at": self.now}
        for loop in document["loops"].values():
            loop.setdefault("at", self.now - 0.5)
        snapshot = snapshot_of(document)
        snapshot = replace_fields(
            snapshot, parts=self._parts.step(snapshot, self.now), crowd=self._starvation.follow(snapshot, self.now)
        )
        snapshot = self._memory.add(snapshot, self.specs, self.now)
        states = evaluate_states(snapshot, self.states, listed=self.listed)
        if (catching_up := self._memory.begin_catching_up(snapshot, self.states, states)) is not None:
            snapshot = catching_up
            states = evaluate_states(snapshot, self.states, listed=self.listed)
        self.states = states
        snapshot = self._problems.add(replace_fields(snapshot, states=states))
        self.snapshot = replace_fields(snapshot, health=evaluate_health(snapshot, self._headline, self.now))
        return self.snapshot.health

    def run(self, seconds: int) -> list[Seen]:
        """Return what is seen in each half second, since the snapshot stays for a second."""
        seen = []
        for second in range(seconds):
            health = self.observe()
            seen += [Seen(second + 1.0, health), Seen(second + 1.5, health)]
        return seen

    def queue(self, name: str, **changed: Any) -> None:
        self.document["queues"][name] |= changed

    def busy(self, **workers: int) -> None:
        """Set the number of workers of each queue; they are all on n1."""
        for name in JOBS:
            self.document["queues"][name]["containers"]["n1"]["workers_busy"] = workers.get(name, 0)

    def fall_behind(self, name: str, wait: float, waiting: int = 400, **changed: Any) -> None:
        late = {"wait_seconds": wait, "waiting_events": waiting, "trend": "rising", "clearing_seconds": None}
        self.queue(name, **late, **changed)


def count_changes(seen: list[Seen]) -> list[float]:
    """The times at which the headline changed."""
    return [later.seconds for before, later in pairwise(seen) if later.sentence != before.sentence]
