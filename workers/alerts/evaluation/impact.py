"""What an alert means for the events, and what to do first, in plain words."""

from collections.abc import Mapping
from typing import Any

from queues.nodes.node_state import OFFLINE, SILENT
from queues.waiting import WORTH_A_LOOK_SECONDS
from workers.alerts.lifecycle.models import Alert

SAFE = "Nothing acknowledged is lost."


class Impacts:
    """What alerts mean on one snapshot: a sentence or three on who is touched."""

    def __init__(self, snapshot: Mapping[str, Any]) -> None:
        self._queues, self._nodes = snapshot["queues"], snapshot["nodes"]
        waits = {name: row["wait_seconds"] or 0 for name, row in self._queues.items()}
        self._behind = [name for name, seconds in waits.items() if seconds > WORTH_A_LOOK_SECONDS]

    def of(self, alert: Alert) -> str:
        if "node" in alert.labels and alert.condition.startswith("node_"):
            return self._of_node(alert.labels["node"])
        if "queue" in alert.labels and alert.condition not in GENERAL:
            return self._of_queue(alert.labels["queue"], alert.condition)
        return GENERAL.get(alert.condition, "")

    def _of_node(self, name: str) -> str:
        node = self._nodes.get(name)
        if node is None:
            return "The node is no longer part of the plant."
        queues = [queue for queue, row in self._queues.items() if _container(row, name).get("points")]
        held = f"It holds {node['points']:,} points of {_list(queues)}." if queues else "It holds no points."
        if node.get("state") != OFFLINE:
            return f"{held} What waits there waits longer. {SAFE}"
        waiting = sum(_container(row, name).get("waiting_events") or 0 for row in self._queues.values())
        left = f" {waiting:,} events wait there until it returns." if waiting else ""
        return f"{held} {self._served(name)}.{left} {SAFE}"

    def _served(self, lost: str) -> str:
        others = [name for name, row in self._nodes.items() if name != lost and _serves(row)]
        if not others:
            return "No other node takes its new events"
        return f"{_list(others)} take{'s' if len(others) == 1 else ''} new events"

    def _of_queue(self, name: str, condition: str) -> str:
        queue = self._queues.get(name)
        if queue is None:
            return "The queue is no longer part of the plant."
        if condition == "dead_letters":
            dead = queue["dead_letters"] or 0
            return (
                f"{dead:,} events of {name} have no effect until a person fixes, requeues or discards them."
            )
        waits = queue["wait_seconds"]
        said = "" if waits is None else f"Events of {name} take effect {waits:,.0f} s late. "
        others = [other for other in self._behind if other != name]
        verb = "waits" if len(others) == 1 else "wait"
        rest = f"{_list(others)} {verb} too." if others else "The other queues keep up."
        return f"{said}{rest} {SAFE}"


def _container(queue: Mapping[str, Any], node: str) -> Mapping[str, Any]:
    containers: Mapping[str, Mapping[str, Any]] = queue["containers"]
    return containers.get(node, {})


def _serves(node: Mapping[str, Any]) -> bool:
    return node["state"] not in SILENT and not node["drained"] and bool(node["points"])


MOST_NAMES = 4


def _list(names: list[str]) -> str:
    shown = names[:MOST_NAMES]
    if len(names) > MOST_NAMES:
        shown = [*shown[:-1], f"{len(names) - MOST_NAMES + 1} others"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)


GENERAL = {
    "workers_missing": f"Nothing of the jobs queues is handled; what comes waits. {SAFE}",
    "workers_saturated": "Workers that are asked for wait for a slot; queues of low priority wait longest.",
    "pool_refuses": "It works with the processes it has; its loop takes that for its limit for now.",
    "pipeline_down": f"Events of the pipeline's queues wait; no complex event is found meanwhile. {SAFE}",
    "pipeline_stalled": f"Events of its queues wait; no complex event is found meanwhile. {SAFE}",
    "pipeline_lag": "Complex events are found late by so much.",
    "shedding": "Events are dropped on purpose, and counted by type and pattern; those are lost.",
    "observer_silent": "Pages show the plant as it was; loops hold still: they act on no old measurement.",
    "loops_stopped": "Nobody starts workers or moves points. What comes waits; nothing acknowledged is lost.",
    "loop_stale": "The loop holds its last value; it acts again by itself on a fresh measurement.",
    "loop_silent": "What it steers stays as it is.",
    "loop_held": "Nobody steers its actuator but a person; it goes back by itself.",
    "loop_oscillation": "Its actuator swings; that costs more than it brings.",
    "loop_saturated": "It can do no more: the next remedy, or a higher limit, has to help.",
    "loop_ineffective": "What it does has no effect on what it measures.",
    "loop_harmful": "What it did made its measurement worse.",
    "override_ending": "The loop's own value takes over then.",
    "plan_failed": "What had moved stays moved; the rest was not begun.",
    "run_failed": "What the task makes is not made; its chunks that were done stay done.",
    "delivery_failing": "Who is told by this receiver hears nothing; others are told as always.",
    "producer_silent": "Either nothing happens at its source, or its events do not reach the plant.",
}
FIRST_STEPS = {
    "node_lost": "See whether its host and its agent run. Its points are restored on others after 10 s.",
    "node_toobusy": "See which queue loads it; balance its points, or drain it.",
    "node_memory": "See what waits there and why; give its points to others before it is full.",
    "queue_wait": "See whether workers run, and whether what they call answers. Then raise the loop's limit.",
    "queue_latency": "See which node is slow, and how long one event takes the handler.",
    "dead_letters": "Look at one: the error says whether the event or the handler is at fault.",
    "producer_silent": "Ask its owner; see whether it reaches the console or the control server.",
    "workers_missing": "Start a worker host of role jobs.",
    "pool_refuses": "See the host's memory and its limit of processes; lower the loop's maximum.",
    "pipeline_down": "Look at the pipeline's log; it goes on from its checkpoint when it starts.",
    "pipeline_stalled": "The sentence says what is waited for; what is stuck is started again by itself.",
    "pipeline_lag": "See whether batches take longer than their interval.",
    "observer_silent": "Start the observer (manage.py observe); see whether the control server answers.",
    "loops_stopped": "See whether beat and the worker of role control run.",
    "loop_saturated": "See whether the limit still fits; an override raises it for a time.",
    "loop_oscillation": "Put the loop on hold, then widen its slew or its window.",
    "loop_ineffective": "See what else limits the target: the node, the handler, the slots.",
    "loop_harmful": "Put the loop on hold, and look at the decision.",
    "loop_stale": "See whether the node and its agent report.",
    "delivery_failing": "Test the receiver, and read its last error.",
    "run_failed": "Read the run's error; resume it when the cause is gone.",
    "plan_failed": "Read the plan's note; propose it again when the cause is gone.",
}
