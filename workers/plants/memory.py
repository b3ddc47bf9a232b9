"""A plant in memory, for tests of code that uses the interface; it passes the same contract test."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from common.errors import BadInput
from common.stored_document import convert
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from queues.nodes.node_state import NORMAL
from workers.documents.snapshot import Snapshot
from workers.models import LedgerEntry
from workers.pipeline.declaration.controls import Controls
from workers.placement import proposals
from workers.pool.orders import MAX_THREADS

_HOST = {
    "role": "jobs",
    "slots": 2,
    "busy": 0,
    "pid": 1,
    "resizable": True,
    "started_with": 2,
    "trouble": "",
    "done": {"seq": 0, "recent_seconds": [], "full_seconds": 0.0, "per_second": None},
    "age_seconds": 0.5,
}

MAX_TASKS = 64


class MemoryPlant:
    """Containers whose workers run only when `run` is called. Its clock is passed in."""

    def __init__(
        self,
        clock: Callable[[], float],
        containers: Sequence[tuple[str, str]],
        operators: Mapping[str, int] | None = None,
    ) -> None:
        """Set up the plant. operators: of a chain, first to last, with their tasks."""
        self.clock = clock
        self.operators = dict(operators or {})
        self.error: Exception | None = None  # raised by the next actions, as if a broker were away
        self.ran: dict[str, None] = {}  # ids in the order in which they ran
        self.ahead: list[str] = []  # ids that run before other queues'
        self.steered: dict[str, dict[str, Any]] = {}  # application → its controls
        self.throttled: dict[str, float] = {}  # queue → seconds
        self.ordinary_weights: dict[str, float] = {}  # by queue
        self.requested: list[str] = []  # loops that were requested to decide at once
        self._seq = 0
        self._waiting_to_run: dict[tuple[str, str], list[str]] = {container: [] for container in containers}
        self._containers = {container: _build_container() for container in containers}
        self.hosts = {"jobs@memory": dict(_HOST)}
        self.kept: list[str] = []  # hosts whose order was kept, once per call
        self._nodes = {node: {"state": NORMAL, "stale": False, "age_seconds": 0.4} for _, node in containers}

    def observe(self) -> Snapshot:
        """Return the current state."""
        self._seq += 1
        queues: dict[str, dict[str, Any]] = {}
        for (queue, node), row in self._containers.items():
            row["waiting_to_run"] = len(self._waiting_to_run[queue, node])
            queues.setdefault(queue, {"kind": "jobs", "containers": {}})["containers"][node] = row
        snapshot = {
            "seq": self._seq,
            "at": self.clock(),
            "plant": "memory",
            "queues": queues,
            "nodes": self._nodes,
            "hosts": self.hosts,
        }
        return convert(Snapshot, snapshot, "snapshot")

    def start_workers(self, queue: str, node: str, count: int, ids: Sequence[str], ahead: int = 0) -> list[str]:
        """Submit workers; an id that has run, or is submitted already, isn't submitted again."""
        if self.error is not None:
            raise self.error
        if count != len(ids):
            raise BadInput("ids", f"must have {count} IDs, one per worker, not {len(ids)}")
        if (queue, node) not in self._waiting_to_run:
            raise BadInput("node", f"has no container of {queue}")
        submitted = self._waiting_to_run[queue, node]
        submitted += [entry_id for entry_id in ids if entry_id not in submitted and entry_id not in self.ran]
        self.ahead += ids[:ahead]
        return list(ids)

    def resize_pool(self, host: str, threads: int) -> None:
        if self.error is not None:
            raise self.error
        if not 1 <= threads <= MAX_THREADS:
            raise BadInput("threads", f"must be a whole number from 1 to {MAX_THREADS}, not {threads}.")
        if host not in self.hosts or not self.hosts[host]["resizable"]:
            raise BadInput("host", f"{host} is not reporting or can't be resized.")
        self.hosts[host]["slots"] = threads

    def keep_pool(self, host: str) -> None:
        """Record the call: nothing expires here."""
        self.kept.append(host)

    def steer_pipeline(self, application: str, changes: Mapping[str, Any]) -> None:
        """Store the changes as controls would."""
        if self.error is not None:
            raise self.error
        Controls().apply_changes(dict(changes))
        self.steered.setdefault(application, {}).update(changes)

    def get_topology(self) -> MeasuredTopology:
        """Return its chain, without measures."""
        source = MeasuredOperator("source", "source", 1, 1, 1, "a source, which only supplies events")
        chain = [
            source,
            *(MeasuredOperator(name, "operator", tasks, 1, MAX_TASKS) for name, tasks in self.operators.items()),
        ]
        links = tuple(Link(before.name, after.name) for before, after in pairwise(chain))
        return MeasuredTopology("memory", self.clock(), 1.0, {operator.name: operator for operator in chain}, links)

    def hold(self, seconds: float) -> None:
        """Do nothing: the plant has no controllers of its own."""

    def release(self) -> None:
        """Do nothing: nothing is held."""

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        if self.error is not None:
            raise self.error
        self.operators.update(self.get_topology().check_tasks(tasks))

    def request_decisions(self, loops: Collection[str]) -> None:
        """Record the loops."""
        self.requested += loops

    def throttle_queue(self, queue: str, seconds: float) -> None:
        """Store how long the producers of a queue wait."""
        if self.error is not None:
            raise self.error
        self.throttled[queue] = seconds

    def set_ordinary_weight(self, queue: str, weight: float) -> None:
        """Store the weight."""
        if self.error is not None:
            raise self.error
        self.ordinary_weights[queue] = weight

    def move_points(self, entry: LedgerEntry) -> None:
        """Create the plan without moving points."""
        proposals.from_decision(entry, self.observe(), entry.at, approved=True)

    def put(self, queue: str, node: str, events: int) -> None:
        """Add events to a container."""
        row = self._containers[queue, node]
        row["waiting_events"] += events
        row["inserted_events"] += events

    def run(self, queue: str, node: str, events_per_worker: int) -> int:
        """Run all submitted workers, each taking up to its events; return the number of workers."""
        row, submitted = self._containers[queue, node], self._waiting_to_run[queue, node]
        removed = min(row["waiting_events"], len(submitted) * events_per_worker)
        row["waiting_events"] -= removed
        row["removed_events"] += removed
        row["workers_started"] += len(submitted)
        count = len(submitted)
        self.ran.update(dict.fromkeys(submitted))
        submitted.clear()
        return count

    def set_node(self, node: str, **values: object) -> None:
        """Change what a node reports: state, stale, age_seconds."""
        self._nodes[node].update(values)

    def reset_counters(self, queue: str, node: str) -> None:
        """Reset the counters, as if the node's server had restarted empty."""
        self._containers[queue, node].update(_build_container())


def _build_container() -> dict[str, Any]:
    counters = dict.fromkeys(("waiting_events", "inserted_events", "removed_events", "workers_started"), 0)
    return {"points": 1000, **counters, "waiting_to_run": 0}
