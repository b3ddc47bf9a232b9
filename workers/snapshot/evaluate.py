"""All states of a snapshot, from the states of the previous second. This is pure, so it can be repeated.

The thresholds of BUSY and TOOBUSY are the node's own, since its laws act on them (`queues.nodes.node_state`); an alert
on the same load may have others. The alert rules on a node's load define the severity of "too busy".
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from controllers.framework.reason import format_count, format_percent
from queues.nodes.node_state import BUSY, IDLE, NORMAL, OFFLINE, OVERLOADED, TOOBUSY
from queues.pausing import CONSUMPTION
from workers.alerts.conditions.condition import describe_loop
from workers.alerts.conditions.evidence import STALE
from workers.alerts.evaluation.impact import describe_first_step, describe_node_impact
from workers.documents.hosts import describe_capability_remedy, explain_missing_capabilities, parse_role
from workers.documents.loops import LoopStatus
from workers.documents.nodes import NodeStatus
from workers.documents.parts import CONTROL, find_settling
from workers.documents.queues import QueueStatus
from workers.documents.snapshot import Snapshot
from workers.documents.states import SEVERITIES, SubjectState
from workers.snapshot.causes import explain_causes
from workers.snapshot.destinations import describe_failing, describe_failures, describe_waiting_plans, is_failing
from workers.snapshot.judgement import SHIPPED, Fault, Limits, WatchedSnapshot, clock_fault
from workers.snapshot.pipeline_state import iterate_pipeline_states
from workers.snapshot.scene import (
    BEHIND,
    DEAD_LETTERS,
    FILLING,
    PAUSED,
    SLOW,
    describe_backlog,
    format_since,
    format_waiting,
    is_filling,
    join_sentences,
)
from workers.snapshot.suggestions import format_seconds
from workers.steering import scope
from workers.steering.scope import find_pause, is_emptied

GONE_SECONDS = 300.0  # a host that stopped reporting is listed for this time, then counts as having left
LOOP_WORDS: Mapping[str, str] = {"hold": "On hold", "manual": "Manual", "advise": "Advise only", "auto": "Automatic"}
NODE_WORDS: Mapping[str, str] = {IDLE: "Idle", NORMAL: "Normal", BUSY: "Busy", TOOBUSY: "Too busy", OFFLINE: "Offline"}
MIN_SILENT_SECONDS = 15.0
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
    if find_settling(watched.snapshot.parts, [CONTROL]) is not None:
        return  # The control worker has just started, and its loops have not all ticked yet.
    # The absolute difference: a clock set back must not make a loop seem busy for that time.
    late = abs(watched.at - loop.at)
    faults = []
    if late >= MIN_SILENT_SECONDS:  # A control worker that restarts is back earlier.
        silent = f"{describe_loop(name)} has stopped."
        ago = f"Its last decision was {late:,.0f} s ago."
        intervals = late / loop.interval_seconds
        faults = watched.find_faults("loop", name, "loop_silent", intervals, silent, labels, impact=ago)
    yield from faults
    if loop.blind_since is not None and not faults:
        seconds = max(0.0, loop.at - loop.blind_since) if loop.limited_by == STALE else 0.0
        blind = f"{describe_loop(name)} has no valid measurement."
        since = f"Values have not changed for {seconds:,.0f} s."
        yield from watched.find_faults("loop", name, "loop_stale", seconds, blind, labels, impact=since)


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
        sentence = f"Node {name} is {NODE_WORDS[node.state].lower()}."
        limit = 100 * (node.busy if node.state == BUSY else node.toobusy)
        impact = f"It uses {percent:.0f} % of its capacity (limit {limit:.0f} %)."
        rules = tuple(exceeded.rule for exceeded in limits)
        yield Fault(severity, sentence, describe_first_step("node_toobusy"), rules, impact)
    if not node.stale:
        yield from clock_fault(f"node {name}", node.ahead_seconds or 0.0)
    damaged = node.count_damaged_blocks(watched.at) + node.count_missing_blocks(watched.at)
    sentence = f"Node {name} has damaged or missing blocks."
    yield from watched.find_faults("node", name, "block_damaged", damaged, sentence, impact=node.damage)
    if node.durability_problem and not node.stale:
        yield Fault(
            "warning",
            f"Node {name} rejects events of durable queues: {node.durability_problem}.",
            "Repair or start its server and its replica, or move the points of these queues off the node.",
            impact="Publishers use the other nodes.",
        )
    used, capacity = node.memory_bytes, node.memory_capacity_bytes
    if used is not None and capacity and not node.stale:
        share = 100 * used / capacity
        sentence = f"Node {name} is running out of memory."
        yield from watched.find_faults(
            "node", name, "node_memory", share, sentence, impact=f"It uses {share:.0f} % of its memory."
        )


def _build_silence_fault(watched: WatchedSnapshot, name: str, node: NodeStatus) -> Fault:
    age = node.age_seconds
    if is_emptied(name, watched.snapshot):
        return Fault("notice", f"Node {name} is drained and empty, and does not report.")
    rules = watched.list_exceeded("node", name, "node_lost", age, {"node": name})
    step = describe_first_step("node_lost", points=node.points or 0)
    impact = describe_node_impact(watched.snapshot, name)
    sentence = f"Node {name} stopped reporting{format_since(age)}."
    return Fault("critical", sentence, step, tuple(rule.rule for rule in rules), impact)


def _iterate_queue_faults(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> Iterator[Fault]:
    late = _list_late_faults(watched, name, queue)
    if find_pause(name, CONSUMPTION, watched.snapshot) is None:
        yield from late[:1]
    elif late:
        # A person has paused it: that it stands still is no fault and needs no remedy.
        yield Fault("notice", describe_backlog(name, PAUSED), rules=late[0].rules, late=True)
    dead = queue.dead_letters
    count = f"{format_count(dead or 0, 'event')} failed on every attempt."
    yield from watched.find_faults(
        "queue", name, "dead_letters", dead, describe_backlog(name, DEAD_LETTERS), impact=count
    )
    missing = scope.list_missing_capabilities(name, watched.snapshot)
    if missing:
        sentence = f"Queue {name} has no workers: {explain_missing_capabilities(missing, 'jobs')}."
        yield Fault("critical", sentence, f"{describe_capability_remedy(missing, 'jobs')} from the queue.")
    yield from _find_ended_workers(watched, name, queue)
    if not late and is_filling(queue):
        yield Fault("notice", describe_backlog(name, FILLING), impact=f"{format_waiting(queue.waiting_events)}.")


def _find_ended_workers(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> Iterator[Fault]:
    """Find a node whose last worker ended early, unless its server has just restarted: the workers lost it then."""
    restarted = {event.name for event in watched.snapshot.processes if event.kind == "restarted"}
    for node, part in queue.containers.items():
        if part.trouble and node not in restarted:
            reason = part.trouble.rstrip(".")
            yield Fault("warning", f"Queue {name}: a worker for node {node} ended early ({reason}).")
            return


def _list_late_faults(watched: WatchedSnapshot, name: str, queue: QueueStatus) -> list[Fault]:
    """Return that its events take too long, as one fault with the rules of wait and latency; at most one."""
    wait, latency = queue.wait_seconds, queue.latency_p95_seconds
    waits = "The wait of its oldest event is unknown."
    if wait is not None:
        waits = f"Its oldest event waits {format_seconds(wait)}."
    behind = watched.find_faults(
        "queue", name, "queue_wait", wait, describe_backlog(name, BEHIND), impact=waits, late=True
    )
    # Without completions there is no latency.
    value = latency if latency is not None else None if queue.waiting_events else 0.0
    takes = "The latency is unknown: no events were completed recently."
    if latency is not None:
        takes = f"The p95 latency is {format_seconds(latency)}."
    slow = watched.find_faults(
        "queue", name, "queue_latency", value, describe_backlog(name, SLOW), impact=takes, late=True
    )
    faults = [*behind, *slow]
    if len(faults) < 2:
        return faults
    severity = max((fault.severity for fault in faults), key=SEVERITIES.index)
    return [replace(behind[0], severity=severity, rules=(*behind[0].rules, *slow[0].rules))]


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
    states = {f"{state.kind}/{state.name}": state for state in _iterate_states(watched)}
    return explain_causes(watched, states)


def get_states(snapshot: Snapshot) -> Mapping[str, SubjectState]:
    """Return a snapshot's published states; for an archived one without states, those without a past."""
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
    if faults := list(_iterate_retry_faults(watched)):
        yield watched.get_state("plant", "retries", faults)
    share = snapshot.totals.shed_share
    if share is not None:
        lost = f"{format_percent(share, 2)} of the events that patterns could use are lost."
        faults = watched.find_faults("plant", "shedding", "shedding", 100 * share, "Events are shed.", {}, impact=lost)
        yield watched.get_state("plant", "shedding", faults)


def _iterate_retry_faults(watched: WatchedSnapshot) -> Iterator[Fault]:
    """Return the failing destinations of retry plans that no queue calls; those of queues are causes."""
    for name, row in watched.snapshot.destinations.items():
        if row.retry_plans and not row.queues and is_failing(row, True, watched.at):
            impact = join_sentences(describe_failures(row), describe_waiting_plans(row))
            yield Fault("warning", describe_failing(name, row), describe_first_step("destination_failing"), (), impact)
