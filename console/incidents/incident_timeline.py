"""The timeline of one incident, the oldest first.

It has the changes before the incident, its alerts, and actions of loops, plans, and people. Long parts keep their
newest items and the number of earlier ones.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.urls import reverse
from django.utils import timezone

from console.display.formats import format_value
from console.incidents.change_sources import find_recorded_changes
from console.incidents.changes import load_changes
from controllers.diagnosis.changes import SLACK_SECONDS
from controllers.framework.reason import format_count
from workers.alerts import incidents, review
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle.models import Alert, AlertEvent

MAX_BEFORE, MAX_MEANWHILE, MAX_EVENTS = 5, 60, 200
FIRST_EVENTS = 20  # of an alert, which are always kept: how it started, and who had it
Kind = AlertEvent.Kind
WORDS = {Kind.NOTIFIED: "Notified"}  # an older word for the stored value


@dataclass(frozen=True, order=True)
class IncidentEvent:
    """An event at an instant. kind: change, alert, loop, plan, person, or note."""

    at: datetime
    kind: str
    words: str
    by: str = ""
    url: str = ""


def list_timeline_events(alert: Alert, data: Path) -> list[IncidentEvent]:
    people = _limit_to_newest(list_changes_during(alert, data), MAX_MEANWHILE, "change")
    rows = [
        *_list_causes(alert),
        *_iterate_alert_events(alert),
        *_list_explained(alert),
        *_iterate_loop_responses(alert),
        *people,
    ]
    return sorted(rows, key=lambda row: (row.at, row.kind))


def _limit_to_newest(rows: Sequence[IncidentEvent], most: int, what: str) -> Iterator[IncidentEvent]:
    """Return the last rows, preceded by the number of earlier ones."""
    if (more := len(rows) - most) > 0:
        yield _describe_left_out(rows[more - 1].at, rows[more - 1].kind, more, what)
    yield from rows[-most:]


def _describe_left_out(at: datetime, kind: str, count: int, what: str) -> IncidentEvent:
    """Return an event for omitted ones, at the last of them, without an author."""
    shown = "change" if kind == "person" else kind
    return IncidentEvent(at, shown, f"Omitted here: {format_count(count, what)}.")


def _list_causes(alert: Alert) -> Iterator[IncidentEvent]:
    """Return the most likely causes."""
    for change in load_changes(alert)[:MAX_BEFORE]:
        if change.steps is not None:
            yield IncidentEvent(change.at, "change", change.words, change.by)


def _iterate_alert_events(alert: Alert) -> Iterator[IncidentEvent]:
    yield IncidentEvent(alert.began_at, "alert", "Onset: the alert's condition was true for the first time.")
    rows = alert.events.select_related("by").order_by("at", "pk")
    more = max(0, rows.count() - MAX_EVENTS)
    if more:
        yield _describe_left_out(rows[FIRST_EVENTS + more - 1].at, "alert", more, "event")
    for event in [*rows[:FIRST_EVENTS], *rows[FIRST_EVENTS + more :]]:
        by = event.by.get_username() if event.by else ""
        what = WORDS.get(Kind(event.kind), event.kind.capitalize())
        is_note = event.kind == Kind.NOTE
        words = event.text if is_note else f"{what}{': ' + event.text if event.text else ''}"
        yield IncidentEvent(event.at, "note" if is_note else "alert", words, by)


def _list_explained(alert: Alert) -> Iterator[IncidentEvent]:
    """Return when the alerts that it explains started and ended."""
    fired = alert.explained.filter(fired_at__isnull=False).order_by("-fired_at")
    alerts = list(fired[: MAX_MEANWHILE + 1])
    if len(alerts) > MAX_MEANWHILE:
        last = alerts.pop().fired_at
        assert last is not None
        # Counted after they were read: some may have moved to another incident since.
        yield _describe_left_out(last, "alert", max(1, fired.count() - MAX_MEANWHILE), "explained alert")
    for explained_alert in alerts:
        url = reverse("alert", args=[explained_alert.pk])
        assert explained_alert.fired_at is not None
        yield IncidentEvent(
            explained_alert.fired_at, "alert", f"Explained alert fired: {explained_alert.title}", "", url
        )
        if explained_alert.resolved_at is not None:
            yield IncidentEvent(explained_alert.resolved_at, "alert", f"Resolved: {explained_alert.title}", "", url)


def _iterate_loop_responses(alert: Alert) -> Iterator[IncidentEvent]:
    response = review.build_alert_response(alert)
    for entry in response.entries:
        words = f"{entry.reason} ({entry.verdict})"
        yield IncidentEvent(entry.at, "loop", words, entry.loop.name, reverse("entry", args=[entry.pk]))
    if (more := response.outcome.count + response.outcome.before - len(response.entries)) > 0:
        yield _describe_left_out(min(response_entry.at for response_entry in response.entries), "loop", more, "action")
    for plan in response.plans:
        words = f"Plan proposed: {plan.title} ({plan.get_state_display().lower()})"
        url = reverse("plan", args=[plan.pk])
        yield IncidentEvent(plan.created_at, "plan", words, plan.law or "recovery", url)


def list_changes_during(alert: Alert, data: Path, until: datetime | None = None) -> list[IncidentEvent]:
    """Return the changes from its onset until then (None: to its end), except by loops; the oldest first."""
    since = alert.began_at + timedelta(seconds=SLACK_SECONDS)
    end = until or alert.resolved_at or timezone.now()
    if end <= since:
        return []
    return [
        IncidentEvent(
            recorded_change.at, "person" if recorded_change.by else "change", recorded_change.words, recorded_change.by
        )
        for recorded_change in find_recorded_changes(since, end, data)
    ]


MAX_CHANGES, MAX_ACTIONS = 5, 12
SIGNS = re.compile(r"([\\`*_\[\]<>#|~])")


def review_of(alert: Alert, data: Path) -> str:
    """Return the text, edited or drafted."""
    return incidents.get_incident(alert).review or draft(alert, data)


def draft(alert: Alert, data: Path) -> str:
    """Return a draft from the records, with questions for what only a person knows."""
    happened = list_timeline_events(alert, data)
    parts = (
        _format_heading(alert),
        _format_section("Impact", [_escape_line(impact.read_recorded_impact(alert)) or TO_WRITE]),
        _format_section("Times", _format_duration_table(alert)),
        _format_section("Changes before the incident", _describe_changes(alert)),
        _format_section("Actions of the control loops", _describe_loop_actions(alert)),
        _format_section("Effective actions", _describe_remedies(alert, data)),
        _format_section("Timeline", [_describe_event(event) for event in happened]),
        _format_section("What went well, what went wrong, where we got lucky", [TO_WRITE]),
        _format_section("Follow-ups", _follow_ups(alert)),
    )
    return "\n\n".join(parts) + "\n"


TO_WRITE = "_To be written._"


def _format_heading(alert: Alert) -> str:
    incident = incidents.get_incident(alert)
    roles = ", ".join(f"{role} {_escape_line(who)}" for role, who in sorted(incident.roles.items()) if who)
    end = _format_time(alert.resolved_at) if alert.resolved_at else "now (still open)"
    sentence = _escape_line(alert.worst_sentence or alert.sentence)
    rows = [
        f"- Severity: {incidents.get_severity(alert)}",
        f"- Alert {alert.pk}, rule {_escape_line(alert.rule_name)}: {sentence or 'no description'}",
        f"- From {_format_time(alert.began_at)} to {end}",
        f"- Roles: {roles or 'none assigned'}",
    ]
    return "\n".join([f"# Review: {_escape_line(alert.title)}", "", *rows])


def _format_duration_table(alert: Alert) -> Iterator[str]:
    times = incidents.compute_incident_times(alert)
    yield "| until | after |"
    yield "|---|---|"
    for name, seconds in (
        ("detected (from the onset)", times.detect_seconds),
        ("acknowledged", times.acknowledge_seconds),
        ("mitigated", times.mitigate_seconds),
        ("resolved", times.resolve_seconds),
    ):
        yield f"| {name} | {'not recorded' if seconds is None else format_value(seconds, 'age')} |"


def _describe_changes(alert: Alert) -> list[str]:
    rows = [change for change in load_changes(alert) if change.steps is not None][:MAX_CHANGES]
    if not rows and incidents.get_incident(alert).changes_at is None:
        return ["Changes before the incident have not been searched yet."]
    if not rows:
        return ["No upstream changes in the 3 h before the incident."]
    lines = []
    for at, change in enumerate(rows, 1):
        by = f", by {_escape_line(change.by)}" if change.by else ""
        before = f"; a similar change preceded {change.before} of {change.incidents} earlier similar incidents"
        record = before if change.incidents else ""
        lines.append(
            f"{at}. {_escape_line(change.words)} ({format_value(change.delay_seconds, 'age')} before{by}{record})"
        )
    return lines


def _describe_loop_actions(alert: Alert) -> Iterator[str]:
    response = review.build_alert_response(alert)
    yield response.outcome.words
    if response.entries:
        yield ""
    for entry in response.entries[:MAX_ACTIONS]:
        name, reason = _escape_line(entry.loop.name), _escape_line(entry.reason)
        yield f"- {_format_time(entry.at)} {name}: {reason} ({entry.verdict})"


def _describe_remedies(alert: Alert, data: Path) -> list[str]:
    """Return the effective actions, and the last actions of people before it was mitigated or resolved."""
    end = incidents.get_incident(alert).mitigated_at or alert.resolved_at
    effective = review.select_effective_actions(alert, end)
    shown = list(effective[:MAX_ACTIONS])
    rows = [f"- Loop {_escape_line(change.loop.name)}: {_escape_line(change.reason)}" for change in shown]
    if more := effective.count() - len(shown):
        rows.append(f"- {format_count(more, 'earlier effective action')} by loops")
    acted = [change for change in list_changes_during(alert, data, end) if change.kind == "person"]
    rows += [f"- {_escape_line(action.by)}: {_escape_line(action.words)} (did it help?)" for action in acted[-3:]]
    return rows or ["No recorded action was effective. " + TO_WRITE]


def _follow_ups(alert: Alert) -> list[str]:
    incident = incidents.get_incident(alert)
    rows = incident.follow_ups.order_by("pk") if incident.pk else []
    lines = [
        f"- [{'x' if row.done_at else ' '}] {_escape_line(row.text)}"
        f"{f' ({_escape_line(row.owner)})' if row.owner else ''}{f', due {row.due_on}' if row.due_on else ''}"
        for row in rows
    ]
    return lines or ["None yet."]


def _describe_event(event: IncidentEvent) -> str:
    by = f" ({_escape_line(event.by)})" if event.by else ""
    return f"- {_format_time(event.at)} {_escape_line(event.words)}{by}"


def _format_section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *lines])


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _escape_line(text: str) -> str:
    return SIGNS.sub(r"\\\1", " ".join(text.split()))
