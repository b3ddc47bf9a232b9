"""Change freezes: while one is active, changes in its scope are refused, for people, tokens, and commands alike.

A person who may override a freeze does so for some minutes, with a reason. The authorization asks here before each
action that a freeze refuses, so no action needs a check of its own.
"""

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import User

from workers.windows import occurrences
from workers.windows.models import FreezeOverride, PlannedWindow
from workers.windows.occurrences import WindowOccurrence
from workers.windows.scope import OWN_PLANT, meets


def list_queue_subjects(queues: Collection[str] | None) -> list[str]:
    """Return queues as subjects of a change; None: the whole plant."""
    return [OWN_PLANT] if queues is None else [f"queue/{queue}" for queue in queues]


def find_freeze(user: User | None, subjects: Collection[str], now: datetime) -> WindowOccurrence | None:
    """Return the freeze that refuses a change of these subjects; None if there is none, or the user overrides it."""
    windows = list(occurrences.list_current_windows(now).filter(kind=PlannedWindow.Kind.FREEZE))
    active = [row for row in occurrences.list_active(now, windows) if meets(row.window.scope, subjects)]
    if not active:
        return None
    overridden: set[int] = set()
    if user is not None:
        rows = FreezeOverride.objects.filter(user=user, at__lte=now, until__gt=now)
        overridden = set(rows.values_list("window", flat=True))
    return next((row for row in active if row.window.pk not in overridden), None)


def explain_freeze(occurrence: WindowOccurrence) -> str:
    """Return why a change is refused, and what to do."""
    window = occurrence.window
    return (
        f"The change freeze {window.name} ({window.owner}: {window.reason.rstrip('.')}) is active until "
        f"{occurrence.ends_at:%Y-%m-%d %H:%M} UTC. Nothing was changed. Wait, or override the freeze on its page, "
        f"/windows/{window.pk}/, which requires a reason and the administrator role."
    )
