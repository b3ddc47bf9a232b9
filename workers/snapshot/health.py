"""The plant's state in one sentence: that of its worst subject, or of an alert without a subject.

The others form a list.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby

from common.stored_document import replace_fields
from controllers.framework.reason import are, capitalize, format_count, format_names, format_percent
from controllers.worker_rate.law import LAW as WORKER_RATE
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, OVERLOADED, STATES
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.evaluation.impact import describe_first_step, is_falling_behind
from workers.alerts.lifecycle.inhibition import LINGER_SECONDS, list_alert_subjects
from workers.control.kinds.registry import find_display
from workers.documents.alerts import AlertStatus
from workers.documents.loops import RecentAction
from workers.documents.parts import ProcessEvent, find_starting_parts
from workers.documents.snapshot import PlantHealth, Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, SubjectState
from workers.models import Loop, Plan
from workers.placement.plans import BEING_EXECUTED
from workers.snapshot.headline import Headline
from workers.snapshot.judgement import SIGNS, WORDS
from workers.snapshot.recovery import SHOWN_SECONDS, format_restart
from workers.snapshot.scene import FILLING

LOOPS_ALONE = 2  # more loops with the same fault are one finding
# Conditions that the states of the subjects already show, and more currently: their alerts fire later and end later.
JUDGED = frozenset(
    {
        "node_lost",
        "node_toobusy",
        "node_memory",
        "queue_wait",
        "queue_latency",
        "dead_letters",
        "pipeline_down",
        "pipeline_stalled",
        "pipeline_lag",
        "pool_refuses",
        "workers_missing",
        "shedding",
        "loop_silent",
        "loop_stale",
        "observer_silent",  # a new snapshot proves that the observer runs
    }
)
OF_ALL_LOOPS = ("loops_stopped", "host_overloaded")
OF_A_PLANT = ("plant_silent", "workers_missed", "queue_unserved", "sensor_silent", "order_unreached")
START = "plant/start"  # the headline while the plant starts
LATELY_SECONDS = 120.0
FILLING_SECONDS = 4.0
MIN_DOWN_SECONDS = 0.5
MAX_PARTS = 3
REPORTED_SECONDS = 2.0  # of backlog: below this, its trend is noise
TRENDS = {"rising": "backlog rising", "falling": "backlog falling", "steady": "backlog steady"}
WARNING = SEVERITIES.index("warning")


def evaluate_health(
    snapshot: Snapshot, headline: Headline | None = None, monotonic_seconds: float = 0.0
) -> PlantHealth:
    """Return the health of a snapshot whose states are evaluated. headline: the one shown until now."""
    all_findings = [*_iterate_findings(snapshot), *_describe_alerts(snapshot)]
    incidents = _map_incidents(snapshot)
    ranked = sorted(all_findings, key=rank_by_severity, reverse=True)
    findings = [_add_incident(finding, incidents, snapshot.opening) for finding in ranked]
    # Among findings of the same severity, those come first that a person can end, then those with an incident.
    findings.sort(key=_rank_finding, reverse=True)
    names = list(find_starting_parts(snapshot.parts))
    if names and not any(_is_of_no_start(finding, names) for finding in findings):
        said = f"The plant is starting: {format_names(names)} {are(names)} not ready yet."
        start = SubjectFinding(subject=START, severity="notice", sign=BUSY, sentence=said)
        findings = [start, *(finding for finding in findings if not _waits_for_start(finding, names, snapshot))]
    if headline is not None:
        findings = headline.follow(findings, monotonic_seconds, _list_recoveries(snapshot))
    else:
        findings += _list_recoveries(snapshot)
    if findings and findings[0].subject == START:
        said = findings[0].sentence
        return PlantHealth(BUSY, said, severity="notice", findings=findings, word=WORDS["notice"])
    if not findings:
        sentence, detail = _describe_all_well(snapshot)
        return PlantHealth(NORMAL, sentence, detail, word=WORDS["well"])
    worst = findings[0]
    # A node that was emptied and removed is offline, but the plant is not.
    emptied = worst.severity == "notice" and worst.sign == OFFLINE
    sign = NORMAL if emptied else worst.sign or NORMAL
    # This is the subject's own word where it states the problem, such as a node's load or silence; else the severity.
    state = snapshot.states.get(worst.subject)
    own = state is not None and state.finding == worst.sentence and worst.sign == state.sign
    word = state.word if state is not None and own else WORDS[worst.severity]
    return PlantHealth(sign, worst.sentence, severity=worst.severity, findings=findings, word=word)


def _map_incidents(snapshot: Snapshot) -> dict[str, int]:
    """Return the number of the open incident of each subject that has an alert."""
    incidents: dict[str, int] = {}
    for alert in snapshot.alerts:
        root = alert.id if alert.under is None else alert.under
        for subject in filter(None, (*list_alert_subjects(alert.condition, alert.labels), alert.root)):
            incidents[subject] = min(root, incidents.get(subject, root))
    return incidents


def find_incident(finding: SubjectFinding, incidents: Mapping[str, int]) -> int | None:
    """Return the number of the incident of a finding: that of its subject, or of what it explains."""
    if finding.incident is not None:
        return finding.incident
    own = incidents.get(finding.subject)
    affected = [incidents[subject] for subject in finding.affected if subject in incidents]
    return own if own is not None else min(affected, default=None)


def _rank_finding(finding: SubjectFinding) -> tuple[int, bool, int, bool]:
    severity, sign = rank_by_severity(finding)
    return severity, bool(finding.actions), sign, finding.incident is not None


def _add_incident(
    finding: SubjectFinding, incidents: Mapping[str, int], opening: Mapping[str, float]
) -> SubjectFinding:
    """Return the finding with its incident, or with the time at which the incident opens."""
    if (incident := find_incident(finding, incidents)) is not None:
        return replace_fields(finding, incident=incident)
    if SEVERITIES.index(finding.severity) < WARNING:
        return finding
    times = [opening[subject] for subject in (finding.subject, *finding.affected) if subject in opening]
    return replace_fields(finding, opens_at=min(times, default=None))


def _is_of_no_start(finding: SubjectFinding, names: list[str]) -> bool:
    """Return whether a critical finding is about a part that does not start."""
    kind, _, name = finding.subject.partition("/")
    return finding.severity == "critical" and not {kind, f"{kind} {name}"} & set(names)


def _waits_for_start(finding: SubjectFinding, names: list[str], snapshot: Snapshot) -> bool:
    """Return whether a finding is about a queue whose consumers are starting: it is handled when they are ready."""
    kind, _, name = finding.subject.partition("/")
    consumers = snapshot.queues[name].kind if kind == "queue" and name in snapshot.queues else None
    return {"pipeline": "pipeline", "jobs": "workers.jobs"}.get(consumers or "") in names


def rank_by_severity(state: SubjectState | SubjectFinding) -> tuple[int, int]:
    """Return the sort key of a state, for lists: by severity, then by sign."""
    sign = STATES.index(state.sign) if state.sign in STATES else -1
    return SEVERITIES.index(state.severity), sign


def _iterate_findings(snapshot: Snapshot) -> Iterator[SubjectFinding]:
    """Return the findings that nothing else explains.

    Findings explained by another subject, or by an alert about all loops or those of an attached plant, are left out.
    Loops with the same fault are one finding.
    """
    heard = [alert for alert in snapshot.alerts if _is_heard(alert)]
    all_loops = any(subject.condition in OF_ALL_LOOPS for subject in heard)
    plants = {subject.labels.get("plant") for subject in heard if subject.condition in OF_A_PLANT} - {None}

    def is_explained(loop: str) -> bool:
        row = snapshot.loops.get(loop)
        return all_loops or (row is not None and row.target.get("plant") in plants)

    findings = [
        state
        for state in snapshot.states.values()
        if state.finding
        and state.within is None
        and not (state.kind == "loop" and is_explained(state.name))
        and not _only_begins_to_fill(state, snapshot)
    ]
    yield from (_build_finding(subject_finding) for subject_finding in findings if subject_finding.kind != "loop")
    recoveries = _list_recoveries(snapshot)
    for event in sorted(snapshot.processes, key=lambda event: -event.at):
        said = f": {format_restart(event)}."
        if event.kind == "restarted" and not any(row.sentence.endswith(said) for row in recoveries):
            yield _describe_restart(event)
    yield from (finding for state in snapshot.states.values() for finding in state.also)
    loops = sorted(
        (subject_finding for subject_finding in findings if subject_finding.kind == "loop"),
        key=lambda finding: finding.rules,
    )
    for _, group in groupby(loops, key=lambda finding: finding.rules):
        alike = list(group)
        if len(alike) <= LOOPS_ALONE:
            yield from (_build_finding(alike_finding) for alike_finding in alike)
        else:
            blind = "loop-blind" in alike[0].rules
            words = "have no valid measurement" if blind else "have stopped"
            yield SubjectFinding(
                subject="",
                severity=alike[0].severity,
                sign=alike[0].sign,
                sentence=f"{format_count(len(alike), 'loop')} {words}.",
                impact=alike[0].impact,
                step=alike[0].step,
                since=min((loop.since for loop in alike if loop.since is not None), default=None),
            )


def _only_begins_to_fill(state: SubjectState, snapshot: Snapshot) -> bool:
    """Return whether a queue has been filling for a moment: why it fills is often known seconds later.

    The headline would have to stay with the queue's name, and could not name the cause in time.
    """
    if not state.finding.startswith(f"Queue {state.name} {FILLING};"):
        return False
    return state.since is not None and 0.0 <= (snapshot.at or 0.0) - state.since < FILLING_SECONDS


def _list_recoveries(snapshot: Snapshot) -> list[SubjectFinding]:
    """Return how problems of the last minute ended, the newest first, unless their subject has a problem again."""
    now = snapshot.at or 0.0
    return [
        SubjectFinding(
            subject=problem.subject, severity="notice", sign=NORMAL, sentence=problem.recovery, since=problem.ended_at
        )
        for problem in sorted(snapshot.problems, key=lambda problem: -(problem.ended_at or 0.0))
        if problem.recovery and problem.ended_at is not None and 0.0 <= now - problem.ended_at <= SHOWN_SECONDS
        if (state := snapshot.states.get(problem.subject)) is None or not state.finding
    ]


def _describe_restart(event: ProcessEvent) -> SubjectFinding:
    """Describe a process that the supervisor has restarted within the last minute."""
    # The supervisor starts a process at once; what it needs to be ready is not known here.
    is_known = event.down_seconds is not None and event.down_seconds >= MIN_DOWN_SECONDS
    down = f"It was gone for {event.down_seconds:.1f} s." if is_known else ""
    return SubjectFinding(
        subject=f"process/{event.name}",
        severity="notice",
        sign=NORMAL,
        sentence=f"Process {format_restart(event)}.",
        since=event.at,
        impact=down,
    )


def _describe_alerts(snapshot: Snapshot) -> Iterator[SubjectFinding]:
    """Describe open alerts that no subject's state shows.

    They are about Weir itself, its host, its audit log, a plan, or an objective. Explained, silenced, and snoozed
    alerts are left out, and so are alerts of a problem that is shown.
    """
    for alert in snapshot.alerts:
        if alert.severity == "notice" or alert.condition in JUDGED or not _is_heard(alert):
            continue
        if _belongs_to_problem(alert, snapshot):
            continue
        severity: Severity = "critical" if alert.severity == "critical" else "warning"
        yield SubjectFinding(
            subject=f"alert/{alert.id}",
            severity=severity,
            sign=SIGNS[severity],
            sentence=alert.sentence or f"{alert.title}.",
            step=describe_first_step(alert.condition),
            since=alert.since,
            impact=CONDITIONS[alert.condition].impact if alert.condition in CONDITIONS else "",
            incident=alert.id,
        )


def _belongs_to_problem(alert: AlertStatus, snapshot: Snapshot) -> bool:
    """Return whether the cause of an alert is a current problem, or one that ended recently."""
    return alert.root != "" and any(
        problem.subject == alert.root
        and (problem.ended_at is None or (snapshot.at or 0.0) - problem.ended_at <= LINGER_SECONDS)
        for problem in snapshot.problems
    )


def _is_heard(alert: AlertStatus) -> bool:
    """Return whether the alert is active. A silenced, snoozed, or explained alert is hidden and explains nothing."""
    return alert.quiet in (None, "acknowledged")


def _build_finding(state: SubjectState) -> SubjectFinding:
    return SubjectFinding(
        subject=f"{state.kind}/{state.name}",
        severity=state.severity,
        sign=state.sign,
        sentence=state.finding,
        step=state.step,
        since=state.since,
        impact=state.impact,
        affected=state.affected,
        actions=state.actions,
    )


def _describe_all_well(snapshot: Snapshot) -> tuple[str, str]:
    """Return the sentence of a calm plant, and the facts beside it."""
    unknown = [state.name for state in snapshot.states.values() if state.severity == "unknown"]
    if unknown:
        return f"No problems found; state unknown: {format_names(unknown)}.", ""
    share = snapshot.totals.shed_share
    shed = f" {format_percent(share, 2)} of the events that patterns could use are shed." if share else ""
    return "All queues keep up.", f"{_describe_nodes(snapshot)}.{shed}"


def _describe_nodes(snapshot: Snapshot) -> str:
    """Return which nodes are in use, and which people have drained."""
    drained = [name for name, node in snapshot.nodes.items() if node.drained]
    count = len(snapshot.nodes) - len(drained)
    if not count:
        return "No node is in use"
    only = "The only node" if count == 1 else f"All {count} nodes"
    normal = f"{only}{' in use' if drained else ''} {'is' if count == 1 else 'are'} normal"
    return f"{normal}; {format_names(drained)} {are(drained)} drained" if drained else normal


def add_action_summary(snapshot: Snapshot) -> PlantHealth:
    """Return the snapshot's health with the actions that address it."""
    health = snapshot.health
    abnormal = SEVERITIES.index(health.severity) >= WARNING
    parts = [
        *(f"process {format_restart(event)}" for event in snapshot.processes if event.kind == "restarted"),
        *_describe_engaged(snapshot),
        *_describe_plans(snapshot),
        *_describe_recent_actions(snapshot, abnormal),
        *_describe_held(snapshot),
    ]
    if not parts and _loops_could_act(snapshot) and not any(_iterate_recent_actions(snapshot)):
        parts = [f"no loop acted in the last {LATELY_SECONDS / 60:.0f} min"]
    if abnormal:
        totals = snapshot.totals
        if totals.backlog_trend is not None and (totals.backlog_seconds or 0.0) >= REPORTED_SECONDS:
            parts.append(TRENDS[totals.backlog_trend])
    if not parts:
        return health
    return replace_fields(health, doing=f"{capitalize('; '.join(parts[:MAX_PARTS]))}.")


def _describe_engaged(snapshot: Snapshot) -> Iterator[str]:
    """Describe what loops have enabled and not yet disabled, the highest first. It may cost delay or events."""
    engaged = [
        (loop.actuator, words(loop))
        for _, loop in sorted(snapshot.loops.items())
        if loop.was_decided_in(*Loop.ACTING)
        and (words := find_display(loop.law, loop.target).engaged)
        and loop.actuator
    ]
    for _, words_of_one in sorted(engaged, key=lambda item: -item[0]):
        yield words_of_one


def _loops_could_act(snapshot: Snapshot) -> bool:
    """Return whether a node is overloaded or a queue falls behind; dead letters require a person."""
    rows = [state for state in snapshot.states.values() if SEVERITIES.index(state.severity) >= WARNING]
    overloaded = any(row.kind == "node" and row.sign in OVERLOADED for row in rows)
    return overloaded or any(map(is_falling_behind, rows))


def _describe_plans(snapshot: Snapshot) -> Iterator[str]:
    for plan in snapshot.plans:
        if plan.state == Plan.State.PROPOSED:
            yield f"plan {plan.id} ({format_count(plan.points, 'point')}) is waiting for approval"
        elif plan.state in BEING_EXECUTED:
            done = f"{100 * plan.progress_share:.0f} % done"
            yield f"plan {plan.id} moves {format_count(plan.points, 'point')}, {done}"


def _describe_recent_actions(snapshot: Snapshot, abnormal: bool) -> Iterator[str]:
    """Return the last action of each law, the newest first.

    Moves of a plan are left out, since they have their own part. Without problems only moves of points count, since
    workers start all the time.
    """
    planned = any(plan.state in BEING_EXECUTED for plan in snapshot.plans)
    for action in _iterate_recent_actions(snapshot):
        if not planned if action.points else abnormal:
            age = format_age((snapshot.at or 0.0) - action.at)
            yield f"{action.law.replace('_', ' ')} {action.did} {age}{_explain_no_effect(snapshot, action)}"


def _explain_no_effect(snapshot: Snapshot, action: RecentAction) -> str:
    """Return why an action can't help now, after a comma; "" if it can."""
    causes = {state.kind for state in snapshot.states.values() if state.affected and state.severity == "critical"}
    if action.law == WORKER_RATE.name:
        slots = snapshot.totals.worker_slots
        if slots == 0:
            return ", without effect: no worker host runs"
        late = any(state.late for state in snapshot.states.values())
        is_full = late and (snapshot.totals.workers_busy or 0) >= (slots or 0)
        if slots and (is_full or (snapshot.crowd is not None and snapshot.crowd.active)):
            return f", without effect: the pool is full ({slots} of {slots} slots)"
        if causes & {"pipeline", "application"}:
            return ", which can't help: the pipeline makes no progress"
    of_application = any(loop.law == action.law and "application" in loop.target for loop in snapshot.loops.values())
    if of_application and causes & {"pipeline", "application"}:
        return ", which can't help: the pipeline makes no progress"
    return ""


def _iterate_recent_actions(snapshot: Snapshot) -> Iterator[RecentAction]:
    """Return the notable actions of the last minutes; some laws act at every tick."""
    for action in snapshot.deeds:
        age_seconds = (snapshot.at or 0.0) - action.at
        # The absolute difference: an action from before a clock was set back did not happen just now.
        if abs(age_seconds) <= LATELY_SECONDS and find_display(action.law).is_news:
            yield action


def _describe_held(snapshot: Snapshot) -> Iterator[str]:
    held = [name for name, loop in snapshot.loops.items() if loop.mode in Loop.HANDED_OVER]
    if len(held) == 1:
        (name,) = held
        mode = snapshot.loops[name].mode
        yield f"{name.replace('_', ' ')} is {'on hold' if mode == 'hold' else 'in manual mode'}"
    elif held:
        yield f"{len(held)} loops are on hold or in manual mode"


def format_age(seconds: float) -> str:
    """Return an age in coarse steps, because a sentence that changes each second is unreadable."""
    if seconds < 10:
        return "just now"
    return f"{seconds // 10 * 10:.0f} s ago" if seconds < 60 else f"{seconds // 60:.0f} min ago"
