"""Occurrences of planned windows: computed when they are needed, so no process has to start or end one."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice

from django.db.models import Q, QuerySet

from workers.windows.models import PlannedWindow
from workers.windows.recurrence import Recurrence, add_elapsed

logger = logging.getLogger(__name__)
MAX_EXTENSION = timedelta(days=7)  # of an occurrence beyond its planned end
UNCOMPUTABLE = (ValueError, LookupError, OverflowError)  # for example, a time zone that this host doesn't know
NOTICE = timedelta(minutes=60)  # before an occurrence, pages name it


@dataclass(frozen=True)
class WindowOccurrence:
    """One occurrence of a window. local_start: its key; note: the effect of a clock change on it, "" for none."""

    window: PlannedWindow
    local_start: str
    starts_at: datetime
    ends_at: datetime
    note: str = ""

    @property
    def valid_since(self) -> datetime:
        """Return when the occurrence took effect: later than its start if the window was made or changed during it."""
        return max(self.starts_at, self.window.valid_since)

    def is_active(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at


def describe_window(occurrence: WindowOccurrence) -> str:
    """Return why something is different during an occurrence: planned window Upgrade until 2026-03-22 04:00 UTC."""
    return f"planned window {occurrence.window.name} until {occurrence.ends_at:%Y-%m-%d %H:%M} UTC"


def get_recurrence(window: PlannedWindow) -> Recurrence:
    return Recurrence(datetime.fromisoformat(window.local_start), window.time_zone, window.rule)


def list_current_windows(now: datetime) -> QuerySet[PlannedWindow]:
    """Return the windows that have an occurrence now or later, unless all of these were canceled."""
    lasts = Q(last_end=None) | Q(last_end__gt=now)
    return PlannedWindow.objects.filter(lasts, ended_at=None).select_related("owner").order_by("pk")


def select_due_windows(before: datetime) -> QuerySet[PlannedWindow]:
    """Return the windows that were over by then."""
    return PlannedWindow.objects.filter(Q(ended_at__lt=before) | Q(last_end__lt=before))


def list_active(now: datetime, windows: Iterable[PlannedWindow] | None = None) -> list[WindowOccurrence]:
    """Return the occurrences of current windows at this instant."""
    windows = list_current_windows(now) if windows is None else windows
    return [row for row in list_all_between(windows, now, now) if row.is_active(now)]


def list_all_between(windows: Iterable[PlannedWindow], since: datetime, until: datetime) -> list[WindowOccurrence]:
    """Return the occurrences of several windows that touch a time range.

    A window that can't be computed here never hides the others.
    """
    rows: list[WindowOccurrence] = []
    for window in windows:
        try:
            rows += list_between(window, since, until)
        except UNCOMPUTABLE as error:
            _log_once(window.pk, window.name, str(error))
    return rows


@lru_cache(maxsize=1_024)
def _log_once(pk: int, name: str, error: str) -> None:
    logger.error("Planned window %s (%s) has no effect, because it can't be computed: %s", name, pk, error)


def list_between(window: PlannedWindow, since: datetime, until: datetime) -> list[WindowOccurrence]:
    """Return the occurrences that touch a time range, the earliest first."""
    recurrence = get_recurrence(window)
    starts = recurrence.list_starts(since - window.duration - MAX_EXTENSION, until)
    occurrences = (build_occurrence(window, recurrence, start) for start in starts)
    return [row for row in occurrences if row is not None and row.ends_at > since and row.starts_at <= until]


def list_next(window: PlannedWindow, now: datetime, count: int) -> list[WindowOccurrence]:
    """Return the next occurrences that have not ended, the earliest first; none if they can't be computed here."""
    try:
        return list(islice(_iterate_next(window, now), count))
    except UNCOMPUTABLE as error:
        _log_once(window.pk, window.name, str(error))
        return []


def list_coming(now: datetime, count: int) -> list[WindowOccurrence]:
    """Return the next occurrences of all windows that have not begun, the earliest first."""
    rows = (row for window in list_current_windows(now) for row in list_next(window, now, count))
    return sorted((row for row in rows if row.starts_at > now), key=lambda row: row.starts_at)[:count]


def _iterate_next(window: PlannedWindow, now: datetime) -> Iterator[WindowOccurrence]:
    recurrence = get_recurrence(window)
    for start in recurrence.iterate_starts(now - window.duration - MAX_EXTENSION):
        if window.ended_at is not None and recurrence.convert_to_instant(start) >= window.ended_at:
            return
        occurrence = build_occurrence(window, recurrence, start)
        if occurrence is not None and occurrence.ends_at > now:
            yield occurrence


def build_occurrence(window: PlannedWindow, recurrence: Recurrence, start: datetime) -> WindowOccurrence | None:
    """Return the occurrence of a local start; None if it was canceled, or the window was not in force."""
    key = start.isoformat()
    starts_at = recurrence.convert_to_instant(start)
    ends_at = add_elapsed(starts_at, window.duration)
    if key in window.exceptions:
        changed_end = window.exceptions[key]
        if changed_end is None:
            return None
        ends_at = datetime.fromisoformat(changed_end)
    if window.ended_at is not None:
        ends_at = min(ends_at, window.ended_at)
    if ends_at <= max(starts_at, window.valid_since):
        return None
    return WindowOccurrence(window, key, starts_at, ends_at, recurrence.explain_clock_change(start))
