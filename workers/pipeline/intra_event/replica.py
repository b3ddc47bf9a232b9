"""The processing of one micro-batch of a replica, called by Spark (foreachBatch).

One Spark job applies the rules, and its tasks write their rows into the result queue. Then the rows are published.
"""

import time
from typing import Protocol

import redis
from pyspark.sql import DataFrame

from queues import keys
from queues.topology import KnownTopology
from workers.pipeline.declaration.declaration import Application
from workers.pipeline.dispatch.assignment import Assignment
from workers.pipeline.dispatch.batch_assignment import BatchAssignment, on_tasks
from workers.pipeline.dispatch.dispatches import Dispatches
from workers.pipeline.events.connections import get_nodes
from workers.pipeline.events.containers import Range
from workers.pipeline.events.faults import FaultStore
from workers.pipeline.intra_event.finished_batch import ReplicaBatch
from workers.pipeline.intra_event.result_writer import CUT_ROWS
from workers.pipeline.intra_event.rule_plan import RulePlans
from workers.pipeline.rules.rule_sql import build_rule_counts
from workers.pipeline.shedding.shed_counts import sum_task_counts
from workers.pipeline.tiers.batch_work import BatchWork
from workers.pipeline.tiers.checkpoint import Checkpoint
from workers.pipeline.tiers.result_queue import Blob, Result, ResultQueue

PLANNING_SECONDS = 1.0  # time limit for the answer of a node


class ReplicaBoard(Protocol):
    """Records what the replicas do."""

    def record_replica_batch(self, name: str, batch: ReplicaBatch) -> None:
        """Record that a replica's batch is published."""


class ReplicaWork(BatchWork):
    """The batches of one replica of an application."""

    def __init__(
        self,
        plans: RulePlans,
        application: Application,
        replica: str,
        checkpoint: Checkpoint,
        control: redis.Redis,
        status: ReplicaBoard,
    ) -> None:
        self._plans, self._application, self._replica = plans, application, replica
        self._checkpoint, self._control, self._status = checkpoint, control, status
        self.ids = {"application": application.name, "replica": replica}
        self._dispatches = Dispatches(control, application.name)
        self._results = ResultQueue(control, application.name)
        self._faults = FaultStore(control, application.name)
        self._known = KnownTopology()

    def work(self, events: DataFrame, batch: int) -> None:
        started = time.monotonic()
        tick = self._checkpoint.read_offset(batch)["tick"]
        given = self._load_assignments(tick)
        if not given:
            return  # published before: the existing result counts, and nothing is done twice
        arrived = sum(assignment.events for assignment in given)
        attempt = self._results.begin(self._replica, tick)
        if attempt is None:
            return
        self._faults.abandon(self._replica, tick)
        for table in self._application.tables:
            table.refresh()
        rows, passed = self._plans.run(self._build_assignment(tick, attempt, given))
        retained = sum(row["kept"] for row in rows)
        blobs = tuple(Blob(*row[:7]) for row in rows if row["name"])
        result = Result(self._replica, tick, given[0].watermark_us, blobs)
        if self._results.publish(result, attempt, arrived):
            counts = build_rule_counts(self._application.rules, passed, arrived, retained)
            now = time.monotonic()
            made = (batch, arrived, retained, result.size_bytes, now - started, counts)
            response_seconds = max(0.0, time.time() - given[0].at_seconds)
            shed = sum_task_counts([row["shed"] for row in rows])
            self._status.record_replica_batch(self._replica, ReplicaBatch(now, *made, response_seconds, shed))

    def _load_assignments(self, tick: int) -> list[Assignment]:
        """Return the batch's assignments that are not published."""
        published = self._results.measure_room().published.get(self._replica, 0)
        return [dispatch for dispatch in self._dispatches.list_after(self._replica, published) if dispatch.tick <= tick]

    def _build_assignment(self, tick: int, attempt: str, given: list[Assignment]) -> BatchAssignment:
        """Distribute the batch's ranges over as many tasks as it is worth, at most `parallelism`."""
        controls = given[-1].controls
        tasks = on_tasks(get_nodes(PLANNING_SECONDS), self._list_ranges(given), controls.parallelism)
        cut = sum(assignment.events for assignment in given) >= CUT_ROWS
        criteria = {**self._application.controls.criteria, **controls.criteria}
        return BatchAssignment(tick, attempt, tasks, controls.ahead_us, cut, controls.shedder, criteria)

    def _list_ranges(self, given: list[Assignment]) -> list[tuple[Range, int]]:
        topology = self._known.read(self._control.get(keys.TOPOLOGY))
        ranges = []
        for part in (part for assignment in given for part in assignment.parts):
            queue, node = part.container.split("/")
            # A node that was removed from the topology is gone for good, and so are its events.
            if node in topology.nodes:
                whole = Range(queue, node, topology.nodes[node].url, part.after, part.through)
                ranges.append((whole, part.events))
        return ranges
