"""Recovery from a lost node.

Its points are restored on live nodes, and queues get their minimum of containers again. Publishers have routed around
it within a second; this changes the plan for longer. A node that is OFFLINE for RESTORE_SECONDS loses its points to the
queue's other nodes, in proportion to theirs. A queue that has fewer live containers than its minimum gets new ones on
the least loaded nodes, with equal parts of what was lost (Houtman,
3.5.1.6). The lost container stays, draining: when its node returns, its data is consumed first, and it gets
new points only by a plan: one of recovery's own, a minute later, or a person's.

Recovery took the points without an approval, so it also gives them back without one: once the node has reported for
RETURN_SECONDS, by a plan that is the inverse of the restoring one, as far as the points are still where they went. The
time of its return is on the control server, so that any process can do it.

One process does this at a time (a lease), and its number fences every write in the database. In addition, a container
is unique, and points move only from what they were computed from. So two recoveries that see different nodes (a split
brain) never make a container twice.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import redis
from django.db import transaction
from django.db.models import Max, Q, QuerySet

from common.errors import BadInput
from controllers.framework.guard import STALE_SECONDS
from controllers.rebalancing.allocation import ObservedNode, ObservedQueue, PlantObservation, from_observation
from controllers.rebalancing.node_scaling import LAW, find_restoring_moves
from queues import keys, projection
from queues.control.replies import expect_bytes
from queues.models import Node, TopologyRevision
from queues.nodes.node_state import NORMAL, OFFLINE, SILENT
from queues.points import TOTAL
from queues.topology import Topology
from workers.coordination.leases import Lease
from workers.documents.snapshot import Snapshot
from workers.models import Loop, Plan
from workers.placement import execution, moves, plans, promotion, proposals
from workers.placement.moves import Move, compute_load_per_point, get_capacity
from workers.placement.plans import User
from workers.steering import overrides
from workers.steering.kept import exclude_kept

RETURN_SECONDS = 60.0
NEWEST_RESTORING = 50
BY = "recovery"
logger = logging.getLogger(__name__)
RESTORE_SECONDS = 10.0
LEASE_SECONDS = 8.0


def note_loss(control: redis.Redis, node: str) -> None:
    """Record that the node is lost: it gets nothing back before it returns again."""
    control.hdel(keys.RETURNED, node)


def is_due(control: redis.Redis, now: datetime) -> bool:
    """Return whether a node came back long enough ago."""
    returned = expect_bytes(control).hgetall(keys.RETURNED).values()
    return any(abs(now.timestamp() - float(at)) >= RETURN_SECONDS for at in returned)


def give_back(control: redis.Redis, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return the approved plan for a node that is back for long enough, once per return; None if there is none."""
    for name, at in expect_bytes(control).hgetall(keys.RETURNED).items():
        node = name.decode()
        row = snapshot.nodes.get(node)
        if row is None or row.state in SILENT or row.stale:
            continue
        if abs(now.timestamp() - float(at)) < RETURN_SECONDS or plans.list_running_plans().exists():
            continue
        plan, why = None, f"{node} returned {RETURN_SECONDS:g} s ago."
        if not _is_answered(node, float(at), now):
            # The plan is complete or not made at all: what was taken may have moved on.
            with suppress(BadInput), transaction.atomic():
                plan = plans.record_approval(propose(node, None, why, snapshot=snapshot, now=now), BY, why, now)
        # After the plan: a process that dies in between leaves a return that is answered.
        note_loss(control, node)
        if plan is not None:
            return plan
    return None


def _is_answered(node: str, returned_seconds: float, now: datetime) -> bool:
    """Return whether nothing is to be given back.

    That is true if node scaling takes care of it, recovery has made a plan since the node's return, or what was taken
    was given back before.
    """
    loops = Loop.objects.filter(law=LAW.name)
    if any(
        overrides.get_effective_mode(loop, overrides.list_for_loop(loop, now), now) == Loop.Mode.AUTO for loop in loops
    ):
        return True
    if (taken := find_restoring_plan(node)) is None:
        return True
    since = datetime.fromtimestamp(returned_seconds, UTC)
    plans_back = taken.undone_by.filter(Q(state=Plan.State.DONE) | Q(owner=None, created_at__gte=since))
    # One restoring plan may have taken from several nodes, which come back one after the other.
    return any(move["to"] == node for plan in plans_back for move in plan.moves)


def propose(node: str, user: User, reason: str, *, snapshot: Snapshot, now: datetime) -> Plan:
    """Return a plan that gives a node what recovery took from it, to be approved.

    Raises `BadInput` if nothing was taken, the points have moved on, or the node takes none.
    """
    taken = find_restoring_plan(node)
    inverse = [] if taken is None else _list_inverse_moves(node, taken, projection.read_database())
    if taken is None or not inverse:
        raise BadInput("node", f"{node} has no points to restore: none were taken, or they were moved again.")
    return proposals.propose_inverse(taken, inverse, user, reason, snapshot=snapshot, now=now, node=node)


def find_restoring_plan(node: str) -> Plan | None:
    """Return the newest plan by which recovery took points from a node."""
    return next((row for row in list_restoring_plans() if any(move["from"] == node for move in row.moves)), None)


def list_restoring_plans() -> QuerySet[Plan]:
    """Return the plans of recovery that a node may get its points back from, the newest first."""
    rows = Plan.objects.filter(kind=Plan.Kind.RESTORE, state__in=(*plans.ENDED_WITH_MOVES, Plan.State.ROLLED_BACK))
    return rows.order_by("-pk")[:NEWEST_RESTORING]


def can_restore_points(node: str, points: int) -> bool:
    """Return whether a node without points could get some back."""
    return not points and find_restoring_plan(node) is not None


def _list_inverse_moves(node: str, taken: Plan, topology: Topology) -> list[Move]:
    """Return the moves back, of the points that are still where they went."""
    inverse_moves: list[Move] = []
    for move in moves.read(taken.moves):
        if move.source != node or move.queue not in topology.queues:
            continue
        held = topology.queue(move.queue).live_points
        if node not in held and held.get(move.target, 0) >= move.points:
            inverse_moves.append(move.inverse)
    return inverse_moves


def recover(control: redis.Redis, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Record which nodes are lost, and restore what has been lost for long enough.

    Return the plan, if one was made. Nothing is done on a snapshot that is too old to trust.
    """
    if snapshot.at is None or abs(now.timestamp() - snapshot.at) > STALE_SECONDS:
        return None
    if not _is_due(snapshot, now):
        if not is_due(control, now):
            return None
        with Lease(control, "recovery", LEASE_SECONDS) as fence:
            plan = None if fence is None else give_back(control, snapshot, now)
        return execution.advance(plan, control, now) if plan is not None else None
    fence_before = TopologyRevision.objects.values_list("recovery_fence", flat=True).first() or 0
    with Lease(control, "recovery", LEASE_SECONDS, at_least=fence_before) as fence:
        if fence is None or not note_offline(snapshot, now, fence, control):
            return None
        promotion.promote_replicas(_list_lost_nodes(snapshot, now), control, now, fence)
        plan = _restore(snapshot, now, fence)
    return execution.advance(plan, control, now) if plan is not None else None


def _is_due(snapshot: Snapshot, now: datetime) -> bool:
    """Return whether there is anything to write: in most seconds there is not, and nothing is written."""
    since = now - timedelta(seconds=RESTORE_SECONDS)
    for node in Node.objects.all():
        row = snapshot.nodes.get(node.name)
        if row is not None and row.state is not None:
            silent = row.state == OFFLINE
            if silent != (node.offline_since is not None):
                return True
    lost_replicated = promotion.select_nodes_with_replica().filter(offline_since__lte=since)
    if lost_replicated.exists():
        return True
    holding = Node.objects.filter(offline_since__lte=since, containers__points__gt=0)
    return holding.exclude(name__in=_list_unreadable_nodes(snapshot)).exists() or _is_short(snapshot)


def _list_unreadable_nodes(snapshot: Snapshot) -> set[str]:
    """Return the nodes that say what can't be read: an agent of another version is no lost node."""
    return {name for name, row in snapshot.nodes.items() if row.unreadable is not None}


def _is_short(snapshot: Snapshot) -> bool:
    """Return whether a queue has fewer containers than its minimum while a node could take one."""
    nodes = [
        name
        for name, row in snapshot.nodes.items()
        if row.state not in SILENT and not (row.stale or row.drained or row.cordoned)
    ]
    for queue in snapshot.queues.values():
        holders = {name for name, row in queue.containers.items() if row.points}
        if len(holders) < queue.minimum_containers and holders and set(nodes) - holders:
            return True
    return False


def note_offline(snapshot: Snapshot, now: datetime, fence: int, control: redis.Redis) -> bool:
    """Record since when nodes are OFFLINE, and which returned; return False if a later recovery ran."""
    with transaction.atomic():
        # Two control servers that both consider themselves the primary may give the same number to two recoveries: the
        # database gives it to one.
        if _read_recovery_number() >= fence:
            return False
        TopologyRevision.objects.filter(pk=1).update(recovery_fence=fence)
        for node in Node.objects.all():
            row = snapshot.nodes.get(node.name)
            if row is None or row.state is None:
                continue
            if row.state == OFFLINE and node.offline_since is None:
                silent = timedelta(seconds=row.age_seconds or 0.0)
                Node.objects.filter(pk=node.pk).update(offline_since=now - silent)
                note_loss(control, node.name)
                logger.warning("Node %s is OFFLINE.", node.name)
            elif row.state != OFFLINE and not row.stale and node.offline_since is not None:
                Node.objects.filter(pk=node.pk).update(offline_since=None)
                control.hset(keys.RETURNED, node.name, str(now.timestamp()))
                logger.warning("Node %s has returned.", node.name)
    return True


def _read_recovery_number() -> int:
    """Return the number of the last recovery. No other process writes before this transaction ends."""
    row, _ = TopologyRevision.objects.select_for_update().get_or_create(pk=1)
    return int(row.recovery_fence)


def _list_lost_nodes(snapshot: Snapshot, now: datetime) -> set[str]:
    """Return the nodes that are OFFLINE for RESTORE_SECONDS."""
    since = now - timedelta(seconds=RESTORE_SECONDS)
    lost = set(Node.objects.filter(offline_since__lte=since).values_list("name", flat=True))
    return lost - _list_unreadable_nodes(snapshot)


def _restore(snapshot: Snapshot, now: datetime, fence: int) -> Plan | None:
    lost = _list_lost_nodes(snapshot, now)
    running = plans.list_running_plans().filter(kind=Plan.Kind.RESTORE) if lost else plans.list_running_plans()
    if running.exists():
        return None  # A plan in progress may fix what is short; what is lost waits for no other plan.
    with transaction.atomic():
        if _read_recovery_number() != fence:
            return None
        topology = projection.read_database()
        # A node that is just returning, and does not report for certain yet, gets nothing either.
        silent = Node.objects.filter(offline_since__isnull=False).values_list("name", flat=True)
        closed = plans.find_offline_nodes(snapshot) | set(silent)
        rates = {name: TOTAL * compute_load_per_point(name, topology, snapshot) for name in topology.queues}
        capacities = {name: get_capacity(name, topology, snapshot) for name in topology.nodes}
        restoring_moves = plan_restoring(topology, lost, topology.nodes.keys() - closed, rates, capacities)
        if not restoring_moves:
            return None
        reason = (
            f"No report from {', '.join(sorted(lost))} for {RESTORE_SECONDS:g} s. The points move to live nodes."
            if lost
            else "A queue has fewer containers than its minimum. Containers are added."
        )
        return proposals.restore(restoring_moves, reason, snapshot, now)


def plan_restoring(
    topology: Topology,
    lost: Collection[str],
    live: Collection[str],
    rates: Mapping[str, float],
    capacities: Mapping[str, float],
) -> list[Move]:
    """Return the moves that take every point off lost nodes.

    `controllers.rebalancing.node_scaling` restores the points. `rates` [events/s] by queue and `capacities` [events/s]
    by node say which node is least loaded. A queue that no node can take (no live node takes points) keeps its points
    where they are.
    """
    allocation = from_observation(
        PlantObservation(
            nodes=[
                ObservedNode(
                    name=spec.name,
                    capacity=capacities.get(spec.name, spec.capacity.events_per_second),
                    drained=not spec.takes_points,
                    state=NORMAL if spec.name in live else OFFLINE,
                )
                for spec in topology.nodes.values()
            ],
            queues=[
                ObservedQueue(
                    name=name,
                    rate=rates.get(name, 0.0),
                    containers=queue.live_points,
                    minimum_containers=queue.minimum_containers,
                )
                for name, queue in sorted(topology.queues.items())
            ],
        ),
        minimum_containers=1,
    )
    gone = [place for place, name in enumerate(allocation.nodes) if name in lost]
    return moves.read(allocation.name_moves(find_restoring_moves(allocation, gone)))


def select_due_plans(before: datetime) -> QuerySet[Plan]:
    """Return plans that had ended by then, except those that are kept or still needed.

    Needed plans are those that another one undoes, the newest of each loop and kind (`workers.placement.declined`),
    those from which a node may get its points back, and those that returned them. A plan that was undone is due after
    the plan that undid it.
    """
    by_loops = Plan.objects.filter(owner=None).exclude(law="").values("law", "kind")
    newest = by_loops.annotate(newest=Max("pk")).values_list("newest", flat=True)
    restoring = [plan.pk for plan in list_restoring_plans()]
    due = Plan.objects.filter(ended_at__lt=before, undone_by__isnull=True).exclude(state__in=plans.OPEN)
    due = due.exclude(pk__in=[*newest, *restoring]).exclude(undoes__in=restoring)
    return exclude_kept(due, "created_at", "ended_at")
