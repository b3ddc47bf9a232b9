"""The audit: who changed what, why, from where. Written in the same transaction as the change."""

from typing import Any

from console.access import Actor
from console.models import AuditEntry


def record(
    actor: Actor,
    action: str,
    target: str,
    *,
    reason: str = "",
    before: Any = None,
    after: Any = None,
) -> AuditEntry:
    """Note one change. `before` and `after` are JSON values small enough to read in a table row."""
    return AuditEntry.objects.create(
        actor=actor.name,
        action=action,
        target=target,
        reason=reason,
        before=before,
        after=after,
        address=actor.address,
    )
