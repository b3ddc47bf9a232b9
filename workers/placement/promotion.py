"""Promotion of replicas: the replica of a node that is OFFLINE for too long becomes the node's primary.

Recovery (`workers.placement.recovery`) calls it under its lease, and its number fences the write in the database. The
projection names the new primary before it accepts writes. From then on, the former primary acknowledges nothing to
queues that need a replica, and it becomes a replica when it returns (`queues.nodes.replication`).
"""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime

import redis
from django.db import transaction
from django.db.models import QuerySet

from queues import projection
from queues.models import Node
from queues.nodes.replication import ReplicaPair, can_replace_primary
from queues.topology import NodeSpec, QueueSpec, Topology
from workers.steering import enforcing

logger = logging.getLogger(__name__)


def promote_replicas(lost: Collection[str], control: redis.Redis, now: datetime, fence: int) -> list[str]:
    """Promote the replicas of lost nodes, once for each loss; return the nodes.

    A replica is promoted if it has all events that were acknowledged to durable queues. fence: number of the recovery.
    Nothing is written if a later recovery ran.
    """
    topology = projection.read_database()
    with_replica = list(select_nodes_with_replica().filter(name__in=lost))
    candidates = [node for node in with_replica if not is_promoted(node) and _can_promote(topology, node.name)]
    promoted = _write(candidates, control, now, fence) if candidates else []
    # The agent of a lost node may be lost as well.
    if promoted:
        topology = projection.read_database()
    for node in with_replica:
        if node.name in promoted or is_promoted(node):
            problem = ReplicaPair().align(topology.nodes[node.name], _list_queues(topology, node.name))
            if node.name in promoted:
                logger.warning("The replica of node %s is its primary now (%s).", node.name, problem or "replicated")
    return promoted


def select_nodes_with_replica() -> QuerySet[Node]:
    return Node.objects.exclude(replica_url="")


def is_promoted(node: Node) -> bool:
    """Return whether the replica of a node was promoted since the node is OFFLINE."""
    return node.offline_since is not None and node.promoted_at is not None and node.promoted_at >= node.offline_since


def _write(nodes: Sequence[Node], control: redis.Redis, now: datetime, fence: int) -> list[str]:
    """Exchange the servers of nodes in the database and in the topology; return the nodes that were exchanged."""
    with transaction.atomic():
        if projection.lock_revision().recovery_fence != fence:
            return []
        exchanged = []
        for node in nodes:
            rows = Node.objects.filter(pk=node.pk, promotions=node.promotions)
            if rows.update(promotions=node.promotions + 1, promoted_at=now):
                exchanged.append(node.name)
        if exchanged:
            projection.project(control, enforcing.get_node_thresholds(now))
    return exchanged


def _can_promote(topology: Topology, node: str) -> bool:
    return _needs_replica(topology, topology.nodes[node]) and can_replace_primary(topology.nodes[node])


def _needs_replica(topology: Topology, spec: NodeSpec) -> bool:
    """Return whether a durable queue has a container there: the data of the others may be older on the replica."""
    return any(queue.waits_for_disk for queue in _list_queues(topology, spec.name))


def _list_queues(topology: Topology, node: str) -> list[QueueSpec]:
    return [topology.queues[name] for name in topology.on_node(node)]
