"""Retention of ended settings: overrides, silences, tunings, and versions of applications.

Programs set them through the API, too, so their number is unlimited. Those that still have an effect stay, and so do
the newest: the last tuning of a loop, and the versions for a rollback of an application.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from workers.alerts.lifecycle.models import Silence
from workers.models import Override, PipelineVersion, Tuning

BATCH_ROWS = 500
RETAINED_VERSIONS = 10  # versions of an application besides the active one


def select_due_overrides(before: datetime) -> QuerySet[Override]:
    """Return the overrides that ended before this time."""
    return Override.objects.filter(ended_at__lt=before)


def select_due_silences(before: datetime) -> QuerySet[Silence]:
    """Return the silences that ended before this time."""
    return Silence.objects.filter(Q(ended_at__lt=before) | Q(expires_at__lt=before))


def select_due_tunings(before: datetime) -> QuerySet[Tuning]:
    """Return the tunings that were decided before this time, except the newest of each loop."""
    newer = Tuning.objects.filter(loop=OuterRef("loop"), pk__gt=OuterRef("pk"))
    decided = Tuning.objects.filter(decided_at__lt=before).exclude(state=Tuning.State.PROPOSED)
    return decided.filter(Exists(newer))


def select_due_versions(before: datetime) -> QuerySet[PipelineVersion]:
    """Return the versions from before this time that are neither active nor among the newest."""
    newest = PipelineVersion.objects.filter(application=OuterRef("application")).order_by("-number")
    old = PipelineVersion.objects.filter(created_at__lt=before, active=False)
    return old.filter(Exists(newest.filter(number__gte=OuterRef("number") + RETAINED_VERSIONS).order_by()))


DUE: tuple[Callable[[datetime], QuerySet[Any]], ...] = (
    select_due_overrides,
    select_due_silences,
    select_due_tunings,
    select_due_versions,
)


def exist(before: datetime) -> bool:
    """Return whether there is anything to delete."""
    return any(due(before).exists() for due in DUE)


def delete_ended_settings(before: datetime, guarded: Callable[[], AbstractContextManager[Any]]) -> Iterator[int]:
    """Delete settings that ended before this time, at most BATCH_ROWS at a time; yield how many."""
    for due in DUE:
        while True:
            with guarded():
                ids = list(due(before).order_by("pk").values_list("pk", flat=True)[:BATCH_ROWS])
                due(before).model.objects.filter(pk__in=ids).delete()
            if not ids:
                break
            yield len(ids)
