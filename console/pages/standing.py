"""Worst first: one order for nodes and queues, so that a glance at the top is enough."""

import math
from typing import Any

from django.urls import reverse

STATE_RANK = {"OFFLINE": 4, "TOOBUSY": 3, "BUSY": 2, "NORMAL": 1, "IDLE": 0}
KEEPS_UP_SECONDS = 10.0  # a queue that waits longer than this is worth a look


def worst_first(snapshot: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Nodes and queues as {kind, name, url, state, figure, unit, badness}, worst first; names break ties."""
    if snapshot is None:
        return []
    rows = [_node(*item) for item in snapshot["nodes"].items()]
    rows += [_queue(*item) for item in snapshot["queues"].items()]
    return sorted(rows, key=lambda row: (-row["badness"], row["kind"], row["name"]))


def _node(name: str, node: dict[str, Any]) -> dict[str, Any]:
    utilisation = node["utilisation"]
    return {
        "kind": "node",
        "name": name,
        "url": reverse("node", args=[name]),
        "state": node["state"],
        "stale": node["stale"],
        "figure": utilisation,
        "unit": "utilisation",
        "badness": STATE_RANK.get(node["state"], 0)
        + min(utilisation or 0.0, 1.0)
        + 0.5 * bool(node["stale"]),
    }


def _queue(name: str, queue: dict[str, Any]) -> dict[str, Any]:
    """A queue is as bad as a BUSY node at 10 s of waiting, and grows from there up to an OFFLINE one.

    One that waits for nobody knows how long is as bad as the longest wait.
    """
    wait, waits = queue["wait_seconds"], bool(queue["waiting_events"])
    lateness = math.inf if wait is None and waits else (wait or 0.0) / KEEPS_UP_SECONDS
    behind = lateness >= 1.0
    return {
        "kind": "queue",
        "name": name,
        "url": reverse("queue", args=[name]),
        "state": "BUSY" if behind else "NORMAL",
        "stale": False,
        "figure": wait,
        "unit": "seconds",
        "waits": waits,
        "badness": min(1.0 + lateness, 4.5) + (0.5 if queue["dead_letters"] else 0.0),
    }
