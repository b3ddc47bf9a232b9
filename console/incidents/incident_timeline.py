"""The timeline of one incident, the oldest first.

It has the changes before the incident, its alerts, and actions of loops, plans, and people. Long parts keep their
newest items and the number of earlier ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.urls import reverse
from django.utils import timezone

from console.incidents.change_sources import find_recorded_changes
from console.incidents.changes import load_changes
from controllers.diagnosis.changes import SLACK_SECONDS
from controllers.framework.reason import format_count
from workers.alerts import history
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
    """Return all events."""
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
    response = history.build_alert_response(alert)
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
