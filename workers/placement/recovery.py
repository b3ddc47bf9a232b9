"""Recovery from a lost node.

Its points are restored on live nodes, and queues get their minimum of containers again. Publishers have routed around
it within a second; this changes the plan for longer. A node that is OFFLINE for RESTORE_SECONDS loses its points to the
queue's other nodes, in proportion to theirs. A queue that has fewer live containers than its minimum gets new ones on
the least loaded nodes, with equal parts of what was lost (Houtman,
3.5.1.6). The lost container stays, draining: when its node returns, its data is consumed first, and it gets
new points only by a plan: one of recovery's own, a minute later (`workers.placement.give_back`), or a person's.

One process does this at a time (a lease), and its number fences every write in the database. In addition, a container
is unique, and points move only from what they were computed from. So two recoveries that see different nodes (a split
brain) never make a container twice.
"""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import redis
from django.db import transaction

from controllers.framework.guard import STALE_SECONDS
from controllers.rebalancing.allocation import ObservedNode, ObservedQueue, PlantObservation, from_observation
from controllers.rebalancing.node_scaling import find_restoring_moves
from queues import projection
from queues.models import Node, TopologyRevision
from queues.nodes.node_state import NORMAL, OFFLINE, SILENT
from queues.points import TOTAL
from queues.topology import Topology
from workers.coordination.leases import Lease
from workers.documents.snapshot import Snapshot
from workers.models import Plan
from workers.placement import execution, give_back, moves, plans, proposals
from workers.placement.move_forecast import compute_load_per_point
from workers.placement.moves import Move

logger = logging.getLogger(__name__)
RESTORE_SECONDS = 10.0
LEASE_SECONDS = 8.0


def recover(control: redis.Redis, snapshot: Snapshot, now: datetime) -> Plan | None:
    """Record which nodes are lost, and restore what has been lost for long enough.

    Return the plan, if one was made. Nothing is done on a snapshot that is too old to trust.
    """
    if snapshot.at is None or abs(now.timestamp() - snapshot.at) > STALE_SECONDS:
        return None
    if not _is_due(snapshot, now):
        return _give_back(control, snapshot, now)
    fence_before = TopologyRevision.objects.values_list("recovery_fence", flat=True).first() or 0
    with Lease(control, "recovery", LEASE_SECONDS, at_least=fence_before) as fence:
        if fence is None or not note_offline(snapshot, now, fence, control):
            return None
        plan = _restore(snapshot, now, fence)
    return execution.advance(plan, control, now) if plan is not None else None


def _give_back(control: redis.Redis, snapshot: Snapshot, now: datetime) -> Plan | None:
    if not give_back.is_due(control, now):
        return None
    with Lease(control, "recovery", LEASE_SECONDS) as fence:
        plan = None if fence is None else give_back.give_back(control, snapshot, now)
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
        if not _claim(fence):
            return False
        for node in Node.objects.all():
            row = snapshot.nodes.get(node.name)
            if row is None or row.state is None:
                continue
            if row.state == OFFLINE and node.offline_since is None:
                silent = timedelta(seconds=row.age_seconds or 0.0)
                Node.objects.filter(pk=node.pk).update(offline_since=now - silent)
                give_back.note_loss(control, node.name)
                logger.warning("Node %s is OFFLINE.", node.name)
            elif row.state != OFFLINE and not row.stale and node.offline_since is not None:
                Node.objects.filter(pk=node.pk).update(offline_since=None)
                give_back.note_return(control, node.name, now)
                logger.warning("Node %s has returned.", node.name)
    return True


def _claim(fence: int) -> bool:
    """Claim the number; return False if it, or a greater one, was there.

    Two control servers that both consider themselves the primary may give the same number to two recoveries: the
    database gives it to one.
    """
    if _read_recovery_number() >= fence:
        return False
    TopologyRevision.objects.filter(pk=1).update(recovery_fence=fence)
    return True


def _read_recovery_number() -> int:
    """Return the number of the last recovery. No other process writes before this transaction ends."""
    row, _ = TopologyRevision.objects.select_for_update().get_or_create(pk=1)
    return int(row.recovery_fence)


def _restore(snapshot: Snapshot, now: datetime, fence: int) -> Plan | None:
    since = now - timedelta(seconds=RESTORE_SECONDS)
    lost = set(Node.objects.filter(offline_since__lte=since).values_list("name", flat=True))
    lost -= _list_unreadable_nodes(snapshot)
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
        restoring_moves = plan_restoring(topology, lost, topology.nodes.keys() - closed, rates)
        if not restoring_moves:
            return None
        reason = (
            f"No report from {', '.join(sorted(lost))} for {RESTORE_SECONDS:g} s; the points move to live nodes."
            if lost
            else "A queue has fewer containers than its minimum; containers are added."
        )
        return proposals.restore(restoring_moves, reason, snapshot, now)


def plan_restoring(
    topology: Topology, lost: Collection[str], live: Collection[str], rates: Mapping[str, float]
) -> list[Move]:
    """Return the moves that take every point off lost nodes.

    `controllers.rebalancing.node_scaling` restores the points. `rates` [events/s] by queue say which node is least
    loaded. A queue that no node can take (no live node takes points) keeps its points where they are.
    """
    allocation = from_observation(
        PlantObservation(
            nodes=[
                ObservedNode(
                    name=spec.name,
                    capacity=spec.capacity.events_per_second,
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
