"""The review of an incident in Markdown: as edited, or else a draft from the records.

External texts are one line each, with Markdown escaped: a note can't create a heading.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from console.display.formats import format_value
from console.incidents.changes import load_changes
from console.incidents.incident_timeline import IncidentEvent, list_changes_during, list_timeline_events
from controllers.framework.reason import format_count
from workers.alerts import history, incidents
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle.models import Alert

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
    for at, each in enumerate(rows, 1):
        by = f", by {_escape_line(each.by)}" if each.by else ""
        before = f"; a similar change preceded {each.before} of {each.incidents} earlier similar incidents"
        record = before if each.incidents else ""
        lines.append(f"{at}. {_escape_line(each.words)} ({format_value(each.delay_seconds, 'age')} before{by}{record})")
    return lines


def _describe_loop_actions(alert: Alert) -> Iterator[str]:
    response = history.build_alert_response(alert)
    yield response.outcome.words
    if response.entries:
        yield ""
    for entry in response.entries[:MAX_ACTIONS]:
        name, reason = _escape_line(entry.loop.name), _escape_line(entry.reason)
        yield f"- {_format_time(entry.at)} {name}: {reason} ({entry.verdict})"


def _describe_remedies(alert: Alert, data: Path) -> list[str]:
    """Return the effective actions, and the last actions of people before it was mitigated or resolved."""
    end = incidents.get_incident(alert).mitigated_at or alert.resolved_at
    effective = history.select_effective_actions(alert, end)
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
    """Return the text as one line."""
    return SIGNS.sub(r"\\\1", " ".join(text.split()))
