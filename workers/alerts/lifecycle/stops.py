"""The pause or drain that explains an alert: what a person has stopped for a time is expected to be idle.

It explains only its own effects: a node that is lost while a queue is paused still alerts, and so does a plant whose
last worker host is drained.
"""

from collections.abc import Mapping
from typing import Any

from queues import pausing
from workers.documents.snapshot import Snapshot
from workers.steering import scope

OF_CONSUMPTION = frozenset({"queue_wait", "queue_latency", "pipeline_stalled", "pipeline_lag"})
OF_INTAKE = frozenset({"producer_silent", "throttled", "rate_unexpected"})
OF_HOSTS = frozenset({"workers_saturated", "pool_refuses"})
OF_NODES = frozenset({"node_lost"})
OF_LOOPS = frozenset(
    {"loop_stale", "loop_held", "loop_saturated", "loop_ineffective", "loop_harmful", "loop_oscillation", "loop_silent"}
)


def find_explanation(
    condition: str, labels: Mapping[str, str], touches: Mapping[str, Any], snapshot: Snapshot | None
) -> str:
    """Return the pause or drain that explains it, as a sentence; "" if none does."""
    if snapshot is None:
        return ""
    if condition in OF_LOOPS:
        loop = snapshot.loops.get(labels.get("loop", ""))
        why = scope.explain_hold(loop.target, snapshot) if loop else ""
        return f"The loop is on hold: {why}." if why else _was_emptied(labels, snapshot)
    if condition in OF_HOSTS:
        return _was_drained(labels, snapshot)
    if condition in OF_NODES:
        return _was_emptied(labels, snapshot)
    part = pausing.CONSUMPTION if condition in OF_CONSUMPTION else pausing.INTAKE
    is_of_queues = condition in OF_CONSUMPTION | OF_INTAKE
    queues = _list_affected_queues(condition, labels, touches, snapshot) if is_of_queues else []
    pauses = [(queue, scope.find_pause(queue, part, snapshot)) for queue in queues]
    words = [scope.pause_in_words(queue, pause) for queue, pause in pauses if pause is not None]
    # Of several queues all have to be paused: one that is not should make progress.
    return words[0] if words and len(words) == len(pauses) else ""


def _list_affected_queues(
    condition: str, labels: Mapping[str, str], touches: Mapping[str, Any], snapshot: Snapshot
) -> list[str]:
    if "queue" in labels:
        return [labels["queue"]]
    if condition == "producer_silent":
        # The snapshot forgets a silent producer before a pause is over.
        return list(touches.get("queues", ()))
    name, applications = labels.get("pipeline", ""), snapshot.pipeline.applications
    rows = [applications[name]] if name in applications else list(applications.values())
    return sorted({queue for row in rows for queue in row.queues})


def _was_emptied(labels: Mapping[str, str], snapshot: Snapshot) -> str:
    """Return whether the node itself, or the target of a loop that was there, was emptied."""
    node = labels.get("node", "")
    return f"Node {node} is drained and empty." if scope.is_emptied(node, snapshot) else ""


def _was_drained(labels: Mapping[str, str], snapshot: Snapshot) -> str:
    hosts: dict[str, Any] = {name: row.draining for name, row in snapshot.hosts.items() if row.draining}
    name = labels.get("host") or next(iter(hosts), "")
    host = hosts.get(name)
    return f"Worker host {name} is drained ({scope.format_who_and_why(host)})." if host else ""
