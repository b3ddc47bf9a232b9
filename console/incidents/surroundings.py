"""Events around an instant: changes by people and parts, deploys, and incidents, as rows with links."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.db.models import Q
from django.urls import reverse

from console.accounts.access import Actor
from console.incidents.change_rows import build_change_rows
from console.incidents.change_sources import find_recorded_changes
from console.incidents.changes import IncidentChange
from workers.alerts.lifecycle.models import Alert

AROUND = timedelta(minutes=15)
MAX_ROWS = 30


@dataclass(frozen=True, kw_only=True)
class NearbyEvent:
    """A change or an incident near an instant.

    offset_seconds: its distance to the instant, negative if it was before. outside_url: of the system that reported it.
    """

    at: datetime
    offset_seconds: float
    kind: str
    words: str
    by: str
    url: str
    outside_url: str = ""

    @property
    def before_seconds(self) -> float:
        return -self.offset_seconds


def list_nearby_events(instant: datetime, actor: Actor, data: Path) -> list[NearbyEvent]:
    """Return what happened within AROUND of an instant, the oldest first; of many, the nearest MAX_ROWS."""
    rows = [*_iterate_changes(instant, actor, data), *_iterate_incidents(instant)]
    nearest = sorted(rows, key=lambda row: abs(row.offset_seconds))[:MAX_ROWS]
    return sorted(nearest, key=lambda row: row.at)


def _iterate_changes(instant: datetime, actor: Actor, data: Path) -> Iterator[NearbyEvent]:
    found = find_recorded_changes(instant - AROUND, instant + AROUND, data)
    nearest = sorted(found, key=lambda change: abs(change.at - instant))[:MAX_ROWS]
    changes = [
        IncidentChange(
            kind=change.kind,
            at=change.at,
            words=change.words,
            by=change.by,
            ref=change.ref,
            steps=None,
            delay_seconds=(instant - change.at).total_seconds(),
            weight=0.0,
        )
        for change in nearest
    ]
    for row in build_change_rows(changes, actor):
        change = row.change
        yield NearbyEvent(
            at=change.at,
            offset_seconds=-change.delay_seconds,
            kind=change.kind,
            words=change.words,
            by=change.by,
            url=row.url,
            outside_url=row.outside_url,
        )


def _iterate_incidents(instant: datetime) -> Iterator[NearbyEvent]:
    """Yield incidents that fired, or were resolved, near the instant."""
    since, until = instant - AROUND, instant + AROUND
    near = Q(fired_at__range=(since, until)) | Q(resolved_at__range=(since, until))
    for alert in Alert.objects.filter(near, fired_at__isnull=False, under=None).order_by("-fired_at")[:MAX_ROWS]:
        for at, what in ((alert.fired_at, "fired"), (alert.resolved_at, "was resolved")):
            if at is not None and since <= at <= until:
                yield NearbyEvent(
                    at=at,
                    offset_seconds=(at - instant).total_seconds(),
                    kind="incident",
                    words=f"Incident {alert.pk} {what}: {alert.title}",
                    by="",
                    url=reverse("alert", args=[alert.pk]),
                )
