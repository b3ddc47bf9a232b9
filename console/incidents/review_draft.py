"""The review of an incident in Markdown: as edited, or else a draft from the records.

External texts are one line each, with Markdown escaped: a note can't create a heading.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from console.display.formats import formatted
from console.incidents.changes import changes_of
from console.incidents.incident_timeline import IncidentEvent, changes_meanwhile, timeline_of
from controllers.framework.reason import format_count
from workers.alerts import history, incidents
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle.models import Alert

MAX_CHANGES, MAX_ACTIONS = 5, 12
SIGNS = re.compile(r"([\\`*_\[\]<>#|~])")


def review_of(alert: Alert, data: Path) -> str:
    """Return the text, edited or drafted."""
    return incidents.incident_of(alert).review or draft(alert, data)


def draft(alert: Alert, data: Path) -> str:
    """Return a draft from the records, with questions for what only a person knows."""
    happened = timeline_of(alert, data)
    parts = (
        _head(alert),
        _section("Impact", [_line(impact.read_recorded_impact(alert)) or TO_WRITE]),
        _section("Times", _times(alert)),
        _section("Changes before the incident", _changes(alert)),
        _section("Actions of the control loops", _loops(alert)),
        _section("Effective actions", _describe_remedies(alert, data)),
        _section("Timeline", [_describe_event(event) for event in happened]),
        _section("What went well, what went wrong, where we got lucky", [TO_WRITE]),
        _section("Follow-ups", _follow_ups(alert)),
    )
    return "\n\n".join(parts) + "\n"


TO_WRITE = "_To be written._"


def _head(alert: Alert) -> str:
    incident = incidents.incident_of(alert)
    roles = ", ".join(f"{role} {_line(who)}" for role, who in sorted(incident.roles.items()) if who)
    end = _format_time(alert.resolved_at) if alert.resolved_at else "now (still open)"
    sentence = _line(alert.worst_sentence or alert.sentence)
    rows = [
        f"- Severity: {incidents.severity_of(alert)}",
        f"- Alert {alert.pk}, rule {_line(alert.rule_name)}: {sentence or 'no description'}",
        f"- From {_format_time(alert.began_at)} to {end}",
        f"- Roles: {roles or 'none assigned'}",
    ]
    return "\n".join([f"# Review: {_line(alert.title)}", "", *rows])


def _times(alert: Alert) -> Iterator[str]:
    times = incidents.times(alert)
    yield "| until | after |"
    yield "|---|---|"
    for name, seconds in (
        ("detected (from the onset)", times.detect_seconds),
        ("acknowledged", times.acknowledge_seconds),
        ("mitigated", times.mitigate_seconds),
        ("resolved", times.resolve_seconds),
    ):
        yield f"| {name} | {'not recorded' if seconds is None else formatted(seconds, 'age')} |"


def _changes(alert: Alert) -> list[str]:
    rows = [change for change in changes_of(alert) if change.steps is not None][:MAX_CHANGES]
    if not rows and incidents.incident_of(alert).changes_at is None:
        return ["Changes before the incident have not been searched yet."]
    if not rows:
        return ["No upstream changes in the 3 h before the incident."]
    lines = []
    for at, each in enumerate(rows, 1):
        by = f", by {_line(each.by)}" if each.by else ""
        before = f"; a similar change preceded {each.before} of {each.incidents} earlier similar incidents"
        record = before if each.incidents else ""
        lines.append(f"{at}. {_line(each.words)} ({formatted(each.delay_seconds, 'age')} before{by}{record})")
    return lines


def _loops(alert: Alert) -> Iterator[str]:
    response = history.response(alert)
    yield response.outcome.words
    if response.entries:
        yield ""
    for entry in response.entries[:MAX_ACTIONS]:
        yield f"- {_format_time(entry.at)} {_line(entry.loop.name)}: {_line(entry.reason)} ({entry.verdict})"


def _describe_remedies(alert: Alert, data: Path) -> list[str]:
    """Return the effective actions, and the last actions of people before it was mitigated or resolved."""
    end = incidents.incident_of(alert).mitigated_at or alert.resolved_at
    effective = history.effective_until(alert, end)
    shown = list(effective[:MAX_ACTIONS])
    rows = [f"- Loop {_line(change.loop.name)}: {_line(change.reason)}" for change in shown]
    if more := effective.count() - len(shown):
        rows.append(f"- {format_count(more, 'earlier effective action')} of loops")
    acted = [change for change in changes_meanwhile(alert, data, end) if change.kind == "person"]
    rows += [f"- {_line(action.by)}: {_line(action.words)} (did it help?)" for action in acted[-3:]]
    return rows or ["No recorded action was effective. " + TO_WRITE]


def _follow_ups(alert: Alert) -> list[str]:
    incident = incidents.incident_of(alert)
    rows = incident.follow_ups.order_by("pk") if incident.pk else []
    lines = [
        f"- [{'x' if row.done_at else ' '}] {_line(row.text)}"
        f"{f' ({_line(row.owner)})' if row.owner else ''}{f', due {row.due_on}' if row.due_on else ''}"
        for row in rows
    ]
    return lines or ["None yet."]


def _describe_event(event: IncidentEvent) -> str:
    by = f" ({_line(event.by)})" if event.by else ""
    return f"- {_format_time(event.at)} {_line(event.words)}{by}"


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"## {title}", "", *lines])


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _line(text: str) -> str:
    """Return the text as one line."""
    return SIGNS.sub(r"\\\1", " ".join(text.split()))
