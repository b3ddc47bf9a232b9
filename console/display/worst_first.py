"""Worst first: one order for nodes and queues, so that a glance at the top is enough."""

import math
from typing import Any

from django.urls import reverse

from queues.nodes.node_state import BUSY, NORMAL, STATES
from queues.waiting import BEHIND_SECONDS
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot

STATE_RANK = {state: rank for rank, state in enumerate(STATES)}


def worst_first(snapshot: Snapshot | None) -> list[dict[str, Any]]:
    """Nodes and queues as {kind, name, url, state, figure, unit, badness}, worst first; names break ties."""
    if snapshot is None:
        return []
    rows = [_node(*item) for item in snapshot.nodes.items()]
    rows += [_queue(*item) for item in snapshot.queues.items()]
    return sorted(rows, key=lambda row: (-row["badness"], row["kind"], row["name"]))


def _node(name: str, node: NodeStatus) -> dict[str, Any]:
    utilisation = node.utilisation
    return {
        "kind": "node",
        "name": name,
        "url": reverse("node", args=[name]),
        "state": node.state,
        "stale": node.stale,
        "figure": utilisation,
        "unit": "utilisation",
        "badness": badness_of_node(node),
    }


def badness_of_node(node: NodeStatus) -> float:
    """Its state first, then how much of it is used; one in doubt is half a state worse."""
    used = min(node.utilisation or 0.0, 1.0)
    return STATE_RANK.get(node.state or "", 0) + used + 0.5 * bool(node.stale)


def _queue(name: str, queue: QueueStatus) -> dict[str, Any]:
    wait, waits = queue.wait_seconds, bool(queue.waiting_events)
    behind = _lateness(queue) >= 1.0
    return {
        "kind": "queue",
        "name": name,
        "url": reverse("queue", args=[name]),
        "state": BUSY if behind else NORMAL,
        "stale": False,
        "figure": wait,
        "unit": "seconds",
        "waits": waits,
        "badness": badness_of_queue(queue),
    }


def badness_of_queue(queue: QueueStatus) -> float:
    """A queue is as bad as a BUSY node at 10 s of waiting, and grows from there up to an OFFLINE one."""
    return min(1.0 + _lateness(queue), 4.5) + (0.5 if queue.dead_letters else 0.0)


def _lateness(queue: QueueStatus) -> float:
    """One that waits for nobody knows how long is as late as can be."""
    wait = queue.wait_seconds
    return math.inf if wait is None and queue.waiting_events else (wait or 0.0) / BEHIND_SECONDS
