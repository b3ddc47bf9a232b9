"""Records of a drill: its alerts, the person's actions, the score, and the debrief."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.display.formats import format_minutes
from console.drills.scenarios import AssessedResponses, DrillScenario, assess, get_scenario
from console.drills.scoring import Verdict, compute_score
from console.models import AuditEntry, Drill
from controllers.framework.reason import format_count
from workers.alerts.lifecycle.models import Alert
from workers.models import LedgerEntry

Mark = Literal["fault", "alert", "right", "no effect", "harmful", "neutral", "loop", "over"]
Seconds = Callable[[datetime], float]  # after the first fault
MAX_ACTIONS = 200
MAX_LOOP_ROWS = 12
OWN = "drill."  # actions of the drill itself


@dataclass(frozen=True)
class DebriefRow:
    """A line of the debrief. seconds: after the first fault; note: a time or points."""

    seconds: float
    mark: Mark
    text: str
    note: str = ""


def list_open_drills() -> QuerySet[Drill]:
    """Return the drills that wait or run, the next first."""
    return Drill.objects.filter(ended_at=None).order_by("due_at", "pk")


def find_running() -> Drill | None:
    """Return the drill whose fault has started, if any."""
    return list_open_drills().exclude(started_at=None).first()


def list_drill_alerts(drill: Drill) -> list[Alert]:
    """Return the alerts that fired or came back during the drill, the oldest first. Notices call nobody."""
    if drill.started_at is None:
        return []
    span = (drill.started_at, drill.ended_at or timezone.now() + timedelta(days=1))
    rows = Alert.objects.exclude(severity="notice").filter(Q(fired_at__range=span) | Q(returned_at__range=span))
    return sorted(rows, key=lambda alert: (find_start(alert, drill), alert.pk))


def find_start(alert: Alert, drill: Drill) -> datetime:
    """Return when an alert first fired during the drill; for an older alert, when it fired again."""
    fired, returned = alert.fired_at, alert.returned_at
    assert fired is not None and drill.started_at is not None
    return fired if fired >= drill.started_at or returned is None else returned


def list_person_actions(drill: Drill) -> list[AuditEntry]:
    """Return the audited actions of the person who responds, the oldest first."""
    if drill.started_at is None or not drill.person:
        return []
    rows = AuditEntry.objects.filter(actor=drill.person, at__gte=drill.started_at)
    rows = rows.exclude(Q(action__startswith=OWN) | Q(action__startswith="failed.") | Q(action__startswith="refused."))
    if drill.ended_at is not None:
        rows = rows.filter(at__lte=drill.ended_at)
    return list(rows.order_by("at", "sequence")[:MAX_ACTIONS])


def note_incident_opened(person: str, alert: Alert, now: datetime) -> None:
    """Record that a person opened an incident of the running drill. The first person of a surprise drill responds."""
    drill = find_running()
    if drill is None or alert.since is None or drill.started_at is None or alert.since < drill.started_at:
        return
    if drill.person not in ("", person) or drill.noticed_at is not None:
        return
    Drill.objects.filter(pk=drill.pk, noticed_at=None).update(noticed_at=now, person=person)


def compute_seconds(drill: Drill, at: datetime | None) -> float | None:
    """Return the seconds from the alert to an instant; 0 before the alert, None without an instant."""
    if at is None or drill.started_at is None:
        return None
    return max(0.0, (at - (drill.alerted_at or drill.started_at)).total_seconds())


def find_responses(drill: Drill, scenario: DrillScenario) -> AssessedResponses:
    """Return the assessed actions of the person."""
    actions = list_person_actions(drill)
    rows = [(compute_seconds(drill, entry.at) or 0.0, entry) for entry in actions]
    return assess(scenario, drill.subjects, list(rows))


def evaluate(drill: Drill, now: datetime) -> None:
    """Update the drill's results from the records, without saving it.

    Raises `BadInput` for a scenario that does not exist any more.
    """
    scenario, alerts = get_scenario(drill.scenario), list_drill_alerts(drill)
    drill.alerted_at = next((find_start(alert, drill) for alert in alerts), None)
    drill.person = drill.person or _find_responder(drill, scenario)
    responses = find_responses(drill, scenario)
    drill.action_seconds = responses.action_seconds
    if drill.noticed_at is None and responses.action_seconds is not None and drill.started_at is not None:
        # Who acts on the right subject has noticed the fault, with or without the incident's page.
        begin = drill.alerted_at or drill.started_at
        drill.noticed_at = begin + timedelta(seconds=responses.action_seconds)
    has_ended = bool(alerts) and all(alert.resolved_at is not None for alert in alerts)
    if has_ended and drill.recovered_at is None:
        drill.recovered_at = max(alert.resolved_at for alert in alerts if alert.resolved_at is not None)
    elif not has_ended:
        drill.recovered_at = None
    noticed_seconds = compute_seconds(drill, drill.noticed_at)
    points = compute_score(noticed_seconds, responses.action_seconds, responses.verdicts)
    drill.points, drill.score = vars(points), points.total


def _find_responder(drill: Drill, scenario: DrillScenario) -> str:
    """Return the first person who took a right action; "" if nobody did."""
    if drill.started_at is None:
        return ""
    people = User.objects.values_list("username", flat=True)
    rows = AuditEntry.objects.filter(actor__in=people, at__gte=drill.started_at).exclude(action__startswith=OWN)
    entries = rows.order_by("at", "sequence")[:MAX_ACTIONS]
    return next((entry.actor for entry in entries if scenario.judge(entry, drill.subjects) == "right"), "")


def is_scored(drill: Drill) -> bool:
    """Return whether its score counts: it ran to its end, and a person responded or could have."""
    return drill.ending in (Drill.Ending.RECOVERED, Drill.Ending.TIME_OVER) and drill.alerted_at is not None


FAULT_WORDS: Mapping[str, str] = {
    "burst": "a producer sends 20 times the usual load to {queue}",
    "hot_key": "one key of {queue} gets 20 times the usual load",
    "slow_handler": "the handler of {queue} takes 8 times as long",
    "failing_events": "2 % of the events of {queue} fail on every attempt",
    "node_lost": "node {node} and its agent are killed",
    "observer_suspended": "the observer is suspended",
    "harmful_plan": "a plan moves most points of {queue} to {node}",
    "pipeline_killed": "the pipeline is killed",
}
VERDICT_NOTES: Mapping[Verdict, str] = {"no effect": "\u22125", "harmful": "\u221210"}


def build_debrief(drill: Drill) -> list[DebriefRow]:
    """Return what happened, in the order of time, from alerts, the audit log, and the ledger."""
    begin = drill.started_at
    if begin is None:
        return []
    scenario = get_scenario(drill.scenario)

    def after(at: datetime) -> float:
        return (at - begin).total_seconds()

    started = scenario.faults[: len(drill.faults)]
    rows = [
        DebriefRow(fault.after_seconds, "fault", f"Fault: {FAULT_WORDS[fault.kind].format(**drill.subjects)}.")
        for fault in started
    ]
    for alert in list_drill_alerts(drill):
        if alert.under_id is None:
            rows.append(
                DebriefRow(after(find_start(alert, drill)), "alert", f"Alert {alert.pk} (drill): {alert.title}.")
            )
    if drill.noticed_at is not None:
        note = format_minutes(compute_seconds(drill, drill.noticed_at))
        rows.append(DebriefRow(after(drill.noticed_at), "neutral", "Opened the incident.", note))
    rows += _build_action_rows(drill, scenario, after)
    rows += _build_loop_rows(drill, after)
    if drill.recovered_at is not None:
        rows.append(DebriefRow(after(drill.recovered_at), "over", "All alerts are resolved."))
    if drill.ended_at is not None:
        rows.append(DebriefRow(after(drill.ended_at), "over", f"The drill ended: {drill.ending}."))
    return sorted(rows, key=lambda row: row.seconds)


def _build_action_rows(drill: Drill, scenario: DrillScenario, after: Seconds) -> list[DebriefRow]:
    entries = list_person_actions(drill)
    verdicts = find_responses(drill, scenario).verdicts
    rows = []
    for entry, verdict in zip(entries, verdicts, strict=True):
        note = VERDICT_NOTES.get(verdict, "")
        if verdict == "right":
            note = format_minutes(compute_seconds(drill, entry.at))
        words = f"{entry.action.replace('.', ' ').replace('_', ' ').capitalize()}: {entry.target}."
        rows.append(DebriefRow(after(entry.at), verdict, words, note))
    return rows


def _build_loop_rows(drill: Drill, after: Seconds) -> list[DebriefRow]:
    """Return one row for each loop that acted, at its first action."""
    entries = LedgerEntry.objects.filter(acted=True, at__gte=drill.started_at)
    if drill.ended_at is not None:
        entries = entries.filter(at__lte=drill.ended_at)
    first: dict[str, LedgerEntry] = {}
    counts: dict[str, int] = {}
    for entry in entries.select_related("loop").order_by("at")[:5_000]:
        first.setdefault(entry.loop.name, entry)
        counts[entry.loop.name] = counts.get(entry.loop.name, 0) + 1
    rows = [
        DebriefRow(
            after(entry.at),
            "loop",
            f"Loop {name.replace('/', ' ')}: {entry.reason}",
            format_count(counts[name], "action"),
        )
        for name, entry in first.items()
    ]
    return sorted(rows, key=lambda row: row.seconds)[:MAX_LOOP_ROWS]
