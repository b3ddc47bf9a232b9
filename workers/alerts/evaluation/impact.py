"""The impact of an alert on the events, and the first step to take, in plain words."""

from collections.abc import Sequence

from controllers.framework.reason import format_count
from queues.nodes.node_state import OFFLINE, SILENT
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.plant_conditions import SAFE
from workers.alerts.lifecycle.inhibition import JOINED, list_alert_subjects
from workers.alerts.lifecycle.models import Alert
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectState

BAD = ("warning", "critical")
BURN = "budget_burn_"  # before the name of a pair of windows


class Impacts:
    """The impact of alerts on one snapshot: up to three sentences on what is affected."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._queues, self._nodes = snapshot, snapshot.queues, snapshot.nodes

    def collect(self, alert: Alert) -> str:
        """Return the sentences of an alert."""
        if "node" in alert.labels and alert.condition.startswith("node_"):
            return f"{describe_node_impact(self._snapshot, alert.labels['node'])} {SAFE}".strip()
        if alert.condition.startswith(BURN) and (said := self._describe_budget(alert)):
            return said
        if (said := self._describe_cause(alert)) != "":
            return said
        general = _get_general_impact(alert.condition)
        if "queue" in alert.labels and not general:
            return self._describe_queue(alert.labels["queue"], alert.condition)
        return general

    def _describe_cause(self, alert: Alert) -> str:
        """Return the impact of the cause that the headline names, or what explains the alert; "" without a cause."""
        for subject in list_alert_subjects(alert.condition, alert.labels):
            state = self._snapshot.states.get(subject)
            if state is None or alert.condition not in JOINED:
                continue
            root = self._snapshot.states.get(state.within or "")
            if root is not None and alert.under_id is None:
                return root.impact
            if root is not None:
                return f"{state.impact} Cause: {root.finding}".strip()
            if state.affected or (state.late and state.impact):
                return state.impact
        return ""

    def _describe_budget(self, alert: Alert) -> str:
        """Describe how long a budget would last, which depends on its window; "" if that is unknown."""
        objective = self._snapshot.objectives.get(alert.labels.get("objective", ""))
        rate = objective.burn.get(alert.condition.removeprefix(BURN)) if objective else None
        if objective is None or not rate:
            return ""
        hours = 24 * objective.window_days / rate
        lasts = f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.0f} h" if hours >= 2 else f"{60 * hours:.0f} min"
        return f"At this rate, the whole {objective.window_days:g}-day error budget lasts {lasts}."

    def _describe_queue(self, name: str, condition: str) -> str:
        queue = self._queues.get(name)
        if queue is None:
            return "The queue is no longer part of the plant."
        if condition == "dead_letters":
            dead = queue.dead_letters or 0
            verb, them = ("stays", "it") if dead == 1 else ("stay", "them")
            said = f"{format_count(dead, 'event')} of {name} {verb} unprocessed"
            return f"{said} until you requeue or discard {them}."
        slow = condition == "queue_latency"
        waits = queue.latency_p95_seconds if slow else queue.wait_seconds
        measured = f"The p95 latency of {name}" if slow else f"The delay of {name}"
        said = "" if waits is None else f"{measured} is {waits:,.0f} s. "
        return f"{said}{SAFE}"


def describe_node_impact(snapshot: Snapshot, name: str) -> str:
    """Return which points a node has, who takes its new events, and what waits on it."""
    node = snapshot.nodes.get(name)
    if node is None:
        return "The node is no longer part of the plant."
    queues = [queue for queue, row in snapshot.queues.items() if _get_container(row, name).points]
    held = "The node has no points, so it receives no new events."
    if queues:
        held = f"The node has {format_count(node.points or 0, 'point')} of {join_names(queues)}."
    if node.state not in (OFFLINE, None):
        return f"{held} Its events wait longer."
    waiting = sum(_get_container(row, name).waiting_events or 0 for row in snapshot.queues.values())
    verb = "waits" if waiting == 1 else "wait"
    left = f" {format_count(waiting, 'event')} {verb} on the node until it returns." if waiting else ""
    others = list_receiving_nodes(snapshot, name)
    takes = f"{join_names(others)} take{'s' if len(others) == 1 else ''} new events"
    served = f" {takes if others else 'No other node takes its new events'}." if queues else ""
    return f"{held}{served}{left}"


def is_falling_behind(state: SubjectState) -> bool:
    """Return whether a queue falls behind; one that only has dead letters waits for a person."""
    return state.late and state.severity in BAD


def _get_container(queue: QueueStatus, node: str) -> ContainerStatus:
    return queue.containers.get(node, ContainerStatus())


def list_receiving_nodes(snapshot: Snapshot, lost: str) -> list[str]:
    """Return the nodes that take new events of a lost node's queues: those with points of them."""
    queues = [row for row in snapshot.queues.values() if _get_container(row, lost).points]
    return [
        name
        for name, node in snapshot.nodes.items()
        if name != lost
        and node.state not in SILENT
        and not node.drained
        and any(_get_container(row, name).points for row in queues)
    ]


MAX_NAMES = 4


def join_names(names: Sequence[str]) -> str:
    """Return a, b, and c; of many, only some are named."""
    shown = names[:MAX_NAMES]
    if len(names) > MAX_NAMES:
        shown = [*shown[:-1], f"{len(names) - MAX_NAMES + 1} others"]
    if len(shown) < 3:
        return " and ".join(shown)
    return f"{', '.join(shown[:-1])}, and {shown[-1]}"


def read_recorded_impact(alert: Alert) -> str:
    """Return what was affected, as the evaluator recorded it: now, or at its worst if the alert is over."""
    noted = alert.impact if alert.resolved_at is None else alert.worst_impact or alert.impact
    return noted or _get_general_impact(alert.condition)


def _get_general_impact(condition: str) -> str:
    return CONDITIONS[condition].impact if condition in CONDITIONS else ""


POINTS_MOVE = "The loops move its points to other nodes after 10 s."
STEPS_OF_PIPELINE = {
    "queue_wait": "Check under Pipeline whether the application that reads the queue runs and keeps up.",
    "queue_latency": "Check under Pipeline which operator is slow, and how long its batches take.",
}


def describe_first_step(condition: str, consumers: str = "", points: int = 0) -> str:
    """Return the first step to take.

    `consumers`: the consumers of the queue that it is about, jobs or pipeline. `points`: the points of the
    node that it is about, which has none once they were moved.
    """
    own = STEPS_OF_PIPELINE.get(condition) if consumers == "pipeline" else None
    step = own or (CONDITIONS[condition].first_step if condition in CONDITIONS else "")
    return f"{step} {POINTS_MOVE}" if condition == "node_lost" and points else step
