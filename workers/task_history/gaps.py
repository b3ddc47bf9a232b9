"""Gaps: time ranges in which events may be missing."""

from collections.abc import Sequence

from workers.task_history.models import TaskGap

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
