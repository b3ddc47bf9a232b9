"""The impact of an alert on the events, and the first step to take, in plain words."""

from collections.abc import Sequence

from controllers.framework.reason import format_count
from queues.nodes.node_state import OFFLINE, SILENT
from queues.pausing import CONSUMPTION
from workers.alerts.lifecycle.models import Alert
from workers.documents.nodes import NodeStatus
from workers.documents.queues import ContainerStatus, QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectState
from workers.steering.scope import find_pause

BAD = ("warning", "critical")
SAFE = "No acknowledged events are lost."
BURN = "budget_burn_"  # before the name of a pair of windows


class Impacts:
    """The impact of alerts on one snapshot: up to three sentences on what is affected."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._queues, self._nodes = snapshot, snapshot.queues, snapshot.nodes
        self._paused = [name for name in self._queues if find_pause(name, CONSUMPTION, snapshot)]
        states = snapshot.states.values()
        self._behind = [state.name for state in states if is_falling_behind(state)]

    def collect(self, alert: Alert, *, with_others: bool = True) -> str:
        """Return the sentences of an alert. `with_others`: include the state of the other queues."""
        if "node" in alert.labels and alert.condition.startswith("node_"):
            return self._describe_node(alert.labels["node"])
        if alert.condition.startswith(BURN) and (said := self._describe_budget(alert)):
            return said
        if "queue" in alert.labels and alert.condition not in GENERAL:
            return self._describe_queue(alert.labels["queue"], alert.condition, with_others)
        return GENERAL.get(alert.condition, "")

    def _describe_budget(self, alert: Alert) -> str:
        """Describe how long a budget would last, which depends on its window; "" if that is unknown."""
        objective = self._snapshot.objectives.get(alert.labels.get("objective", ""))
        rate = objective.burn.get(alert.condition.removeprefix(BURN)) if objective else None
        if objective is None or not rate:
            return ""
        lasts = _format_hours(24 * objective.window_days / rate)
        return f"At this rate, the whole {objective.window_days:g}-day error budget lasts {lasts}."

    def _describe_node(self, name: str) -> str:
        node = self._nodes.get(name)
        if node is None:
            return "The node is no longer part of the plant."
        queues = [queue for queue, row in self._queues.items() if _get_container(row, name).points]
        held = "The node has no points, so it receives no new events."
        if queues:
            held = f"The node has {format_count(node.points or 0, 'point')} of {join_names(queues)}."
        if node.state != OFFLINE:
            return f"{held} Its events wait longer. {SAFE}"
        waiting = sum(_get_container(row, name).waiting_events or 0 for row in self._queues.values())
        verb = "waits" if waiting == 1 else "wait"
        left = f" {format_count(waiting, 'event')} {verb} on the node until it returns." if waiting else ""
        served = f" {self._list_served_applications(name)}." if queues else ""
        return f"{held}{served}{left} {SAFE}"

    def _list_served_applications(self, lost: str) -> str:
        others = list_receiving_nodes(self._snapshot, lost)
        if not others:
            return "No other node takes its new events"
        return f"{join_names(others)} take{'s' if len(others) == 1 else ''} new events"

    def _describe_queue(self, name: str, condition: str, with_others: bool) -> str:
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
        return f"{said}{self._describe_other_queues(name) if with_others else ''}{SAFE}"

    def _describe_other_queues(self, name: str) -> str:
        """Describe the other queues; "" if there are none."""
        others = [queue for queue in self._queues if queue != name]
        behind = [queue for queue in self._behind if queue != name]
        if behind:
            return f"{join_names(behind)} {'falls' if len(behind) == 1 else 'fall'} behind, too. "
        stopped = [queue for queue in self._paused if queue != name]
        if stopped:
            verb = "is" if len(stopped) == 1 else "are"
            rest = "; the others keep up" if len(stopped) < len(others) else ""
            return f"{join_names(stopped)} {verb} paused{rest}. "
        return "The other queues keep up. " if others else ""


def is_falling_behind(state: SubjectState) -> bool:
    """Return whether a queue falls behind; one that only has dead letters waits for a person."""
    return state.kind == "queue" and state.severity in BAD and "falls behind" in state.finding


def _format_hours(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{60 * hours:.0f} min"


def _get_container(queue: QueueStatus, node: str) -> ContainerStatus:
    return queue.containers.get(node, ContainerStatus())


def list_receiving_nodes(snapshot: Snapshot, lost: str) -> list[str]:
    """Return the nodes that take new events of a lost node's queues: those with points of them."""
    queues = [row for row in snapshot.queues.values() if _get_container(row, lost).points]
    return [
        name
        for name, node in snapshot.nodes.items()
        if name != lost and _takes(node) and any(_get_container(row, name).points for row in queues)
    ]


def _takes(node: NodeStatus) -> bool:
    return node.state not in SILENT and not node.drained


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
    return noted or GENERAL.get(alert.condition, "")


GENERAL = {
    "workers_missing": f"Events of the jobs queues wait and are not processed. {SAFE}",
    "workers_saturated": "Started workers wait for a slot; low-priority queues wait longest.",
    "pool_refuses": "The pool keeps its current processes, and the loop uses their number as its limit.",
    "pipeline_down": f"Events of the pipeline's queues wait; no complex events are detected. {SAFE}",
    "pipeline_stalled": f"Events of the application's queues wait; no complex events are detected. {SAFE}",
    "pipeline_lag": "Complex events are detected late, by the lag of the watermark.",
    "order_unreached": "The plant's loops take no action, and its operators keep their current tasks.",
    "shedding": "Shed events are lost. They are counted by type and pattern.",
    "observer_silent": "Pages show an outdated state of the plant. Loops take no action on old measurements.",
    "loops_stopped": f"No loop starts workers or moves points. Events wait. {SAFE}",
    "host_overloaded": f"Loops act late or not at all; pages may show old values. {SAFE}",
    "loop_stale": "The loop takes no action and keeps its last value. It resumes with a valid measurement.",
    "loop_silent": "The actuator of the loop keeps its last value.",
    "loop_held": "The loop does not change the actuator in this mode.",
    "loop_oscillation": "The actuator oscillates, which costs more than it gains.",
    "loop_saturated": "The loop can't act beyond its limit. Only the next remedy or a higher limit helps.",
    "loop_ineffective": "Actions of the loop do not change its measurement.",
    "loop_harmful": "Actions of the loop changed its measurement in the wrong direction.",
    "plan_failed": "Completed moves remain; the other moves were not started.",
    "run_failed": "The result of the task is missing; completed chunks remain.",
    "delivery_failing": "Users of this receiver get no notifications. Other receivers are not affected.",
    "budget_burn_fast": "At this rate, the error budget is used up long before its window ends.",
    "budget_burn_medium": "At this rate, the error budget is used up long before its window ends.",
    "budget_burn_slow": "At this rate, the error budget is used up before its window ends.",
    "budget_spent": "The target was missed. Loops no longer use this budget to shed or throttle.",
    "rate_unexpected": "Loops adapt to the rate, but limits and plans assume the usual rate.",
    "producer_silent": "The producer has no events, or its events do not reach the plant.",
    "throttled": "HTTP producers have to wait. They keep their events, so no events are lost.",
    "sensor_silent": "Loops that need the sensor take no action and keep their last value.",
    "consumer_lag": ("The group processes events late. Events that the topic's retention deletes first are lost."),
    "plant_silent": "The plant's loops take no action. The plant itself may still be running.",
    "workers_missed": "Tasks of these workers may wait until the broker redelivers them.",
    "queue_unserved": "Tasks in the queue wait and do not start.",
    "audit_altered": "The audit log can't be trusted until the cause is known.",
    "audit_unchecked": "Changes to the audit log are currently not detected.",
}
FIRST_STEPS = {
    "node_lost": "Check the node's host, server, and agent.",
    "node_toobusy": "Find the queue that overloads the node. Move points away, or drain the node.",
    "node_memory": "Check which events wait on the node. Move points away before the memory is full.",
    "queue_wait": "Check whether workers run and their services respond. Then raise the loop's limit.",
    "queue_latency": "Find the slow node, and check how long the handler takes per event.",
    "rate_unexpected": "Under Compare time ranges, find the producer or key that changed. Ask its owner.",
    "dead_letters": "Open a dead letter. Its error shows whether the event or the handler is at fault.",
    "producer_silent": (
        "Ask the producer's owner. Check whether the producer reaches the console or the control server."
    ),
    "workers_missing": "Start a worker host of role jobs, or return a drained host to service.",
    "pool_refuses": "Check the host's memory and process limit. Lower the loop's maximum.",
    "pipeline_down": "Read the pipeline's log. The pipeline resumes from its checkpoint when it starts.",
    "pipeline_stalled": "The alert names the stall reason. A stuck part is restarted automatically.",
    "pipeline_lag": "Check whether batches take longer than their interval.",
    "order_unreached": (
        "Find out whether another controller sets the tasks, or why the plant rejects changes. Then resume the loops."
    ),
    "observer_silent": "Start the observer (manage.py observe). Check whether the control server responds.",
    "loops_stopped": "Check whether Celery beat and the control worker run and the database responds.",
    "host_overloaded": ("Find the process that uses the CPU (top), and stop or move it. Weir recovers automatically."),
    "loop_saturated": "Check whether the limit is still right. An override raises it temporarily.",
    "loop_oscillation": "Put the loop on hold. Then reduce its gain, or increase its cool-down.",
    "loop_ineffective": "Find the real limit of the target: the node, the handler, or the worker slots.",
    "loop_harmful": "Put the loop on hold, and check its recent decisions.",
    "loop_stale": "Check whether the node and its agent report.",
    "delivery_failing": "Test the receiver, and read its last error.",
    "budget_burn_fast": ("Open the objective to see when it was missed, by which subjects, and during which alerts."),
    "budget_burn_medium": ("Open the objective to see when it was missed, by which subjects, and during which alerts."),
    "budget_burn_slow": "Open the objective, and find the errors that burn the budget every day.",
    "budget_spent": "Find the errors that used up the budget. Fix their cause, or lower the target.",
    "run_failed": "Read the run's error. Fix the cause, then resume the run.",
    "plan_failed": "Read the plan's note. Fix the cause, then propose the plan again.",
    "throttled": (
        "On the queue's page, find the cheaper remedy that is on hold or at its limit. "
        "End the hold, or raise the limit."
    ),
    "shedding": "On the shedding loop's page, find the bottleneck, and give that operator more capacity.",
    "sensor_silent": "Read the source's error in the alert. Run the same query manually.",
    "consumer_lag": (
        "Check on the plant's page whether the group has members, and whether only one partition is late."
    ),
    "plant_silent": "Check the plant's address from another host. If it changed, update it under Plants.",
    "workers_missed": "Restart the workers on their host. The plant's page lists them.",
    "queue_unserved": "Start a worker for this queue, or check the queue name in the code that sends tasks.",
    "loop_silent": "Read the loop's last entry. Search the log of the control worker for its name.",
    "loop_held": "Set the mode to auto when the reason no longer applies.",
    "override_ending": "Extend the override if its reason still applies.",
    "workers_saturated": "Check whether queues fall behind. If not, no action is needed.",
    "audit_altered": "Run manage.py audit verify on the host to list the altered entries.",
    "audit_unchecked": "Check whether the alerter runs and the database responds.",
}
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
    step = own or FIRST_STEPS.get(condition, "")
    return f"{step} {POINTS_MOVE}" if condition == "node_lost" and points else step
