"""An application of the simulated plant, whose status is that of a real application.

A scenario reports the batches that its model has finished. The status board of the pipeline averages them over its
window, as it does for Spark.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.stored_document import encode_document
from queues.nodes.heartbeat import Heartbeat
from workers.documents.pipeline import ApplicationStatus
from workers.pipeline.declaration.controls import Controls
from workers.pipeline.declaration.declaration import parse_application_text
from workers.pipeline.dispatch.assignment import AssignedRange, Assignment
from workers.pipeline.dispatch.cursor import Cursor
from workers.pipeline.dispatch.result_queue import Room
from workers.pipeline.status.status import StatusBoard
from workers.pipeline.tiers.combining import CombinedOffset
from workers.pipeline.tiers.finished_batch import InterEventBatch, OperatorCount, ReplicaBatch


class SimulatedRoom:
    """The result queue, with the values of `Room`, and the pieces of the replicas that have no result yet.

    in_flight_events: dispatched events without a result yet.
    """

    def __init__(self) -> None:
        self.used_bytes = self.in_flight_events = self.bytes_per_event = self.released_bytes = 0.0
        self.assigned: defaultdict[str, deque[Assignment]] = defaultdict(deque)

    def measure_room(self) -> Room:
        used, released = round(self.used_bytes), round(self.released_bytes)
        return Room(used, round(self.in_flight_events), {}, self.bytes_per_event, released)

    def list_after(self, replica: str, tick: int, count: int | None = None) -> list[Assignment]:
        return list(self.assigned[replica])


class SimulatedApplication:
    """A simulated application, created from its declaration (YAML)."""

    def __init__(self, declaration: str, clock: Callable[[], float]) -> None:
        self.declared = parse_application_text(declaration, Path())
        self.room, self.clock = SimulatedRoom(), clock
        self.board = StatusBoard(self.room, self.room, self.declared, None, lambda: None, clock, clock)
        self.board.enter_state("running")
        self._batch = 0

    def dispatch(self, events: float, controls: Controls, watermark: float | None = None) -> None:
        """Report events that were dispatched just now, with these controls."""
        cursor = Cursor(controls=controls, watermark_us=None if watermark is None else round(watermark * 1e6))
        self.board.record_dispatch(cursor, round(events), None, ())

    def assign(self, replica: str, events: float, controls: Controls) -> None:
        """Report a piece that was assigned just now; the replica finishes its pieces in this order."""
        part = AssignedRange("", "", "", round(events))
        self.room.assigned[replica].append(Assignment(0, (part,), None, controls, self.clock()))

    def finish_replica_batch(
        self, replica: str, events: float, seconds: float, response_seconds: float, **more: Any
    ) -> None:
        """Report a batch that a replica has finished just now, with its oldest piece, if pieces are reported.

        more: further fields of a `ReplicaBatch`.
        """
        if self.room.assigned[replica]:
            self.room.assigned[replica].popleft()
        rules = [{"in": round(events), "out": round(events)} for _ in self.declared.rules]
        values = {"retained": round(events), "size_bytes": 0, "rules": rules, **more}
        batch = ReplicaBatch(
            self.clock(), self._batch, round(events), seconds=seconds, response_seconds=response_seconds, **values
        )
        self.board.record_replica_batch(replica, batch)

    def finish_batch(self, seconds: float, tasks: tuple[OperatorCount, ...] = (), **offset: Any) -> None:
        """Report an inter-event batch that has finished just now.

        tasks: the work of each task of each operator. offset: fields of its `CombinedOffset`.
        """
        operators: dict[str, OperatorCount] = {}
        for task in tasks:
            operators.setdefault(task.operator, OperatorCount(task.operator)).add(task)
        self._batch += 1
        combined = CombinedOffset(**offset)
        self.board.record_inter_event_batch(
            InterEventBatch(self.clock(), self._batch, combined, operators, tasks, seconds)
        )

    def build_status(self, heartbeats: Mapping[str, Heartbeat]) -> ApplicationStatus:
        return self.board.document({name.encode(): encode_document(beat) for name, beat in heartbeats.items()})
