"""Gaps: time ranges in which events may be missing."""

from collections.abc import Sequence

from workers.task_history.models import TaskGap
from workers.task_history.record import TaskRecord

MAX_GAPS = 100


def list_gaps(
    plants: Sequence[str], since: float | None = None, until: float | None = None, most: int = MAX_GAPS
) -> list[TaskGap]:
    """Return the newest gaps that overlap a time range, newest first."""
    gaps = TaskGap.objects.filter(plant__in=plants)
    if since is not None:
        gaps = gaps.filter(until__gte=since)
    if until is not None:
        gaps = gaps.filter(since__lte=until)
    return list(gaps.order_by("-until", "-pk")[:most])


def find_gap_of(record: TaskRecord) -> TaskGap | None:
    """Return the first gap in which the end of an unfinished task may have been missed; None if there is none."""
    if record.is_finished:
        return None
    workers = {"", record.worker}
    gaps = TaskGap.objects.filter(plant=record.plant, until__gt=record.at, worker__in=workers)
    return gaps.order_by("since", "pk").first()
