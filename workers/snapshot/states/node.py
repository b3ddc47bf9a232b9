"""The state of a node: what its agent reports, and whether the agent is heard.

The thresholds of BUSY and TOOBUSY are the node's own, since its laws act on them (`queues.nodes.node_state`); an alert
on the same load may have others. The alert rules on a node's load define the severity of "too busy".
"""

from collections.abc import Iterator, Mapping

from controllers.framework.reason import format_count
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, OVERLOADED, TOOBUSY
from workers.alerts.evaluation.impact import describe_first_step, join_names, list_receiving_nodes
from workers.documents.nodes import NodeStatus
from workers.documents.states import SEVERITIES, SubjectState
from workers.snapshot.states.clock import clock_fault
from workers.snapshot.states.judgement import Fault, WatchedSnapshot
from workers.steering.scope import is_emptied

WORDS: Mapping[str, str] = {IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline"}


def build_node_state(watched: WatchedSnapshot, name: str, node: NodeStatus) -> SubjectState:
    """Return the state of one node."""
    return watched.get_state(
        "node",
        name,
        list(_iterate_faults(watched, name, node)),
        sign=node.state or OFFLINE,
        word="Unreadable" if node.unreadable is not None else WORDS.get(node.state or "", "Never reported"),
        stale=node.stale,
    )


def _iterate_faults(watched: WatchedSnapshot, name: str, node: NodeStatus) -> Iterator[Fault]:
    if node.unreadable is not None:
        yield Fault(
            "critical",
            f"The heartbeat of node {name} can't be read ({node.unreadable}); its points stay on it.",
            "Run its agent with the same version of Weir as the console.",
        )
        return
    if node.state is None:
        yield Fault(
            "critical",
            f"Node {name} has never reported; start its agent.",
            "Start its agent: python -m queues.nodes.agent.",
        )
        return
    if node.state == OFFLINE:
        yield _build_silence_fault(watched, name, node)
        return
    if node.state in OVERLOADED:
        yield _find_overload(watched, name, node)
    if not node.stale:
        yield from clock_fault(f"node {name}", node.ahead_seconds or 0.0)
    used, capacity = node.memory_bytes, node.memory_capacity_bytes
    if used is not None and capacity and not node.stale:
        share = 100 * used / capacity
        sentence = f"Node {name} uses {share:.0f} % of its memory."
        yield from watched.find_faults("node", name, "node_memory", share, sentence)


def _find_overload(watched: WatchedSnapshot, name: str, node: NodeStatus) -> Fault:
    labels = {"node": name}
    severity = watched.limits.find_highest_severity("node_toobusy", labels, "critical")
    if node.state == BUSY:
        severity = min(severity, "warning", key=SEVERITIES.index)
    percent = 100 * (node.utilisation or 0.0)
    rules = [] if node.stale else watched.list_exceeded("node", name, "node_toobusy", percent, labels)
    sentence = f"Node {name} is {WORDS[node.state or BUSY].lower()}: {percent:.0f} % of its capacity."
    return Fault(severity, sentence, describe_first_step("node_toobusy"), tuple(rule.rule for rule in rules))


def _build_silence_fault(watched: WatchedSnapshot, name: str, node: NodeStatus) -> Fault:
    age = node.age_seconds
    silent = f"has not reported for {age:.0f} s" if age is not None else "is not reporting"
    if is_emptied(name, watched.snapshot):
        return Fault("notice", f"Node {name} is drained and empty, and {silent}.")
    held = "it has no points; its waiting events are processed when it returns"
    if node.points:
        verb = "is" if node.points == 1 else "are"
        held = f"its {format_count(node.points, 'point')} {verb} {_list_served_applications(watched, name)}"
    rules = watched.list_exceeded("node", name, "node_lost", age, {"node": name})
    step = describe_first_step("node_lost", points=node.points or 0)
    return Fault("critical", f"Node {name} {silent}; {held}.", step, tuple(rule.rule for rule in rules))


def _list_served_applications(watched: WatchedSnapshot, lost: str) -> str:
    serving = list_receiving_nodes(watched.snapshot, lost)
    return f"served by {join_names(serving)}" if serving else "not served by any node"
