"""Undo an override: it ends, and the override that it ended is in force again for the rest of its time."""

from datetime import datetime
from typing import Any

import redis
from django.contrib.auth.models import User
from django.db import transaction

from workers.models import Override
from workers.steering import overrides
from workers.steering.scope import Scope

# An ended override, and the one that is in force again in its place.
Undone = tuple[Override, Override | None]


def undo(override: Override, *, by: User | None, now: datetime, control: redis.Redis | None = None) -> list[Undone]:
    """End an override and those that were set with it, and restore those that they ended.

    Overrides end as far as they are in force. Restored are those that have time left, under their owner and reason,
    until their own end. Does nothing if the override is over already. Raises `BadInput` if what was in force before is
    no longer valid beside what has been set since; nothing is changed then.
    """
    with transaction.atomic():
        pairs = [(row, _find_ended_override(row, now)) for row in set_together(override, now)]
        # Those without an older one first: restored values are checked without them.
        for each, older in pairs:
            if older is None:
                overrides.end(each, by=by, now=now, control=control)
        beside = {older.name: older.value for _, older in pairs if older is not None}
        undone = [(each, older and _restore_override(older, by, now, control, beside)) for each, older in pairs]
        for each, _ in undone:
            each.refresh_from_db()
        return undone


def set_together(override: Override, now: datetime) -> list[Override]:
    """Return what its owner set at the same time, itself included, as far as it is in force."""
    if not overrides.holds(override, now):
        return []
    same = overrides.list_active(now).filter(owner_id=override.owner_id, created_at=override.created_at)
    return list(same.select_related("loop", "node", "owner").order_by("pk"))


def _find_ended_override(override: Override, now: datetime) -> Override | None:
    """Return the override that this one ended, if it would still run."""
    ids = [row["id"] for row in override.replaces if row["ended"]]
    rows = Override.objects.filter(pk__in=ids).select_related("loop", "node", "owner").order_by("-created_at")
    return next((row for row in rows if row.expires_at is None or row.expires_at > now), None)


def _restore_override(
    older: Override, by: User | None, now: datetime, control: redis.Redis | None, beside: dict[str, Any]
) -> Override:
    # It replaces the undone one in one step: a queue that stays paused lets nothing pass.
    return overrides.set_override(
        name=older.name,
        value=older.value,
        owner=older.owner,
        reason=older.reason,
        now=now,
        **Scope.build(older).get_field_values(),
        expires_at=older.expires_at,
        endless=older.expires_at is None,
        control=control,
        beside=beside,
        by=by,
    )
