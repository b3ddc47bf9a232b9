"""Alerts that planned windows expect: they are silenced during an occurrence, and listed with it."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.db.models import QuerySet

from workers.alerts.conditions.catalog import INTEGRITY
from workers.alerts.lifecycle.models import Alert
from workers.alerts.rules import rules
from workers.alerts.rules.silences import get_matchable_labels
from workers.windows import occurrences
from workers.windows.models import ExpectedAlert, PlannedWindow
from workers.windows.occurrences import WindowOccurrence
from workers.windows.scope import covers_labels, covers_target

Targets = Mapping[str, Mapping[str, str]]  # of loops, by name


def list_silencing_occurrences(now: datetime) -> list[WindowOccurrence]:
    """Return the active occurrences of windows that silence alerts."""
    windows = occurrences.list_current_windows(now).exclude(kind=PlannedWindow.Kind.FREEZE)
    return occurrences.list_active(now, windows)


def find_occurrence(alert: Alert, active: Iterable[WindowOccurrence], targets: Targets) -> WindowOccurrence | None:
    """Return the occurrence that expects an alert; of several, the one that ends last."""
    expecting = [row for row in active if is_expected(row.window, alert, targets)]
    return max(expecting, key=lambda row: (row.ends_at, -row.window.pk), default=None)


def is_expected(window: PlannedWindow, alert: Alert, targets: Targets) -> bool:
    """Return whether a window expects an alert: it is in the scope, and matches. Weir's own integrity never is."""
    if window.kind == PlannedWindow.Kind.FREEZE or alert.condition in INTEGRITY:
        return False
    if not rules.matches(window.expected, get_matchable_labels(alert)):
        return False
    if not window.scope:
        return window.kind == PlannedWindow.Kind.SILENCE
    if target := targets.get(alert.labels.get("loop", "")):
        return covers_target(window.scope, target)
    return covers_labels(window.scope, alert.labels)


def record(alert: Alert, occurrence: WindowOccurrence, now: datetime) -> ExpectedAlert:
    """Record that an occurrence silences an alert, and return the record."""
    return ExpectedAlert.objects.get_or_create(
        window=occurrence.window,
        alert=alert,
        local_start=occurrence.local_start,
        defaults={"starts_at": occurrence.starts_at, "ends_at": occurrence.ends_at, "at": now},
    )[0]


def list_silenced(window: PlannedWindow) -> QuerySet[ExpectedAlert]:
    """Return the alerts that the window has silenced, the newest occurrence first."""
    return window.silenced.select_related("alert").order_by("-starts_at", "-at", "-pk")
