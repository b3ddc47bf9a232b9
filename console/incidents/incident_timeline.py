"""The timeline of one incident: what changed before, what happened to its alerts, what loops, plans and
people did meanwhile; the oldest first.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.urls import reverse
from django.utils import timezone

from console.incidents.change_sources import recorded_changes
from console.incidents.changes import changes_of
from controllers.diagnosis.changes import SLACK_SECONDS
from workers.alerts import history
from workers.alerts.lifecycle.models import Alert, AlertEvent

MOST_BEFORE, MOST_MEANWHILE, MOST_EVENTS = 5, 60, 200
Kind = AlertEvent.Kind
WORDS = {Kind.NOTIFIED: "Notified"}  # as it is stored is an older word


@dataclass(frozen=True, order=True)
class IncidentEvent:
    """What was at an instant. kind: change, alert, loop, plan, person or note."""

    at: datetime
    kind: str
    words: str
    by: str = ""
    url: str = ""


def timeline_of(alert: Alert, data: Path) -> list[IncidentEvent]:
    """All of them."""
    rows = [*_before(alert), *_events(alert), *_explained(alert), *_loops(alert), *_people(alert, data)]
    return sorted(rows, key=lambda row: (row.at, row.kind))


def _before(alert: Alert) -> Iterator[IncidentEvent]:
    """The likeliest causes."""
    for each in changes_of(alert)[:MOST_BEFORE]:
        if each.steps is not None:
            yield IncidentEvent(each.at, "change", each.words, each.by)


def _events(alert: Alert) -> Iterator[IncidentEvent]:
    yield IncidentEvent(alert.began_at, "alert", "Began: its condition was true for the first time.")
    rows = alert.events.select_related("by").order_by("at", "pk")[:MOST_EVENTS]
    for event in rows:
        by = event.by.get_username() if event.by else ""
        what = WORDS.get(Kind(event.kind), event.kind.capitalize())
        is_note = event.kind == Kind.NOTE
        words = event.text if is_note else f"{what}{': ' + event.text if event.text else ''}"
        yield IncidentEvent(event.at, "note" if is_note else "alert", words, by)


def _explained(alert: Alert) -> Iterator[IncidentEvent]:
    """Of what it explains: when it began and ended."""
    for each in alert.explained.filter(fired_at__isnull=False).order_by("fired_at")[:MOST_MEANWHILE]:
        url = reverse("alert", args=[each.pk])
        assert each.fired_at is not None
        yield IncidentEvent(each.fired_at, "alert", f"Explained by it, fired: {each.title}", "", url)
        if each.resolved_at is not None:
            yield IncidentEvent(each.resolved_at, "alert", f"Resolved: {each.title}", "", url)


def _loops(alert: Alert) -> Iterator[IncidentEvent]:
    response = history.response(alert)
    for entry in response.entries:
        words = f"{entry.reason} ({entry.verdict})"
        yield IncidentEvent(entry.at, "loop", words, entry.loop.name, reverse("entry", args=[entry.pk]))
    for plan in response.plans:
        words = f"Plan proposed: {plan.title} ({plan.get_state_display()})"
        url = reverse("plan", args=[plan.pk])
        yield IncidentEvent(plan.created_at, "plan", words, plan.law or "recovery", url)


def _people(alert: Alert, data: Path) -> Iterator[IncidentEvent]:
    """What was changed from its onset to its end, but by loops."""
    since = alert.began_at + timedelta(seconds=SLACK_SECONDS)
    until = alert.resolved_at or timezone.now()
    if until <= since:
        return
    for each in recorded_changes(since, until, data)[:MOST_MEANWHILE]:
        yield IncidentEvent(each.at, "person" if each.by else "change", each.words, each.by)
