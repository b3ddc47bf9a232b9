"""Time ranges whose data is never deleted: those that an incident refers to, requested on its page."""

from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet

from common.errors import BadInput
from workers.models import Keep

M = TypeVar("M", bound=Model)


def keep(since: datetime, until: datetime, reason: str, queue: str = "", owner: User | None = None) -> Keep:
    """Keep a time range. Raises BadInput when it has no reason or ends before it starts."""
    if not reason.strip():
        raise BadInput("reason", "is required, such as the incident for which you keep the time range.")
    if until < since:
        raise BadInput("until", "must not be before since.")
    return Keep.objects.create(since=since, until=until, reason=reason.strip(), queue=queue, owner=owner)


def is_kept(day: str, queue: str | None = None) -> bool:
    """Return whether a kept range covers the day (of this queue; None: of data that belongs to no queue)."""
    begin = datetime.combine(date.fromisoformat(day), time.min, UTC)
    ranges = Keep.objects.filter(since__lt=begin + timedelta(days=1), until__gte=begin)
    return (ranges.filter(queue__in=["", queue]) if queue is not None else ranges).exists()


def exclude_kept(rows: QuerySet[M], *fields: str) -> QuerySet[M]:
    """Return the rows for which none of these times lies in a kept range."""
    for since, until in Keep.objects.values_list("since", "until"):
        for field in fields:
            rows = rows.exclude(**{f"{field}__range": (since, until)})
    return rows
