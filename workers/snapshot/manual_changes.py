"""Everything that people have in force, as one list: overrides, stops, drains, caps, tasks, silences, and others.

The strip, the overview, the page Manual changes, and the API read this list. Each change says its effect now, and what
ending it now would cause if that would hurt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from common import checks
from common.stored_document import replace_fields
from controllers.framework.reason import format_count, format_names, format_number, format_percent
from controllers.retries.circuit import OPEN
from controllers.shedding.ladder import LAW as LADDER
from controllers.shedding.ladder import LEVELS
from queues import circuit_hold, pausing
from workers.alerts.lifecycle.models import Alert, Silence
from workers.alerts.review import format_duration
from workers.alerts.rules import rules
from workers.control.parts.operators import OWNERS
from workers.documents.loops import LoopStatus, ManualChange, OverrideStatus
from workers.documents.nodes import NodeStatus
from workers.documents.pipeline import PipelineOrder
from workers.documents.plants import PlantHolder
from workers.documents.snapshot import Snapshot
from workers.documents.windows import PlannedWindowStatus
from workers.models import Loop
from workers.plants.foreign.interventions import Intervention
from workers.steering.scope import CIRCUIT, IN_USE, NODE_USES, THRESHOLDS, find_active_level
from workers.windows.scope import format_scope

NONE_NOW = "none now"
WINDOW_KINDS = {"maintenance": "Maintenance", "freeze": "Change freeze", "silence": "Recurring silence"}
CATCH_UP_SECONDS = 30.0  # a backlog that keeps all slots busy for longer hurts the other queues


@dataclass(frozen=True)
class ManualRecords:
    """Records of manual changes that the snapshot does not have.

    caps: limited remedy ladders without an override, by queue; orders: people's orders for applications, by name;
    interventions: at attached plants, by plant; service_seconds: last measured time of a worker per event, by queue.
    """

    caps: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, PipelineOrder] = field(default_factory=dict)
    silences: Sequence[Silence] = ()
    snoozed: Sequence[Alert] = ()
    interventions: Mapping[str, Sequence[Intervention]] = field(default_factory=dict)
    service_seconds: Mapping[str, float] = field(default_factory=dict)


def list_manual_changes(
    snapshot: Snapshot, records: ManualRecords, reminder_seconds: float | None = None
) -> list[ManualChange]:
    """Return the manual changes, the earliest end first.

    reminder_seconds: the age at which a change without an end gets a reminder; None: it gets none.
    """
    changes = [
        *(_build_override(row, snapshot, records.service_seconds) for row in snapshot.overrides),
        *_iterate_task_changes(snapshot),
        *_iterate_criteria_changes(snapshot),
        *_iterate_stops(snapshot, records.orders),
        *_iterate_earlier_caps(snapshot, records.caps),
        *_iterate_earlier_node_uses(snapshot),
        *_iterate_interventions(records.interventions),
        *(_build_silence(silence, snapshot) for silence in records.silences),
        *(_build_window(window) for window in snapshot.windows if window.active),
        *(_build_snooze(alert) for alert in records.snoozed),
    ]
    if reminder_seconds is not None:
        changes = [_add_reminder(change, reminder_seconds) for change in changes]
    return _sort_by_end(changes)


def list_with_current_overrides(snapshot: Snapshot, rows: Sequence[OverrideStatus]) -> list[ManualChange]:
    """Return the snapshot's list with the overrides in force now, which may have changed since: for a page."""
    known = {change.key: change for change in snapshot.hands}
    overrides = []
    for row in rows:
        change = known.pop(f"override/{row.id}", None) or _build_override(row, snapshot, {})
        overrides.append(replace_fields(change, until=row.expires_at))
    others = [change for change in known.values() if not change.key.startswith("override/")]
    return _sort_by_end([*overrides, *others])


def _sort_by_end(changes: Iterable[ManualChange]) -> list[ManualChange]:
    return sorted(changes, key=lambda change: (change.until is None, change.until or 0.0, change.key))


def _add_reminder(change: ManualChange, reminder_seconds: float) -> ManualChange:
    if change.until is not None or change.since is None:
        return change
    return replace_fields(change, remind_at=change.since + reminder_seconds)


# --- overrides: values, modes, pauses, drains, cordons, and caps -----------------------------------------------------


def _build_override(row: OverrideStatus, snapshot: Snapshot, service_seconds: Mapping[str, float]) -> ManualChange:
    change = build_override_change(row)
    effect, warning = EFFECTS[change.kind](row, snapshot)
    if change.kind == "pause" and row.name == pausing.CONSUMPTION and row.queue in snapshot.queues:
        warning = _warn_of_consumption(row.queue, service_seconds.get(row.queue), snapshot)
    return replace_fields(change, effect=effect, warning=warning)


def build_override_change(row: OverrideStatus) -> ManualChange:
    """Return an override as a manual change, without its effect."""
    kind = _find_override_kind(row)
    return ManualChange(
        key=f"override/{row.id}",
        kind=kind,
        of=_find_override_subject(row),
        title=_format_override_title(row, kind),
        was=format_changed_value(row.name, row.instead_of),
        value=format_changed_value(row.name, row.value),
        owner=row.owner,
        reason=row.reason,
        since=row.created_at,
        until=row.expires_at,
    )


def _find_override_kind(row: OverrideStatus) -> str:
    if row.host:
        return "host drain"
    if row.node and row.name in NODE_USES:
        return "drain" if row.name == "drained" else "cordon"
    if row.queue and row.name in pausing.PARTS:
        return "pause"
    if row.queue and row.name == CIRCUIT:
        return "circuit hold"
    if row.name == "mode":
        return "hold" if row.value == Loop.Mode.HOLD else "mode"
    if row.name == "cap" and row.loop and row.loop.startswith(f"{LADDER.name}/"):
        return "cap"
    return "override"


def _find_override_subject(row: OverrideStatus) -> str:
    for kind in ("loop", "host"):
        if name := getattr(row, kind):
            return f"{kind}/{name}"
    if row.law:
        return f"law/{row.law}"
    return f"node/{row.node}" if row.node else f"queue/{row.queue}"


def _format_override_title(row: OverrideStatus, kind: str) -> str:
    if kind == "cap" and row.loop:
        return f"Remedy ladder of {row.loop.partition('/')[2]}"
    if kind in ("drain", "cordon"):
        return f"Node {row.node}"
    if kind == "host drain":
        return f"Worker host {row.host}"
    if kind == "pause":
        return f"{row.name.capitalize()} of {row.queue}"
    if kind == "circuit hold":
        return f"Circuit of {row.queue}"
    scope = _format_loops(row)
    if kind in ("hold", "mode"):
        return scope[:1].upper() + scope[1:]
    if row.node and row.name in THRESHOLDS and not (row.law or row.queue):
        return f"{_THRESHOLD_WORDS[row.name]} threshold of {row.node}"
    words = row.name.removeprefix("guard.").replace("_", " ")
    return f"{words[:1].upper()}{words[1:]} of {scope}"


_THRESHOLD_WORDS = dict(zip(THRESHOLDS, ("Busy", "Too busy"), strict=True))


def _format_loops(row: OverrideStatus) -> str:
    """Return which loops an override is about: worker rate of alert on n1; rebalancing, all loops."""
    if row.loop:
        law, _, target = row.loop.partition("/")
        return " of ".join(filter(None, (law.replace("_", " "), target.replace("/", " on "))))
    places = [f"{kind} {name}" for kind, name in (("queue", row.queue), ("node", row.node)) if name]
    law = row.law.replace("_", " ") if row.law else "all laws"
    return f"{law}, {' and '.join(places) if places else 'all loops'}"


def format_changed_value(name: str, value: object) -> str:
    """Return a value of a manual change in words."""
    if value is None:
        return ""
    if checks.FLAG.accepts(value):
        return "on" if value else "off"
    if checks.is_number(value):
        return format_percent(value) if name in THRESHOLDS else format_number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_changed_value('', item)}" for key, item in value.items())
    words = str(value).replace("_", " ")
    return f"up to {words}" if name == "cap" else words


def _describe_loop_value(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    loops = _list_loops(row, snapshot)
    if row.node and row.name in THRESHOLDS and not (row.law or row.queue or row.loop):
        return _describe_threshold(row, snapshot.nodes.get(row.node))
    acting = [loop for loop in loops if loop.mode in Loop.ACTING]
    if not acting:
        return f"{NONE_NOW}: {'no active loop uses it' if loops else 'it applies to no loop'}", ""
    return f"{format_count(len(acting), 'loop')} {'uses' if len(acting) == 1 else 'use'} it", ""


def _describe_threshold(row: OverrideStatus, node: NodeStatus | None) -> tuple[str, str]:
    """Return whether the node's utilization lies between the two thresholds, so that the change matters."""
    load = node.utilisation if node else None
    before, now = row.instead_of, row.value
    if load is None or not isinstance(before, int | float) or not isinstance(now, int | float):
        return f"unknown: {row.node} does not report its load", ""
    state = _THRESHOLD_WORDS[row.name].lower()
    at = f"{row.node} is at {format_percent(load)}"
    if (load >= before) == (load >= now):
        return f"{NONE_NOW}: {at}", ""
    if load >= now:
        return f"{at} and counts as {state}", ""
    warning = f"{at}, above {format_percent(before)}, so it counts as {state} at once."
    return f"{at} and does not count as {state}", warning


def _describe_mode(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    count = sum(loop.mode == row.value for loop in _list_loops(row, snapshot))
    words = {"hold": "on hold", "manual": "in manual mode", "advise": "in advise mode", "auto": "in auto mode"}
    if not count:
        return f"{NONE_NOW}: a newer change replaces it", ""
    return f"{format_count(count, 'loop')} {'is' if count == 1 else 'are'} {words.get(str(row.value), row.value)}", ""


def _list_loops(row: OverrideStatus, snapshot: Snapshot) -> list[LoopStatus]:
    if row.loop:
        return [snapshot.loops[row.loop]] if row.loop in snapshot.loops else []
    wanted = [(key, name) for key, name in (("queue", row.queue), ("node", row.node)) if name]
    return [
        loop
        for loop in snapshot.loops.values()
        if (not row.law or loop.law == row.law) and all(loop.target.get(key) == name for key, name in wanted)
    ]


def _describe_pause(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    queue = snapshot.queues.get(row.queue or "")
    if queue is None:
        return f"unknown: {row.queue} does not report", ""
    waiting = "" if queue.waiting_events is None else f"{_format_events(queue.waiting_events)} waiting"
    if row.name == pausing.INTAKE:
        left = f", {format_number(queue.out_per_second)}/s processed" if queue.out_per_second else ""
        return f"producers wait; {waiting or 'backlog unknown'}{left}", ""
    added = "" if queue.in_per_second is None else f", {format_number(queue.in_per_second)}/s added"
    return f"{waiting or 'backlog unknown'}{added}", ""


def _format_events(count: float) -> str:
    return f"{count:,.0f} event{'' if count == 1 else 's'}"


def _warn_of_consumption(name: str, seconds: float | None, snapshot: Snapshot) -> str:
    """Return that the queue's handler takes all worker slots again, if its measured time per event says so."""
    queue, slots = snapshot.queues[name], snapshot.totals.worker_slots
    if not seconds or not slots:
        return ""
    needed = (queue.in_per_second or 0.0) * seconds
    busy_seconds = (queue.waiting_events or 0.0) * seconds / slots
    count = format_count(slots, "worker slot")
    if needed >= slots:
        return (
            f"Queue {name} needs {format_number(needed)} worker slots at {format_number(seconds)} s per event, "
            f"and takes {'the only slot' if slots == 1 else f'all {slots}'} again. Fix the handler or add slots first."
        )
    if busy_seconds > CATCH_UP_SECONDS:
        return f"The backlog of {name} keeps {count} busy for {format_duration(busy_seconds)}. Other queues wait."
    return ""


def _describe_circuit_hold(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    queue = snapshot.queues.get(row.queue or "")
    if queue is None:
        return f"unknown: {row.queue} does not report", ""
    name = queue.destination or "the destination"
    if row.value == circuit_hold.OPEN:
        return f"no calls to {name}; {_format_events(queue.waiting_events or 0)} waiting", ""
    state = snapshot.destinations.get(name)
    if state is None or state.circuit != OPEN:
        return f"{NONE_NOW}: the circuit of {name} is not open", ""
    return f"all first attempts call {name}, although {format_percent(state.failing_share)} fail", ""


def _describe_host_drain(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    host = snapshot.hosts.get(row.host or "")
    if host is None:
        return f"{NONE_NOW}: {row.host} does not report", ""
    rest = f"; {host.busy} still running" if host.busy else ""
    return f"{format_count(host.slots, 'worker slot')} unused{rest}", ""


def _describe_node_use(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    return _describe_closed_node(str(row.node), snapshot), ""


def _describe_closed_node(name: str, snapshot: Snapshot) -> str:
    node = snapshot.nodes.get(name)
    if node is None:
        return f"unknown: {name} does not report"
    if not node.drained:
        return f"keeps {format_count(node.points or 0, 'point')} and gets no more"
    if node.points:
        return f"still serves {format_count(node.points, 'point')} until its plan has moved them"
    others = [other for other, row in sorted(snapshot.nodes.items()) if other != name and row.points]
    return (
        f"{format_names(others)} {'serves' if len(others) == 1 else 'serve'} its load" if others else "serves no load"
    )


def _describe_cap(row: OverrideStatus, snapshot: Snapshot) -> tuple[str, str]:
    return _describe_capped_ladder(str(row.loop).partition("/")[2], str(row.value), snapshot)


def _describe_capped_ladder(queue: str, cap: str, snapshot: Snapshot) -> tuple[str, str]:
    """Return whether the ladder has reached its cap, and what it does next without it."""
    level, highest = find_active_level(queue, snapshot), LEVELS.index(cap) + 1 if cap in LEVELS else len(LEVELS)
    if level is None:
        return "unknown: the ladder has no valid measurement", ""
    if level < highest:
        return f"{NONE_NOW}: not reached", ""
    further = LEVELS[highest:]
    warning = f"Without the cap, the ladder of {queue} continues to {format_names(list(further))}." if further else ""
    loses = " Shedding loses events." if "shed" in further else ""
    return "the ladder is at its cap", f"{warning}{loses}" if warning else ""


EFFECTS = {
    "override": _describe_loop_value,
    "hold": _describe_mode,
    "mode": _describe_mode,
    "pause": _describe_pause,
    "circuit hold": _describe_circuit_hold,
    "host drain": _describe_host_drain,
    "drain": _describe_node_use,
    "cordon": _describe_node_use,
    "cap": _describe_cap,
}


# --- changes that are no overrides -----------------------------------------------------------------------------------


def _iterate_task_changes(snapshot: Snapshot) -> Iterator[ManualChange]:
    """Return the tasks set by people and other controllers, during which the parallelism loops hold."""
    holders = {snapshot.plant: snapshot.steered_by}
    holders |= {name: row.steered_by for name, row in snapshot.plants.items()}
    for plant, holder in holders.items():
        if holder is not None:
            yield _build_task_change(plant, holder, snapshot)


def _build_task_change(plant: str, holder: PlantHolder, snapshot: Snapshot) -> ManualChange:
    here = plant == snapshot.plant
    held = [
        loop
        for loop in snapshot.loops.values()
        if loop.law in OWNERS and (loop.target.get("plant") == plant or (here and "plant" not in loop.target))
    ]
    count = format_count(len(held), "parallelism loop")
    return ManualChange(
        key=f"tasks/{plant}",
        kind="tasks",
        of=f"plant/{plant}",
        title=f"Tasks of {', '.join(holder.after) or plant}",
        was=_format_tasks(holder.before),
        value=_format_tasks(holder.after) or "held",
        effect=f"{count} {'is' if len(held) == 1 else 'are'} on hold" if held else f"{NONE_NOW}: no loop sets them",
        owner=holder.holder or "",
        reason=holder.reason,
        since=holder.since,
        until=holder.until,
    )


def _format_tasks(tasks: Mapping[str, int]) -> str:
    return ", ".join(str(count) for count in tasks.values())


def _iterate_criteria_changes(snapshot: Snapshot) -> Iterator[ManualChange]:
    now = snapshot.at or 0.0
    for application, row in snapshot.pipeline.applications.items():
        for name, held in row.controls.held_criteria.items():
            if held.until_seconds is None or held.until_seconds > now:
                own = row.controls.criteria.get(name)
                yield ManualChange(
                    key=f"criterion/{application}/{name}",
                    kind="criterion",
                    of=f"application/{application}",
                    title=f"Criterion {name.replace('_', ' ')} of {application}",
                    was="" if own is None else format_number(own),
                    value=format_number(held.value),
                    effect="the criterion keeps this value",
                    owner=held.owner,
                    reason=held.reason,
                    until=held.until_seconds,
                )


def _iterate_stops(snapshot: Snapshot, orders: Mapping[str, PipelineOrder]) -> Iterator[ManualChange]:
    for application, order in orders.items():
        if order.stopped:
            row = snapshot.pipeline.applications.get(application)
            queues = [snapshot.queues[name] for name in (row.queues if row else ()) if name in snapshot.queues]
            waiting = sum(queue.waiting_events or 0 for queue in queues)
            yield ManualChange(
                key=f"stop/{application}",
                kind="stop",
                of=f"application/{application}",
                title=f"Application {application}",
                was="running",
                value="stopped",
                effect=f"{_format_events(waiting)} waiting in its queues",
                owner=order.by,
                reason=order.reason,
                since=order.at,
            )


def _iterate_earlier_caps(snapshot: Snapshot, caps: Mapping[str, str]) -> Iterator[ManualChange]:
    """Return caps that a ladder's own parameters have: those set by an earlier version, which recorded no user."""
    for queue, cap in caps.items():
        effect, warning = _describe_capped_ladder(queue, cap, snapshot)
        yield ManualChange(
            key=f"cap/{queue}",
            kind="cap",
            of=f"queue/{queue}",
            title=f"Remedy ladder of {queue}",
            was=format_changed_value("cap", LEVELS[-1]),
            value=format_changed_value("cap", cap),
            effect=effect,
            warning=warning,
        )


def _iterate_earlier_node_uses(snapshot: Snapshot) -> Iterator[ManualChange]:
    """Return nodes that are drained or cordoned without an override: by an earlier version, or by a loop's plan."""
    recorded = {(row.node, row.name) for row in snapshot.overrides}
    for name, node in snapshot.nodes.items():
        for use in NODE_USES:
            if getattr(node, use) and (name, use) not in recorded:
                yield ManualChange(
                    key=f"node/{name}/{use}",
                    kind="drain" if use == "drained" else "cordon",
                    of=f"node/{name}",
                    title=f"Node {name}",
                    was=IN_USE,
                    value=use,
                    effect=_describe_closed_node(name, snapshot),
                )


def _iterate_interventions(rows: Mapping[str, Iterable[Intervention]]) -> Iterator[ManualChange]:
    for plant, interventions in rows.items():
        for row in interventions:
            words = row.kind.replace("_", " ")
            yield ManualChange(
                key=f"intervention/{plant}/{row.kind}/{row.subject}",
                kind="intervention",
                of=f"plant/{plant}",
                title=f"{words[:1].upper()}{words[1:]} {row.subject} of {plant}",
                was=row.before,
                value=row.value or "in force",
                effect=f"undo failed: {row.error}" if row.error else "in force at the plant",
                owner=row.by,
                until=row.until,
            )


def _build_silence(silence: Silence, snapshot: Snapshot) -> ManualChange:
    labels = [{**alert.labels, "rule": alert.rule, "severity": alert.severity} for alert in snapshot.alerts]
    hidden = sum(rules.matches(silence.matchers, row) for row in labels)
    alerts = format_count(hidden, "open alert")
    return ManualChange(
        key=f"silence/{silence.pk}",
        kind="silence",
        of=f"silence/{silence.pk}",
        title=f"Alerts with {rules.format_matchers(silence.matchers)}",
        was="notified",
        value="silenced",
        effect=f"{alerts} silenced" if hidden else f"{NONE_NOW}: no open alert matches",
        warning=f"{alerts} {'notifies its' if hidden == 1 else 'notify their'} receivers again." if hidden else "",
        owner=silence.owner.get_username(),
        reason=silence.reason,
        since=silence.created_at.timestamp(),
        until=silence.expires_at.timestamp(),
    )


def _build_window(window: PlannedWindowStatus) -> ManualChange:
    silenced = f"{format_count(window.silenced, 'alert')} silenced"
    effects = [] if window.kind == "freeze" else [silenced if window.silenced else "no alert silenced"]
    if window.kind == "freeze":
        effects.append("changes in its scope are refused")
    if window.loop_mode != "unchanged":
        effects.append(f"loops {'on hold' if window.loop_mode == 'hold' else 'in advise mode'}")
    return ManualChange(
        key=f"window/{window.id}",
        kind="planned window",
        of=f"window/{window.id}",
        title=f"{WINDOW_KINDS[window.kind]} {window.name}",
        was="not planned",
        value=format_scope(window.scope),
        effect="; ".join(effects),
        owner=window.owner,
        reason=window.reason,
        since=window.starts_at,
        until=window.ends_at,
    )


def _build_snooze(alert: Alert) -> ManualChange:
    until: datetime | None = alert.snoozed_until
    return ManualChange(
        key=f"snooze/{alert.pk}",
        kind="snooze",
        of=f"alert/{alert.pk}",
        title=f"Alert {alert.pk}: {alert.title}",
        was="notified",
        value="snoozed",
        effect="its receivers are not notified",
        warning="The alert is still open and notifies its receivers again.",
        owner=alert.snoozed_by.get_username() if alert.snoozed_by else "",
        until=until.timestamp() if until else None,
    )
