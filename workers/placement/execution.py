"""Execution of plans: a step at a time, each completely or not at all, under a lease and its fencing number.

    begin → the points of one queue after the other → (drain, release) what waits is transferred → done

A tick may die anywhere and the next one continues: points and the plan's progress change in one transaction, and a
transfer's steps may all be repeated (`workers.placement.transfer`). A plan that was stopped, or is advanced by a later
tick, refuses the write of an older one.

Containers without points are consumed where they are, and removed when they are empty (`tidy`): events that arrived
after their container was removed get it back, interrupted transfers of blocks are completed, and empty and settled
containers are retired. Each is harmless when repeated.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import redis
from django.db import transaction

from common.errors import BadInput, NodeUnavailable, WeirError
from controllers.framework.reason import format_count
from queues import projection
from queues.models import Container, Node
from queues.nodes.node_state import OFFLINE
from queues.projection import PointsDrifted
from queues.segments.segment import Segment
from queues.topology import Topology
from workers.coordination.connections import create_connection
from workers.coordination.leases import SETTLING, Lease, is_copied
from workers.documents.snapshot import Snapshot
from workers.models import Plan
from workers.observability.spans import span
from workers.placement import moves, plans
from workers.placement.moves import STEPS_PER_SECOND
from workers.placement.transfer import MAX_MOVED, PASS_SECONDS, Deadline, Route, TransferResult
from workers.steering import enforcing, node_use

logger = logging.getLogger(__name__)
LEASE_SECONDS = 15.0
SILENT_SECONDS = 60.0  # how long a node that is emptied may be away
# After a pause no more than this is made up for: a throttle must not burst.
MAX_ELAPSED_SECONDS = 2.0
TIMEOUT_SECONDS = 1.0
# A publisher may keep a topology for a second and wait half a second for a flush; this is well beyond.
SETTLE_SECONDS = 10.0
SETTLE_BYTES = 4 * 2**20


class PlanOvertaken(WeirError):  # noqa: N818
    """The plan was stopped, or a later tick advances it: this tick leaves no trace."""


def advance_all(control: redis.Redis, now: datetime) -> list[Plan]:
    """Advance every approved or running plan by one step, oldest first; an error in one stops no other."""
    return [advance(plan, control, now) for plan in plans.list_running_plans().order_by("created_at", "pk")]


def advance(plan: Plan, control: redis.Redis, now: datetime, monotonic: Callable[[], float] = time.monotonic) -> Plan:
    """Advance a plan by one step, as far as a second allows; do nothing while another tick advances it.

    A transfer takes up to `PASS_SECONDS` by `monotonic`, and one or two more answers of a node.
    """
    lease = Lease(control, f"plan:{plan.pk}", LEASE_SECONDS, at_least=plan.fence)
    with lease as fence:
        if fence is not None:
            try:
                # For a distant node with many queues, each answer takes its time after the pass, too.
                with span("advance plan", plan=plan.pk), lease.keep_renewed() if plan.empties else nullcontext():
                    _Step(plan.pk, fence, control, now, monotonic).run()
            except PlanOvertaken:
                logger.warning("Plan %s was stopped or is advanced by another process.", plan.pk)
            except WeirError as error:
                # Nothing is undone: the next tick continues from here.
                logger.warning("Plan %s is waiting: %s", plan.pk, error)
                Plan.objects.filter(pk=plan.pk, fence=fence).update(note=f"Waiting: {error}")
    return Plan.objects.get(pk=plan.pk)


@dataclass
class _Step:
    """One tick's work on one plan."""

    number: int
    fence: int
    control: redis.Redis
    now: datetime
    monotonic: Callable[[], float] = time.monotonic

    def run(self) -> None:
        if (plan := self._begin()) is None:
            return
        if not self._move_points(plan):
            return
        if plan.empties:
            # Nothing can be taken from an OFFLINE node, and loops that move points wait for the plan.
            since = self.now - timedelta(seconds=SILENT_SECONDS)
            why = self._explain_given_back(plan)
            if not why and Node.objects.filter(name=plan.empties, offline_since__lte=since).exists():
                why = f"{plan.empties} is OFFLINE: its waiting events stay there. Propose the plan again later."
            if why:
                self._end(plan, Plan.State.FAILED, why)
                return
        if plan.empties and not self._empty_node(plan):
            return
        self._end(plan, Plan.State.DONE, "")

    def _begin(self) -> Plan | None:
        """Claim the plan: ours is the greatest number. At the first time, open or close the node that it is about."""
        with transaction.atomic():
            going_on = (Plan.State.APPROVED, Plan.State.RUNNING)
            rows = Plan.objects.filter(pk=self.number, fence__lt=self.fence, state__in=going_on)
            if not rows.update(fence=self.fence, state=Plan.State.RUNNING):
                return None
            plan = Plan.objects.select_related("undoes", "owner").get(pk=self.number)
            if plan.started_at is None:
                self._write(plan, started_at=self.now)
                self._change_node_use(plan)
            return plan

    def _change_node_use(self, plan: Plan) -> None:
        """Drain the node that the plan empties, or return the one that it refills to use."""
        reopened = plan.undoes.empties if plan.undoes is not None else ""
        drained = Node.objects.filter(name=plan.empties, drained=False) if plan.kind == Plan.Kind.DRAIN else ()
        returned = Node.objects.filter(name=reopened, drained=True)
        if drained or returned:
            projection.lock_revision()  # before the overrides, as everywhere
        for node in drained:
            node_use.begin(node, "drained", plan.owner, plan.reason, now=self.now, control=self.control)
        for node in returned:
            node_use.end(node, "drained", plan.owner, now=self.now, control=self.control)
        if drained or returned:
            projection.project(self.control, enforcing.get_node_thresholds(self.now))

    def _move_points(self, plan: Plan) -> bool:
        """Make the moves of the next few queues; return False if there are more to make, or it has failed."""
        pending = [
            queue
            for queue in moves.group_by_queue(moves.read(plan.moves))
            if any(
                move["queue"] == queue and step["state"] == "pending"
                for move, step in zip(plan.moves, plan.progress, strict=True)
            )
        ]
        for queue in pending[:STEPS_PER_SECOND]:
            try:
                self._move_queue(plan, queue)
            except (PointsDrifted, BadInput) as error:
                begun = any(step["points_moved"] for step in plan.progress)
                self._end(plan, Plan.State.FAILED if begun else Plan.State.VOID, str(error))
                return False
        return len(pending) <= STEPS_PER_SECOND

    def _move_queue(self, plan: Plan, queue: str) -> None:
        """Make all moves of one queue: its points, the projection, and the progress together, or nothing."""
        made = moves.group_by_queue(moves.read(plan.moves))[queue]
        before = {queue: plan.base[queue]}
        state = "moved" if plan.empties else "done"
        progress = [
            {**step, "state": state, "points_moved": move["points"]} if move["queue"] == queue else step
            for move, step in zip(plan.moves, plan.progress, strict=True)
        ]
        with transaction.atomic():
            self._write(plan, progress=progress)
            for node in Node.objects.filter(name__in=[move.target for move in made]).order_by("name"):
                if node.drained or node.cordoned or node.offline_since is not None:
                    why = "drained" if node.drained else "cordoned" if node.cordoned else OFFLINE
                    raise BadInput("moves", f"{node.name} is {why} now. No points of this queue were moved.")
            projection.move_points(
                self.control,
                before,
                moves.apply_moves(before, made),
                enforcing.get_node_thresholds(self.now),
                self.now,
                # With the remaining nodes, a queue may have fewer containers than it should.
                may_be_short=plan.kind == Plan.Kind.RESTORE,
            )
        plan.progress = progress

    def _explain_given_back(self, plan: Plan) -> str:
        """Return why the node can't be emptied any more.

        Either it was only to rest, and got points again, as it does if another node is lost; or a queue was created
        there that the plan does not know. Loops that move points wait for the plan.
        """
        queues = projection.read_database().list_queues_with_points_on(plan.empties)
        if not queues:
            return ""
        held = f"{plan.empties} has points of {', '.join(queues)}"
        if plan.kind == Plan.Kind.RELEASE:
            return f"{held} again, because the load requires the node."
        return f"{held} that were added after the plan was created. Return it to service, then drain it."

    def _empty_node(self, plan: Plan) -> bool:
        """Transfer what waits on the node, within the throttle; return True if nothing is left on it."""
        if is_copied(self.control):
            self._write(plan, note="Transfers are waiting: a backup is running.", advanced_at=self.now)
            return False
        topology = projection.read_database()
        elapsed = 1.0
        if plan.advanced_at is not None:
            elapsed = min(abs((self.now - plan.advanced_at).total_seconds()), MAX_ELAPSED_SECONDS)
        budget_bytes, most = int(plan.bytes_per_second * elapsed), MAX_MOVED
        deadline = Deadline.start(PASS_SECONDS, self.monotonic)
        progress, notes = [dict(step) for step in plan.progress], []
        for queue in topology.on_node(plan.empties):
            emptying = empty_container(topology, queue, plan.empties, budget_bytes, most, deadline)
            budget_bytes = max(0, budget_bytes - emptying.done.bytes)
            most -= emptying.done.blocks + emptying.done.letters
            _note_transfer(plan, progress, queue, emptying)
            notes += [emptying.waits_for] if emptying.waits_for else []
        self._write(plan, progress=progress, note=" ".join(notes), advanced_at=self.now)
        return not notes

    def _end(self, plan: Plan, state: str, note: str) -> None:
        with transaction.atomic():
            self._write(plan, state=state, note=note, ended_at=self.now)
            if state == Plan.State.DONE and plan.undoes is not None:
                Plan.objects.filter(pk=plan.undoes.pk).update(state=Plan.State.ROLLED_BACK)

    def _write(self, plan: Plan, **values: object) -> None:
        ours = Plan.objects.filter(pk=plan.pk, fence=self.fence, state=Plan.State.RUNNING)
        if not ours.update(**values):
            raise PlanOvertaken(f"Plan {plan.pk} is no longer advanced by this tick.")


@dataclass(frozen=True)
class DrainProgress:
    """The data that a pass transferred, the blocks that are left, and what it waits for ("": it is empty)."""

    done: TransferResult
    left_blocks: int
    waits_for: str


def empty_container(
    topology: Topology, queue: str, node: str, budget_bytes: int, most: int, deadline: Deadline
) -> DrainProgress:
    """Transfer what waits in a container without points, and its dead letters, until the deadline.

    Events of the pipeline stay until it has read them: only its checkpoint knows how far it is. It reads no dead
    letters.
    """
    spec, done = topology.queue(queue), TransferResult()
    if spec.points.get(node):
        return DrainProgress(done, 0, f"{queue} still has points on {node}.")
    source = get_segment(topology, queue, node)
    try:
        route = route_from(topology, queue, node)
        if spec.kind == "jobs" and not deadline.is_over:
            done = route.run(budget_bytes, most, deadline)
        if not done.last_error and not deadline.is_over:
            letters = route.move_letters(budget_bytes - done.bytes, most - done.blocks, deadline)
            done = done.add_letters(letters)
        left = source.measure()
    except NodeUnavailable as error:
        return DrainProgress(done, 0, f"{queue} is waiting: {error}")
    return DrainProgress(
        done, int(left["length_blocks"] or 0), done.last_error or _count_left(queue, node, spec.kind, left)
    )


def list_away_nodes() -> set[str]:
    """Return nodes that recovery has recorded as OFFLINE."""
    return set(Node.objects.filter(offline_since__isnull=False).values_list("name", flat=True))


def route_from(topology: Topology, queue: str, node: str) -> Route:
    """Return the route of a queue's blocks off a node, by its points on the other nodes that report."""
    silent = list_away_nodes()
    others = [name for name in topology.nodes if name != node and name not in silent]
    points = topology.queue(queue).points
    return Route(
        node,
        get_segment(topology, queue, node),
        {name: get_segment(topology, queue, name) for name in others},
        {name: points.get(name, 0) for name in others},
    )


def get_segment(topology: Topology, queue: str, node: str) -> Segment:
    """Return a queue's segment on a node."""
    connection = create_connection(topology.get_node(node).url, TIMEOUT_SECONDS)
    return Segment(connection, queue, topology.get_durability(queue, node))


def _count_left(queue: str, node: str, kind: str, left: Mapping[str, Any]) -> str:
    blocks = left["length_blocks"]
    if blocks and kind == "pipeline":
        return f"The pipeline still has to read {format_count(blocks, 'block')} of {queue} on {node}."
    # Marked ones are pending, too: a pass that ended has left them.
    if blocks > left["pending_blocks"] - left["leaving_blocks"]:
        return f"{node} still has to transfer {format_count(blocks, 'block')} of {queue}."
    if blocks:
        return f"Workers hold {format_count(blocks, 'block')} of {queue} on {node}."
    letters = left["dead_letters"]
    return f"{node} still has {format_count(letters, 'dead letter')} of {queue}." if letters else ""


def _note_transfer(plan: Plan, progress: list[dict[str, Any]], queue: str, emptying: DrainProgress) -> None:
    """Add the transferred amount to the queue's moves: to the one with the same target, else to its first."""
    places = [place for place, move in enumerate(plan.moves) if move["queue"] == queue]
    if not places:
        return
    first, done = progress[places[0]], emptying.done
    for target, blocks in done.by_target.items():
        place = next((p for p in places if plan.moves[p]["to"] == target), places[0])
        progress[place]["blocks"] += blocks
    first["events"] += done.events
    first["bytes"] += done.bytes
    for place in places:
        progress[place]["state"] = "transferring" if emptying.waits_for else "done"
        progress[place]["blocks_total"] = progress[place]["blocks"]
    first["blocks_total"] += emptying.left_blocks


def tidy(control: redis.Redis, snapshot: Snapshot, now: datetime) -> None:
    """Process all draining containers of the plant as the snapshot shows it."""
    topology = projection.read_database()
    thresholds = enforcing.get_node_thresholds(now)
    if strays := list(_strays(topology, snapshot)):
        logger.warning("Found events outside of containers: %s; they are consumed in place.", strays)
        projection.keep_draining(control, strays, thresholds, now)
    lease = Lease(control, SETTLING, LEASE_SECONDS)
    with lease as fence:
        if fence is not None and not is_copied(control):
            with lease.keep_renewed():  # Each container may wait for a node that does not answer.
                settle(topology, snapshot)
    # They have had no points for long enough.
    settled = Container.objects.filter(points=0, draining_since__lte=now - timedelta(seconds=SETTLE_SECONDS))
    if empty := list(_find_empty_containers(topology, list(settled.values_list("queue__name", "node__name")))):
        projection.retire_containers(control, empty, thresholds)


def settle(topology: Topology, snapshot: Snapshot, monotonic: Callable[[], float] = time.monotonic) -> int:
    """Move blocks and dead letters that were marked for an abandoned transfer; return how many blocks.

    All containers share `PASS_SECONDS`, and each advances by at least one block and one letter. What is marked for a
    node that no longer exists stays where it is.
    """
    going_on = set(Plan.objects.filter(state=Plan.State.RUNNING).values_list("empties", flat=True))
    deadline = Deadline.start(PASS_SECONDS, monotonic)
    moved = 0
    for queue, node in _list_marked_nodes(topology, snapshot):
        if node in going_on:
            continue
        try:
            route = route_from(topology, queue, node)
            route.source.stay([target for target in route.source.list_marked_nodes() if target not in topology.nodes])
            # Weight 0 everywhere: nothing new departs.
            nothing_new = replace(route, weights=dict.fromkeys(route.targets, 0))
            moved += nothing_new.run(SETTLE_BYTES, MAX_MOVED, deadline).blocks
            nothing_new.move_letters(SETTLE_BYTES, MAX_MOVED, deadline)
        except WeirError as error:
            logger.warning("Blocks or dead letters of %s on %s are waiting to be transferred: %s", queue, node, error)
    return moved


def _strays(topology: Topology, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, queue in snapshot.queues.items():
        for node, row in queue.containers.items():
            known = name not in topology.queues or node in topology.queues[name].points
            if not known and row.waiting_events:
                yield name, node


def _list_marked_nodes(topology: Topology, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name, queue in snapshot.queues.items():
        for node, row in queue.containers.items():
            if (row.leaving_blocks or row.leaving_letters) and name in topology.queues and node in topology.nodes:
                yield name, node


def _find_empty_containers(topology: Topology, containers: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Return the empty ones of these containers, by asking the nodes: a heartbeat is a second old.

    A node that does not answer counts as not empty, and is waited for once.
    """
    away = list_away_nodes()
    for queue, node in containers:
        if node in away:
            continue
        try:
            left = get_segment(topology, queue, node).measure()
        except NodeUnavailable:
            away.add(node)
        except WeirError:
            continue
        else:
            if not (left["length_blocks"] or left["dead_letters"]):
                yield queue, node
