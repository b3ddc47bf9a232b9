"""All states of a snapshot, from the states of the previous second. This is pure, so it can be repeated.

The thresholds of BUSY and TOOBUSY are the node's own, since its laws act on them (`queues.nodes.node_state`); an alert
on the same load may have others. The alert rules on a node's load define the severity of "too busy".
"""

from collections.abc import Collection, Iterator, Mapping

from controllers.framework.reason import are, capitalize, format_count, format_names, format_percent
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, OVERLOADED, TOOBUSY
from queues.pausing import CONSUMPTION
from workers.alerts.conditions.condition import describe_loop
from workers.alerts.conditions.evidence import STALE
from workers.alerts.evaluation.impact import describe_first_step, join_names, list_receiving_nodes
from workers.documents.hosts import describe_capability_remedy, explain_missing_capabilities, parse_role
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, SubjectState
from workers.snapshot.judgement import SHIPPED, Fault, Limits, WatchedSnapshot, clock_fault
from workers.snapshot.pipeline_state import iterate_pipeline_states
from workers.steering import scope
from workers.steering.scope import find_pause, is_emptied, pause_in_words

GONE_SECONDS = 300.0  # a host that stopped reporting is listed for this time, then counts as having left
LOOP_WORDS: Mapping[str, str] = {"hold": "On hold", "manual": "Manual", "advise": "Advise only", "auto": "Automatic"}
NODE_WORDS: Mapping[str, str] = {IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline"}
FILLS_SECONDS = 30.0  # of arrivals: a larger backlog is more than a consumer takes at once
NOTHING_BEFORE: Mapping[str, SubjectState] = {}
NOTHING_UNREADABLE: Mapping[str, str] = {}


def iterate_host_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    """Return the states of hosts that report or reported until recently.

    A worker that is stopped reports its end: its host is not listed any more.
    """
    hosts = watched.snapshot.hosts
    for name, host in hosts.items():
        trouble = host.trouble or ""
        sentence = f"The pool of {name} differs from its setting: {trouble.rstrip('.')}."
        faults = watched.find_faults("host", name, "pool_refuses", 1.0 if trouble else 0.0, sentence)
        yield watched.get_state("host", name, [*faults, *clock_fault(name, host.ahead_seconds or 0.0)])
    for name, reason in watched.unreadable.items():
        fault = Fault(
            "warning",
            f"The report of worker host {name} can't be read ({reason}).",
            "Run the host with the same version of Weir as the console.",
        )
        yield watched.get_state("host", name, [fault], sign=OFFLINE, word="Unreadable", stale=True)
    for before in watched.before.values():
        name = before.name
        is_shown = name in hosts or name in watched.unreadable
        if before.kind != "host" or is_shown or (watched.listed is not None and name not in watched.listed):
            continue
        role = parse_role(name)
        step = describe_first_step("workers_missing") if role == "jobs" else f"Start a worker host of role {role}."
        fault = Fault("warning", f"Worker host {name} has stopped reporting.", step)
        state = watched.get_state("host", name, [fault], sign=OFFLINE, word="Not reporting", stale=True)
        if watched.at - (state.since or watched.at) <= GONE_SECONDS:
            yield state


def _iterate_loop_faults(watched: WatchedSnapshot, name: str, loop: LoopStatus) -> Iterator[Fault]:
    labels = {"loop": name, **loop.target}
    if loop.at is None or not loop.interval_seconds:
        return
    # The absolute difference: a clock set back must not make a loop seem busy for that time.
    late = abs(watched.at - loop.at)
    silent = f"{describe_loop(name)} has made no decision for {late:.0f} s."
    faults = watched.find_faults("loop", name, "loop_silent", late / loop.interval_seconds, silent, labels)
    yield from faults
    if loop.blind_since is not None and not faults:
        seconds = max(0.0, loop.at - loop.blind_since) if loop.limited_by == STALE else 0.0
        blind = f"{describe_loop(name)} has had no valid measurement for {seconds:.0f} s."
        yield from watched.find_faults("loop", name, "loop_stale", seconds, blind, labels)


def _iterate_node_faults(watched: WatchedSnapshot, name: str, node: NodeStatus) -> Iterator[Fault]:
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
        labels = {"node": name}
        severity = watched.limits.find_highest_severity("node_toobusy", labels, "critical")
        if node.state == BUSY:
            severity = min(severity, "warning", key=SEVERITIES.index)
        percent = 100 * (node.utilisation or 0.0)
        limits = [] if node.stale else watched.list_exceeded("node", name, "node_toobusy", percent, labels)
        sentence = f"Node {name} is {NODE_WORDS[node.state].lower()}: {percent:.0f} % of its capacity."
        yield Fault(severity, sentence, describe_first_step("node_toobusy"), tuple(limit.rule for limit in limits))
    if not node.stale:
        yield from clock_fault(f"node {name}", node.ahead_seconds or 0.0)
    used, capacity = node.memory_bytes, node.memory_capacity_bytes
    if used is not None and capacity and not node.stale:
        share = 100 * used / capacity
        sentence = f"Node {name} uses {share:.0f} % of its memory."
        yield from watched.find_faults("node", name, "node_memory", share, sentence)


def _build_silence_fault(watched: WatchedSnapshot, name: str, node: NodeStatus) -> Fault:
    age = node.age_seconds
    silent = f"has not reported for {age:.0f} s" if age is not None else "is not reporting"
    if is_emptied(name, watched.snapshot):
        return Fault("notice", f"Node {name} is drained and empty, and {silent}.")
    held = "it has no points; its waiting events are processed when it returns"
    if node.points:
        verb = "is" if node.points == 1 else "are"
        serving = list_receiving_nodes(watched.snapshot, name)
        served = f"served by {join_names(serving)}" if serving else "not served by any node"
        held = f"its {format_count(node.points, 'point')} {verb} {served}"
    rules = watched.list_exceeded("node", name, "node_lost", age, {"node": name})
    step = describe_first_step("node_lost", points=node.points or 0)
    return Fault("critical", f"Node {name} {silent}; {held}.", step, tuple(rule.rule for rule in rules))


def _iterate_queue_faults(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> Iterator[Fault]:
    dead = queue.dead_letters
    said = f"Queue {name} falls behind: {_measure_wait(queue)}"
    applications = watched.snapshot.pipeline.applications.items()
    readers = {reader: row.state for reader, row in applications if name in row.queues}
    if set(readers.values()) == {"stopped"}:
        names = list(readers)
        said += f"; its application{'s' if len(names) > 1 else ''} {format_names(names)} {are(names)} stopped"
    behind = watched.find_faults("queue", name, "queue_wait", queue.wait_seconds, f"{said}.")
    latency = queue.latency_p95_seconds
    if latency is None:  # without completions there is no latency
        value, said = (None if queue.waiting_events else 0.0), "latency unknown"
    else:
        value, said = latency, f"p95 latency {latency:,.0f} s"
    slow = watched.find_faults("queue", name, "queue_latency", value, f"Queue {name} is slow: {said}.")
    late = [*behind, *slow]
    pause = find_pause(name, CONSUMPTION, watched.snapshot)
    if pause is None:
        yield from late
    elif late:
        # A person has paused it: that it stands still is no fault and needs no remedy.
        rules = tuple(rule for fault in late for rule in fault.rules)
        yield Fault("notice", f"{pause_in_words(name, pause)} {capitalize(_measure_wait(queue))}.", rules=rules)
    held = f"Queue {name} has {format_count(dead or 0, 'dead letter')}."
    yield from watched.find_faults("queue", name, "dead_letters", dead, held)
    missing = scope.list_missing_capabilities(name, watched.snapshot)
    if missing:
        sentence = f"Queue {name} has no workers: {explain_missing_capabilities(missing, 'jobs')}."
        yield Fault("critical", sentence, f"{describe_capability_remedy(missing, 'jobs')} from the queue.")
    if queue.trouble:
        yield Fault("warning", f"Queue {name}: a worker ended early ({queue.trouble.rstrip('.')}).")
    # Such a queue does not keep up: arrivals exceed output, and the backlog exceeds recent arrivals.
    waiting, arrivals = queue.waiting_events or 0, queue.in_per_second or 0.0
    rises = queue.trend == "rising" and waiting > arrivals
    if not behind and (rises or waiting > FILLS_SECONDS * max(arrivals, 1.0)):
        yield Fault("notice", f"Queue {name} is filling: {format_count(queue.waiting_events or 0, 'event')} waiting.")


def _measure_wait(queue: QueueStatus) -> str:
    if queue.wait_seconds is None:
        return "the wait of its oldest event is unknown"
    return f"its oldest event has waited {queue.wait_seconds:,.0f} s"


def evaluate_states(
    snapshot: Snapshot,
    before: Mapping[str, SubjectState] = NOTHING_BEFORE,
    limits: Limits = SHIPPED,
    listed: Collection[str] | None = None,
    unreadable: Mapping[str, str] = NOTHING_UNREADABLE,
) -> dict[str, SubjectState]:
    """Return the states by "kind/name".

    Between the two thresholds of a rule, a state stays as it was in `before`. listed: as in `WatchedSnapshot`.
    """
    watched = WatchedSnapshot(snapshot, before, limits, snapshot.at or 0.0, listed, unreadable)
    return {f"{state.kind}/{state.name}": state for state in _iterate_states(watched)}


def get_states(snapshot: Snapshot) -> Mapping[str, SubjectState]:
    """Return the published states of a snapshot.

    For an archived one without states, they are evaluated without a past.
    """
    return snapshot.states or evaluate_states(snapshot)


def _iterate_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    snapshot = watched.snapshot
    yield from _iterate_plant_states(watched)
    for name, node in snapshot.nodes.items():
        yield watched.get_state(
            "node",
            name,
            list(_iterate_node_faults(watched, name, node)),
            sign=node.state or OFFLINE,
            word="Unreadable" if node.unreadable is not None else NODE_WORDS.get(node.state or "", "Never reported"),
            stale=node.stale,
        )
    for name, queue in snapshot.queues.items():
        known = queue.waiting_events == 0 or None not in (queue.waiting_events, queue.wait_seconds)
        yield watched.get_state("queue", name, list(_iterate_queue_faults(watched, name, queue)), known=known)
    yield from iterate_pipeline_states(watched)
    yield from iterate_host_states(watched)
    for name, loop in snapshot.loops.items():
        word = LOOP_WORDS.get(loop.mode, loop.mode)
        yield watched.get_state("loop", name, list(_iterate_loop_faults(watched, name, loop)), word=word)


def _iterate_plant_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    """Return the states of the whole plant."""
    snapshot = watched.snapshot
    if not snapshot.nodes:
        fault = Fault("critical", "No node is configured yet.")
        yield watched.get_state("plant", "nodes", [fault], sign=OFFLINE)
    slots = snapshot.totals.worker_slots
    if any(queue.kind == "jobs" for queue in snapshot.queues.values()) and slots is not None:
        missing = f"No workers process events of the jobs queues: {scope.explain_no_slots(snapshot)}."
        yield watched.get_state(
            "plant", "workers", watched.find_faults("plant", "workers", "workers_missing", slots, missing, {})
        )
    share = snapshot.totals.shed_share
    if share is not None:
        lost = f"Events are shed: {format_percent(share, 2)} of the events that patterns could use."
        faults = watched.find_faults("plant", "shedding", "shedding", 100 * share, lost, {})
        yield watched.get_state("plant", "shedding", faults)
