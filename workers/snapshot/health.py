"""The plant's state in one calm sentence: that of its worst subject, or alert of no subject. The others are
a list.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from controllers.framework.reason import are, counted, listed, percent
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, STATES
from workers.alerts.evaluation.impact import first_step
from workers.documents.alerts import AlertStatus
from workers.documents.parts import unready
from workers.documents.snapshot import PlantHealth, Snapshot
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, SubjectState
from workers.snapshot.states.judgement import SIGNS, WORDS

LOOPS_ALONE = 2  # more loops with the same fault are one finding
# What the states of the subjects say already, as it is now: their alerts fire later and end later.
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


def health(snapshot: Snapshot) -> PlantHealth:
    """Of a snapshot whose states are evaluated."""
    found = [*_findings(snapshot), *_of_alerts(snapshot.alerts)]
    place = _place_in_incidents(snapshot.alerts)
    findings = sorted(found, key=lambda each: (badness(each), place.get(each.subject, 0)), reverse=True)
    names = list(unready(snapshot.parts))
    if names and not any(_is_of_no_start(each, names) for each in findings):
        said = f"The plant is starting: {listed(names)} {are(names)} not ready yet."
        return PlantHealth(BUSY, said, severity="notice", findings=findings, word=WORDS["notice"])
    if not findings:
        return PlantHealth(NORMAL, _all_well(snapshot), word=WORDS["well"])
    worst = findings[0]
    # A node that was emptied and taken away is offline, and the plant is not.
    emptied = worst.severity == "notice" and worst.sign == OFFLINE
    sign = NORMAL if emptied else worst.sign or NORMAL
    word = _word(worst, snapshot.states.get(worst.subject))
    return PlantHealth(sign, worst.sentence, severity=worst.severity, findings=findings, word=word)


def _word(finding: SubjectFinding, state: SubjectState | None) -> str:
    """What is true of the finding: the subject's own word where the state is of it, as a node's load and
    silence are; else how severe it is.
    """
    own = state is not None and state.finding == finding.sentence and state.severity == finding.severity
    return state.word if state is not None and own else WORDS[finding.severity]


def _place_in_incidents(alerts: Iterable[AlertStatus]) -> dict[str, int]:
    """{"kind/name": 1 where an alert of it explains others, -1 where each one of its alerts is explained}: of
    findings as bad as each other, the headline is that of the incident.
    """
    rows = [(f"{kind}/{name}", each) for each in alerts for kind, name in each.labels.items()]
    explaining = {each.under for each in alerts}
    place = {subject: -1 for subject, each in rows if each.under is not None}
    place |= {subject: 0 for subject, each in rows if each.under is None}
    return place | {subject: 1 for subject, each in rows if each.under is None and each.id in explaining}


def _is_of_no_start(finding: SubjectFinding, names: list[str]) -> bool:
    """Whether a critical finding is about a part that does not start."""
    kind, _, name = finding.subject.partition("/")
    return finding.severity == "critical" and not {kind, f"{kind} {name}"} & set(names)


def badness(state: SubjectState | SubjectFinding) -> tuple[int, int]:
    """How bad it is, for lists: by severity, then by sign."""
    sign = STATES.index(state.sign) if state.sign in STATES else -1
    return SEVERITIES.index(state.severity), sign


def _findings(snapshot: Snapshot) -> Iterator[SubjectFinding]:
    """What another subject, or an alert about all loops or about those of an attached plant, explains is left
    out; loops with the same fault are one.
    """
    heard = [each for each in snapshot.alerts if _is_heard(each)]
    all_loops = any(each.condition in OF_ALL_LOOPS for each in heard)
    plants = {each.labels.get("plant") for each in heard if each.condition in OF_A_PLANT} - {None}

    def is_explained(loop: str) -> bool:
        row = snapshot.loops.get(loop)
        return all_loops or (row is not None and row.target.get("plant") in plants)

    found = [
        each
        for each in snapshot.states.values()
        if each.finding and each.within is None and not (each.kind == "loop" and is_explained(each.name))
    ]
    yield from (_finding(each) for each in found if each.kind != "loop")
    yield from (finding for each in found for finding in each.also)
    loops = sorted((each for each in found if each.kind == "loop"), key=lambda each: each.rules)
    for _, group in groupby(loops, key=lambda each: each.rules):
        alike = list(group)
        if len(alike) <= LOOPS_ALONE:
            yield from (_finding(each) for each in alike)
        else:
            yield _together(alike)


def _of_alerts(alerts: Iterable[AlertStatus]) -> Iterator[SubjectFinding]:
    """What no state of a subject says: an open alert about Weir itself, its host, its audit, a plan, an
    objective. One that is explained, silenced or snoozed is left out.
    """
    for each in alerts:
        if each.severity == "notice" or each.condition in JUDGED or not _is_heard(each):
            continue
        severity: Severity = "critical" if each.severity == "critical" else "warning"
        yield SubjectFinding(
            subject=f"alert/{each.id}",
            severity=severity,
            sign=SIGNS[severity],
            sentence=each.sentence or f"{each.title}.",
            step=first_step(each.condition),
            since=each.since,
        )


def _is_heard(alert: AlertStatus) -> bool:
    """One that is silenced, snoozed or explained says nothing here, and so explains nothing either."""
    return alert.quiet in (None, "acknowledged")


def _finding(state: SubjectState) -> SubjectFinding:
    return SubjectFinding(
        subject=f"{state.kind}/{state.name}",
        severity=state.severity,
        sign=state.sign,
        sentence=state.finding,
        step=state.step,
        since=state.since,
    )


def _together(loops: list[SubjectState]) -> SubjectFinding:
    blind = "loop-blind" in loops[0].rules
    words = "have no valid measurement" if blind else "have stopped"
    return SubjectFinding(
        subject="",
        severity=loops[0].severity,
        sign=loops[0].sign,
        sentence=f"{counted(len(loops), 'loop')} {words}.",
        step=loops[0].step,
        since=min((each.since for each in loops if each.since is not None), default=None),
    )


def _all_well(snapshot: Snapshot) -> str:
    unknown = [each.name for each in snapshot.states.values() if each.severity == "unknown"]
    if unknown:
        return f"Nothing is wrong; not known yet: {listed(unknown)}."
    count = len(snapshot.nodes)
    nodes = "The only node is" if count == 1 else f"All {count} nodes"
    share = snapshot.totals.shed_share
    shed = f"{percent(share, 2)} of what patterns could use is shed" if share else "nothing shed"
    return f"{nodes} normal; every queue keeps up; {shed}."
