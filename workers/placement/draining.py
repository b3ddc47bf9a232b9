"""Containers without points: they are consumed where they are, and removed when they are empty.

Three tasks, each harmless when repeated: events that arrived after their container was removed get it back; interrupted
transfers of blocks are completed; empty and settled containers are retired.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import redis

from common.errors import NodeUnavailable, WeirError
from queues import projection
from queues.models import Container
from queues.topology import Topology
from workers.coordination.leases import SETTLING, Lease, is_copied
from workers.documents.snapshot import Snapshot
from workers.models import Plan
from workers.placement.execution import get_segment, list_away_nodes, route_from
from workers.placement.transfer import MAX_MOVED, PASS_SECONDS, Deadline
from workers.steering import enforcing

logger = logging.getLogger(__name__)
# A publisher may keep a topology for a second and wait half a second for a flush; this is well beyond.
SETTLE_SECONDS = 10.0
SETTLE_BYTES = 4 * 2**20
LEASE_SECONDS = 15.0


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
    if empty := list(_find_empty_containers(topology, _list_settled_containers(now))):
        projection.retire_containers(control, empty, thresholds)


def settle(topology: Topology, snapshot: Snapshot, monotonic: Callable[[], float] = time.monotonic) -> int:
    """Move blocks that were marked for an abandoned transfer to where they belong; return how many.

    All containers share `PASS_SECONDS`, and each advances by at least one block. Blocks marked for a node that no
    longer exists are released: they are handled where they are.
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
        except WeirError as error:
            logger.warning("Blocks of %s on %s are waiting to be transferred: %s", queue, node, error)
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
            if row.leaving_blocks and name in topology.queues and node in topology.nodes:
                yield name, node


def _list_settled_containers(now: datetime) -> list[tuple[str, str]]:
    """Return (queue, node) of containers that have had no points for long enough."""
    since = now - timedelta(seconds=SETTLE_SECONDS)
    rows = Container.objects.filter(points=0, draining_since__lte=since)
    return list(rows.values_list("queue__name", "node__name"))


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
