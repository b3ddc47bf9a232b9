"""The plant's state in one sentence: that of its worst subject, or of an alert without a subject.

The others form a list.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from controllers.framework.reason import are, format_count, format_names, format_percent
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, STATES
from workers.alerts.evaluation.impact import describe_first_step
from workers.documents.alerts import AlertStatus
from workers.documents.parts import find_starting_parts
from workers.documents.snapshot import PlantHealth, Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, SubjectState
from workers.snapshot.states.judgement import SIGNS, WORDS

LOOPS_ALONE = 2  # more loops with the same fault are one finding
# Conditions that the states of the subjects already show, and more currently: their alerts fire later and end
# later.
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
    }
)
OF_ALL_LOOPS = ("loops_stopped", "host_overloaded")
OF_A_PLANT = ("plant_silent", "workers_missed", "queue_unserved", "sensor_silent", "order_unreached")


def evaluate_health(snapshot: Snapshot) -> PlantHealth:
    """Return the health of a snapshot whose states are evaluated."""
    all_findings = [*_iterate_findings(snapshot), *_describe_alerts(snapshot.alerts)]
    place = _place_in_incidents(snapshot.alerts)
    findings = sorted(
        all_findings, key=lambda finding: (rank_by_severity(finding), place.get(finding.subject, 0)), reverse=True
    )
    names = list(find_starting_parts(snapshot.parts))
    if names and not any(_is_of_no_start(finding, names) for finding in findings):
        said = f"The plant is starting: {format_names(names)} {are(names)} not ready yet."
        return PlantHealth(BUSY, said, severity="notice", findings=findings, word=WORDS["notice"])
    if not findings:
        return PlantHealth(NORMAL, _describe_all_well(snapshot), word=WORDS["well"])
    worst = findings[0]
    # A node that was emptied and removed is offline, but the plant is not.
    emptied = worst.severity == "notice" and worst.sign == OFFLINE
    sign = NORMAL if emptied else worst.sign or NORMAL
    word = _choose_word(worst, snapshot.states.get(worst.subject))
    return PlantHealth(sign, worst.sentence, severity=worst.severity, findings=findings, word=word)


def _choose_word(finding: SubjectFinding, state: SubjectState | None) -> str:
    """Return the word of the finding.

    This is the subject's own word where it states the problem, such as a node's load or silence; else the severity.
    """
    own = state is not None and state.finding == finding.sentence and state.severity == finding.severity
    return state.word if state is not None and own else WORDS[finding.severity]


def _place_in_incidents(alerts: Iterable[AlertStatus]) -> dict[str, int]:
    """Return {"kind/name": 1 where an alert of it explains others, -1 where all its alerts are explained}.

    Among findings of the same severity, the headline is that of the incident.
    """
    rows = [(f"{kind}/{name}", alert) for alert in alerts for kind, name in alert.labels.items()]
    explaining = {alert.under for alert in alerts}
    place = {subject: -1 for subject, each in rows if each.under is not None}
    place |= {subject: 0 for subject, each in rows if each.under is None}
    return place | {subject: 1 for subject, each in rows if each.under is None and each.id in explaining}


def _is_of_no_start(finding: SubjectFinding, names: list[str]) -> bool:
    """Return whether a critical finding is about a part that does not start."""
    kind, _, name = finding.subject.partition("/")
    return finding.severity == "critical" and not {kind, f"{kind} {name}"} & set(names)


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
        if state.finding and state.within is None and not (state.kind == "loop" and is_explained(state.name))
    ]
    yield from (_build_finding(subject_finding) for subject_finding in findings if subject_finding.kind != "loop")
    yield from (finding for subject_finding in findings for finding in subject_finding.also)
    loops = sorted(
        (subject_finding for subject_finding in findings if subject_finding.kind == "loop"), key=lambda each: each.rules
    )
    for _, group in groupby(loops, key=lambda each: each.rules):
        alike = list(group)
        if len(alike) <= LOOPS_ALONE:
            yield from (_build_finding(alike_finding) for alike_finding in alike)
        else:
            yield _merge_loop_findings(alike)


def _describe_alerts(alerts: Iterable[AlertStatus]) -> Iterator[SubjectFinding]:
    """Describe open alerts that no subject's state shows.

    They are about Weir itself, its host, its audit log, a plan, or an objective. Explained, silenced, and snoozed
    alerts are left out.
    """
    for alert in alerts:
        if alert.severity == "notice" or alert.condition in JUDGED or not _is_heard(alert):
            continue
        severity: Severity = "critical" if alert.severity == "critical" else "warning"
        yield SubjectFinding(
            subject=f"alert/{alert.id}",
            severity=severity,
            sign=SIGNS[severity],
            sentence=alert.sentence or f"{alert.title}.",
            step=describe_first_step(alert.condition),
            since=alert.since,
        )


def _is_heard(alert: AlertStatus) -> bool:
    """Return whether the alert is active.

    A silenced, snoozed, or explained alert is not shown here and explains nothing.
    """
    return alert.quiet in (None, "acknowledged")


def _build_finding(state: SubjectState) -> SubjectFinding:
    return SubjectFinding(
        subject=f"{state.kind}/{state.name}",
        severity=state.severity,
        sign=state.sign,
        sentence=state.finding,
        step=state.step,
        since=state.since,
    )


def _merge_loop_findings(loops: list[SubjectState]) -> SubjectFinding:
    blind = "loop-blind" in loops[0].rules
    words = "have no valid measurement" if blind else "have stopped"
    return SubjectFinding(
        subject="",
        severity=loops[0].severity,
        sign=loops[0].sign,
        sentence=f"{format_count(len(loops), 'loop')} {words}.",
        step=loops[0].step,
        since=min((loop.since for loop in loops if loop.since is not None), default=None),
    )


def _describe_all_well(snapshot: Snapshot) -> str:
    unknown = [state.name for state in snapshot.states.values() if state.severity == "unknown"]
    if unknown:
        return f"No problems found; state unknown: {format_names(unknown)}."
    count = len(snapshot.nodes)
    nodes = "The only node is" if count == 1 else f"All {count} nodes"
    share = snapshot.totals.shed_share
    shed = f"{format_percent(share, 2)} of the events that patterns could use are shed" if share else "nothing shed"
    return f"{nodes} normal; every queue keeps up; {shed}."
