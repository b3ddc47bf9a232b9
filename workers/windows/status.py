"""Planned windows as the snapshot has them."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count

from workers.documents.windows import PlannedWindowStatus
from workers.windows import occurrences
from workers.windows.models import ExpectedAlert, PlannedWindow
from workers.windows.occurrences import NOTICE, WindowOccurrence


def list_window_statuses(windows: Iterable[PlannedWindow], now: datetime) -> list[PlannedWindowStatus]:
    """Return the occurrences that are active or begin within an hour, the earliest end first."""
    rows = occurrences.list_all_between(windows, now, now + NOTICE)
    counts = count_silenced([row.window for row in rows]) if rows else {}
    statuses = [
        build_window_status(row, now, counts.get((row.window.pk, row.local_start), 0))
        for row in rows
        if row.ends_at > now
    ]
    return sorted(statuses, key=lambda status: (not status.active, status.ends_at, status.id))


def count_silenced(windows: Iterable[PlannedWindow]) -> dict[tuple[int, str], int]:
    """Return the number of alerts that each occurrence of the windows has silenced."""
    rows = ExpectedAlert.objects.filter(window__in=[window.pk for window in windows])
    counted = rows.values_list("window", "local_start").annotate(count=Count("pk"))
    return {(window, local_start): count for window, local_start, count in counted}


def build_window_status(occurrence: WindowOccurrence, now: datetime, silenced: int) -> PlannedWindowStatus:
    window = occurrence.window
    return PlannedWindowStatus(
        id=window.pk,
        name=window.name,
        kind=window.kind,
        scope=window.scope,
        loop_mode=window.loop_mode,
        active=occurrence.is_active(now),
        occurrence=occurrence.local_start,
        starts_at=occurrence.starts_at.timestamp(),
        ends_at=occurrence.ends_at.timestamp(),
        silenced=silenced,
        owner=window.owner.get_username(),
        reason=window.reason,
    )
