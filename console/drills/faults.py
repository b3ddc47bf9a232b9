"""Faults of the embedded plant: each is started, and ended by what was recorded before its start.

The record of a fault (`Undo`) is plain JSON, and ending a fault twice has no further effect, so that another process
can end what a killed one has started.
"""

import signal
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import redis
from django.contrib.auth.models import User

from common.errors import BadInput, WeirError
from console.connections import supervisor
from console.connections.processes import list_family, send_signal
from console.drills.scenarios import BURST_FACTOR, FAILING_SHARE, SLOW_FACTOR, FaultKind
from queues import keys, projection
from queues.models import Container, Node, Queue
from queues.nodes.agent_threads import list_node_processes
from queues.publishing.streams import EventStream, StreamPublisher
from workers.documents.snapshot import Snapshot
from workers.placement import plans, proposals
from workers.steering import enforcing

Undo = dict[str, Any]
PRACTICE_QUEUE, PRACTICE_PRODUCER, EVENT_TYPE = "practice", "practice", "order"
BURST_PRODUCER = "drill"
HANDLER = "emulate"
# A quarter of each worker slot; eight times that is twice the capacity, however many slots there are.
SERVICE_SECONDS, EVENTS_PER_SLOT = 0.0125, 20.0
PRACTICE_SETTINGS = {
    "handler": HANDLER, "handler_options": {"seconds": SERVICE_SECONDS}, "events_per_worker": 200, "priority": 5,
    "tries": 3,
}  # fmt: skip
MIN_PER_SECOND = 20.0
PLAN_POINTS, PLAN_SECONDS = 900, 20.0
PLAN_REASON = "Drill: a plan that overloads a node."
TOO_BUSY_SHARE = 0.95  # of its new load that the overloaded node can handle


def choose_queue(snapshot: Snapshot) -> str:
    """Return the emulated queue with the most events, else the practice queue, which is created on demand.

    Events of an emulated queue have no effect that a drill could change.
    """
    emulated = Queue.objects.filter(kind=Queue.Kind.JOBS, handler=HANDLER).order_by("name")
    queues = [queue for queue in emulated if queue.handler_options.get("seconds")]

    def rate(queue: Queue) -> float:
        row = snapshot.queues.get(queue.name)
        return (row.in_per_second or 0.0) if row else 0.0

    busiest = max(queues, key=rate, default=None)
    return busiest.name if busiest is not None and rate(busiest) > 0 else PRACTICE_QUEUE


def find_usual_producer(snapshot: Snapshot, queue: str) -> str:
    """Return the producer that sends most of a queue's events: a hot key has no producer of its own."""
    rates = {name: producer.queues.get(queue) or 0.0 for name, producer in snapshot.producers.items()}
    busiest = max(rates, key=lambda name: rates[name], default=PRACTICE_PRODUCER)
    return busiest if rates.get(busiest) else PRACTICE_PRODUCER


def concentrate_points(node: str, nodes: Collection[str]) -> dict[str, int]:
    """Return the points of a queue with most of them on one node. Raises `BadInput` without another node."""
    others = sorted({*nodes} - {node})
    if not others:
        raise BadInput("node", f"{node} is the only node. This drill needs two.")
    points = {node: PLAN_POINTS, **dict.fromkeys(others, (1000 - PLAN_POINTS) // len(others))}
    points[others[0]] += 1000 - sum(points.values())
    return points


class EmbeddedPlant:
    """The plant of ./run on this machine. Producers of the drill publish until it is closed."""

    def __init__(self, control: redis.Redis, control_url: str) -> None:
        self._control, self._control_url = control, control_url
        self._streams: dict[tuple[str, str], EventStream] = {}
        self._loads: dict[str, EventStream] = {}  # queue → the stream of its fault
        self._publisher: StreamPublisher | None = None

    def prepare(self, subjects: Mapping[str, str], now: datetime) -> None:
        """Make sure that the queue of the drill exists and has its usual load."""
        queue = subjects.get("queue", "")
        if queue != PRACTICE_QUEUE:
            return
        if not Queue.objects.filter(name=queue).exists():
            thresholds = enforcing.get_node_thresholds(now)
            projection.create_queue(self._control, queue, Queue.Kind.JOBS, None, thresholds, **PRACTICE_SETTINGS)
        slots = self.read_snapshot().totals.worker_slots or 2
        self._publish(EventStream(PRACTICE_PRODUCER, queue, EVENT_TYPE, EVENTS_PER_SLOT * slots))

    def _publish(self, stream: EventStream) -> EventStream:
        known = self._streams.setdefault((stream.producer, stream.queue), stream)
        if self._publisher is None:
            self._publisher = StreamPublisher(self._control_url, [known]).__enter__()
        elif known not in self._publisher.streams:
            self._publisher.streams.append(known)
        return known

    def prepare_undo(self, kind: FaultKind, subjects: Mapping[str, str]) -> Undo:
        """Return what ends the fault, before it starts. Raises `WeirError` if it can't start now."""
        node = subjects.get("node", "")
        if kind in ("slow_handler", "failing_events"):
            queue = Queue.objects.get(name=subjects["queue"])
            return {"handler_options": queue.handler_options}
        if kind == "harmful_plan":
            row = Node.objects.get(name=node)
            points = Container.objects.filter(queue__name=subjects["queue"]).values_list("node__name", "points")
            return {"capacity": row.capacity_events_per_second, "points": dict(points)}
        if kind == "observer_suspended":
            return {"pid": supervisor.get_process("observer").pid}
        return {}

    def start(self, kind: FaultKind, subjects: Mapping[str, str], undo: Undo, by: User | None, now: datetime) -> None:
        """Start a fault whose undo is recorded."""
        queue, node = subjects.get("queue", ""), subjects.get("node", "")
        if kind in ("burst", "hot_key"):
            self._start_load(kind, queue)
        elif kind == "slow_handler":
            options = undo["handler_options"]
            self._set_options(queue, {**options, "seconds": options.get("seconds", SERVICE_SECONDS) * SLOW_FACTOR}, now)
        elif kind == "failing_events":
            self._set_options(queue, {**undo["handler_options"], "failing": FAILING_SHARE}, now)
        elif kind == "node_lost":
            for name in list_node_processes(node):
                supervisor.take_down(name)
        elif kind == "observer_suspended":
            supervisor.suspend("observer")
        elif kind == "pipeline_killed":
            supervisor.take_down("pipeline")
        else:
            self._overload(node, queue, by, now)

    def _start_load(self, kind: FaultKind, queue: str) -> None:
        snapshot = self.read_snapshot()
        row = snapshot.queues.get(queue)
        more = max(MIN_PER_SECOND, (row.in_per_second or 0.0) if row else 0.0) * BURST_FACTOR
        producer = BURST_PRODUCER if kind == "burst" else find_usual_producer(snapshot, queue)
        stream = self._loads[queue] = self._publish(EventStream(producer, queue, EVENT_TYPE, 0.0))
        if kind == "burst":
            stream.per_second = more
        else:
            stream.hot_per_second = more

    def _overload(self, node: str, queue: str, by: User | None, now: datetime) -> None:
        """Give a node most points of a queue, and a capacity below the load that follows from it."""
        snapshot = self.read_snapshot()
        points = dict(Container.objects.filter(queue__name=queue).values_list("node__name", "points"))
        load = snapshot.nodes[node].in_per_second or 0.0
        moved = (snapshot.queues[queue].in_per_second or 0.0) * (PLAN_POINTS - points.get(node, 0)) / 1000
        self._set_capacity(node, max(1.0, TOO_BUSY_SHARE * (load + moved)), now)
        self._carry_out(queue, concentrate_points(node, {*points, *snapshot.nodes}), by, PLAN_REASON, now)

    def _carry_out(self, queue: str, points: Mapping[str, int], by: User | None, why: str, now: datetime) -> None:
        snapshot = self.read_snapshot()
        plan = proposals.propose_hand(queue, points, by, snapshot=snapshot, now=now, reason=why)
        plans.record_approval(plan, plans.get_user_name(by), why, now)

    def end(self, kind: FaultKind, subjects: Mapping[str, str], undo: Undo, now: datetime) -> None:
        """End a fault, whether it was started or not."""
        queue, node = subjects.get("queue", ""), subjects.get("node", "")
        if kind in ("burst", "hot_key"):
            if stream := self._loads.pop(queue, None):
                stream.calm()
        elif kind in ("slow_handler", "failing_events"):
            self._restore_options(kind, queue, undo["handler_options"], now)
        elif kind == "node_lost":
            for name in reversed(list_node_processes(node)):
                supervisor.start(name)
        elif kind == "observer_suspended":
            if supervisor.get_process("observer").pid == undo["pid"]:
                send_signal(list_family(undo["pid"]), signal.SIGCONT)
        elif kind == "pipeline_killed":
            supervisor.start("pipeline")
        else:
            self._set_capacity(node, undo["capacity"], now)
            self._restore_points(node, queue, undo["points"], now)

    def _restore_points(self, node: str, queue: str, points: Mapping[str, int], now: datetime) -> None:
        """Stop the plan of the drill, and give the node its points from before it, unless a person did."""
        for plan in plans.list_running_plans().filter(reason=PLAN_REASON):
            with suppress(BadInput):  # it has just ended
                plans.stop(plan, None, "End of the drill.", now=now)
        deadline = time.monotonic() + PLAN_SECONDS
        while plans.list_running_plans().filter(reason=PLAN_REASON).exists() and time.monotonic() < deadline:
            time.sleep(0.5)  # its move in progress
        present = dict(Container.objects.filter(queue__name=queue).values_list("node__name", "points"))
        if present.get(node, 0) > points.get(node, 0):
            self._carry_out(queue, points, None, "End of the drill.", now)

    def _restore_options(self, kind: FaultKind, queue: str, options: Mapping[str, Any], now: datetime) -> None:
        """Restore what the fault has changed, unless a person has changed it meanwhile."""
        row = Queue.objects.filter(name=queue, handler=HANDLER).first()
        if row is None:
            return
        name = "seconds" if kind == "slow_handler" else "failing"
        kept = {key: value for key, value in row.handler_options.items() if key != name}
        if name in options:
            kept[name] = options[name]
        if kept != row.handler_options:
            self._set_options(queue, kept, now)

    def _set_options(self, queue: str, options: Mapping[str, Any], now: datetime) -> None:
        fields = {"handler_options": dict(options)}
        projection.change_queue(self._control, queue, fields, enforcing.get_node_thresholds(now))

    def _set_capacity(self, node: str, events_per_second: float, now: datetime) -> None:
        Node.objects.filter(name=node).update(capacity_events_per_second=events_per_second)
        projection.project(self._control, enforcing.get_node_thresholds(now))

    def read_snapshot(self) -> Snapshot:
        """Return the newest snapshot. Raises `WeirError` if there is none."""
        stored = self._control.get(keys.SNAPSHOT)
        if not stored:
            raise WeirError("The plant has no snapshot yet. Start the drill again in a moment.")
        return Snapshot.from_json(stored)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
