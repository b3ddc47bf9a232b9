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
from workers.steering.stopped import find_pause

BAD = ("warning", "critical")
SAFE = "Nothing acknowledged is lost."
BURN = "budget_burn_"  # before the name of a pair of windows


class Impacts:
    """The impact of alerts on one snapshot: up to three sentences on what is affected."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._queues, self._nodes = snapshot, snapshot.queues, snapshot.nodes
        self._paused = [name for name in self._queues if find_pause(name, CONSUMPTION, snapshot)]
        states = snapshot.states.values()
        self._behind = [state.name for state in states if falls_behind(state)]

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
        lasts = _length(24 * objective.window_days / rate)
        return f"At this rate the whole error budget of {objective.window_days:g} days lasts {lasts}."

    def _describe_node(self, name: str) -> str:
        node = self._nodes.get(name)
        if node is None:
            return "The node is no longer part of the plant."
        queues = [queue for queue, row in self._queues.items() if _container(row, name).points]
        held = "It has no points, so no new events go to it."
        if queues:
            held = f"It has {format_count(node.points or 0, 'point')} of {join_names(queues)}."
        if node.state != OFFLINE:
            return f"{held} Its events wait longer. {SAFE}"
        waiting = sum(_container(row, name).waiting_events or 0 for row in self._queues.values())
        verb = "waits" if waiting == 1 else "wait"
        left = f" {format_count(waiting, 'event')} {verb} there until it returns." if waiting else ""
        served = f" {self._list_served_applications(name)}." if queues else ""
        return f"{held}{served}{left} {SAFE}"

    def _list_served_applications(self, lost: str) -> str:
        others = takers(self._snapshot, lost)
        if not others:
            return "No other node takes its new events"
        return f"{join_names(others)} take{'s' if len(others) == 1 else ''} new events"

    def _describe_queue(self, name: str, condition: str, with_others: bool) -> str:
        queue = self._queues.get(name)
        if queue is None:
            return "The queue is no longer part of the plant."
        if condition == "dead_letters":
            dead = queue.dead_letters or 0
            verb, them = ("has", "it") if dead == 1 else ("have", "them")
            said = f"{format_count(dead, 'event')} of {name} {verb} no effect"
            return f"{said} until a person requeues or discards {them}."
        slow = condition == "queue_latency"
        waits = queue.latency_p95_seconds if slow else queue.wait_seconds
        whose = f"5 % of the events of {name}" if slow else f"Events of {name}"
        said = "" if waits is None else f"{whose} take effect {waits:,.0f} s late. "
        return f"{said}{self._others(name) if with_others else ''}{SAFE}"

    def _others(self, name: str) -> str:
        """Describe the other queues; "" if there are none."""
        others = [queue for queue in self._queues if queue != name]
        behind = [queue for queue in self._behind if queue != name]
        if behind:
            return f"{join_names(behind)} {'waits' if len(behind) == 1 else 'wait'} too. "
        stopped = [queue for queue in self._paused if queue != name]
        if stopped:
            verb = "is" if len(stopped) == 1 else "are"
            rest = "; the others keep up" if len(stopped) < len(others) else ""
            return f"{join_names(stopped)} {verb} paused{rest}. "
        return "The other queues keep up. " if others else ""


def falls_behind(state: SubjectState) -> bool:
    """Return whether a queue falls behind; one that only has dead letters waits for a person."""
    return state.kind == "queue" and state.severity in BAD and "falls behind" in state.finding


def _length(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:.1f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{60 * hours:.0f} min"


def _container(queue: QueueStatus, node: str) -> ContainerStatus:
    return queue.containers.get(node, ContainerStatus())


def takers(snapshot: Snapshot, lost: str) -> list[str]:
    """Return the nodes that take new events of a lost node's queues: those with points of them."""
    queues = [row for row in snapshot.queues.values() if _container(row, lost).points]
    return [
        name
        for name, node in snapshot.nodes.items()
        if name != lost and _takes(node) and any(_container(row, name).points for row in queues)
    ]


def _takes(node: NodeStatus) -> bool:
    return node.state not in SILENT and not node.drained


MAX_NAMES = 4


def join_names(names: Sequence[str]) -> str:
    """Return a, b and c; of many, only some are named."""
    shown = names[:MAX_NAMES]
    if len(names) > MAX_NAMES:
        shown = [*shown[:-1], f"{len(names) - MAX_NAMES + 1} others"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


def read_recorded_impact(alert: Alert) -> str:
    """Return what was affected, as the evaluator recorded it: now, or at its worst if the alert is over."""
    noted = alert.impact if alert.resolved_at is None else alert.worst_impact or alert.impact
    return noted or GENERAL.get(alert.condition, "")


GENERAL = {
    "workers_missing": f"Events of the jobs queues wait; none is handled. {SAFE}",
    "workers_saturated": "Started workers wait for a slot; queues of low priority wait longest.",
    "pool_refuses": "The pool continues with its present processes; its loop uses their number as its limit.",
    "pipeline_down": f"Events of the pipeline's queues wait; no complex event is detected. {SAFE}",
    "pipeline_stalled": f"Events of its queues wait; no complex event is detected. {SAFE}",
    "pipeline_lag": "Complex events are detected late, by the lag of the watermark.",
    "order_unreached": "Loops of the plant hold; its operators keep the tasks that they have.",
    "shedding": "Shed events are dropped on purpose, counted by type and pattern, and lost.",
    "observer_silent": "Pages show an old state of the plant. Loops take no action on old measurements.",
    "loops_stopped": f"No loop starts workers or moves points. Events wait. {SAFE}",
    "host_overloaded": f"Loops act late or not at all; pages may show old values. {SAFE}",
    "loop_stale": "The loop takes no action and keeps its last value. It resumes with a valid measurement.",
    "loop_silent": "The actuator of the loop keeps its last value.",
    "loop_held": "Only a person changes the actuator while the mode lasts.",
    "loop_oscillation": "The actuator swings up and down, which costs more than it gains.",
    "loop_saturated": "The loop has reached its limit. The next remedy or a higher limit has to help.",
    "loop_ineffective": "Actions of the loop do not change its measurement.",
    "loop_harmful": "Actions of the loop changed its measurement in the wrong direction.",
    "plan_failed": "Completed moves remain; the others were not started.",
    "run_failed": "The result of the task is missing; completed chunks remain.",
    "delivery_failing": "People behind this receiver get no notification; other receivers do.",
    "budget_burn_fast": "At this rate the error budget is used up long before its window ends.",
    "budget_burn_medium": "At this rate the error budget is used up long before its window ends.",
    "budget_burn_slow": "At this rate the error budget is used up before its window ends.",
    "budget_spent": "The target was missed. Loops no longer shed or throttle on this budget.",
    "rate_unexpected": "Loops follow the arrivals; limits and plans were made for the usual rate.",
    "producer_silent": "Either its source has no events, or they do not reach the plant.",
    "throttled": "Producers over HTTP are asked to wait. Their events stay with them; none is lost.",
    "sensor_silent": "Loops that need the sensor take no action and keep their last value.",
    "consumer_lag": (
        "Events of the group take effect late. Events that the topic's retention deletes before are lost."
    ),
    "plant_silent": "Its loops take no action. Whether the plant itself runs is unknown.",
    "workers_missed": "Tasks that they had taken may wait until the broker delivers them to others.",
    "queue_unserved": "Its tasks wait; none is started.",
    "audit_altered": "The audit log can't be trusted until the cause is known.",
    "audit_unchecked": "If the audit log were altered now, nobody would notice.",
}
FIRST_STEPS = {
    "node_lost": "Check its host, server, and agent.",
    "node_toobusy": "Find the queue that loads it. Move points away, or drain the node.",
    "node_memory": "Find out what waits there, and why. Move points away before the memory is full.",
    "queue_wait": "Check whether workers run and their services answer. Then raise the loop's limit.",
    "queue_latency": "Find the slow node, and how long the handler takes per event.",
    "rate_unexpected": "See which producer or key differs (What is different), and ask its owner.",
    "dead_letters": "Open one: its error shows whether the event or the handler is at fault.",
    "producer_silent": "Ask its owner. Check whether it reaches the console or the control server.",
    "workers_missing": "Start a worker host of role jobs, or end the drain of one.",
    "pool_refuses": "Check the host's memory and its limit of processes. Lower the loop's maximum.",
    "pipeline_down": "Read the pipeline's log. It resumes from its checkpoint when it starts.",
    "pipeline_stalled": "The alert names the stall reason. A stuck part is restarted automatically.",
    "pipeline_lag": "Check whether batches take longer than their interval.",
    "order_unreached": "Find the other controller, or why the plant refuses. Then resume the loops.",
    "observer_silent": "Start the observer (manage.py observe). Check whether the control server answers.",
    "loops_stopped": "Check whether beat and the worker of role control run and the database answers.",
    "host_overloaded": (
        "Find the process that uses the CPU (top), and stop or move it. Weir recovers automatically."
    ),
    "loop_saturated": "Check whether the limit is still right. An override raises it temporarily.",
    "loop_oscillation": "Put the loop on hold. Then widen its slew or its window.",
    "loop_ineffective": "Find what else limits the target: the node, the handler, the slots.",
    "loop_harmful": "Put the loop on hold, and read the decision.",
    "loop_stale": "Check whether the node and its agent report.",
    "delivery_failing": "Test the receiver, and read its last error.",
    "budget_burn_fast": "Open the objective: it shows when, at which subject, and during which alerts.",
    "budget_burn_medium": "Open the objective: it shows when, at which subject, and during which alerts.",
    "budget_burn_slow": "Open the objective, and find what burns the budget a little each day.",
    "budget_spent": "Find what used it up. Then improve that, or lower the target.",
    "run_failed": "Read the run's error. Resume the run when the cause is gone.",
    "plan_failed": "Read the plan's note. Propose it again when the cause is gone.",
    "throttled": "On the queue's page, find the cheaper remedy that is held or at its limit, and release it.",
    "shedding": "On the shedding loop's page, find the bottleneck, and give that operator more capacity.",
    "sensor_silent": "The alert quotes the source. Run the same query manually.",
    "consumer_lag": (
        "Check on the plant's page whether the group has members, and whether only one partition is late."
    ),
    "plant_silent": "Check its address from another host. If it has moved, change it under Plants.",
    "workers_missed": "Restart them on their host. The plant's page lists them with the time.",
    "queue_unserved": "Start a worker with this queue, or check the queue's name where tasks are sent.",
    "loop_silent": "Read the loop's last entry. Search the log of the control worker for its name.",
    "loop_held": "Let it act again when the reason is gone.",
    "override_ending": "Extend it if its reason still applies.",
    "workers_saturated": "Check whether queues fall behind. If none does, nothing is wrong.",
    "audit_altered": "Run manage.py audit verify on the host: it names the entries.",
    "audit_unchecked": "Check whether the alerter runs, and whether the database answers.",
}
POINTS_MOVE = "Its points move to other nodes automatically after 10 s, as long as the loops decide."
STEPS_OF_PIPELINE = {
    "queue_wait": "Check under Pipeline whether the application that reads it runs and keeps up.",
    "queue_latency": "Check under Pipeline which operator is slow, and how long its batches take.",
}


def first_step(condition: str, consumers: str = "", points: int = 0) -> str:
    """Return the first step to take.

    `consumers`: the consumers of the queue that it is about, jobs or pipeline. `points`: the points of the
    node that it is about, which has none once they were moved.
    """
    own = STEPS_OF_PIPELINE.get(condition) if consumers == "pipeline" else None
    step = own or FIRST_STEPS.get(condition, "")
    return f"{step} {POINTS_MOVE}" if condition == "node_lost" and points else step
