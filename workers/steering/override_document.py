"""An override as plain JSON: what the snapshot and the API say of it."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from workers.models import Override
from workers.steering.expiry import notice_at, notice_period
from workers.steering.scope import Scope


def documents(rows: Iterable[Override]) -> list[dict[str, Any]]:
    """Overrides as the snapshot has them; the setting is read once for all."""
    period = notice_period()
    return [document(row, period) for row in rows]


def document(override: Override, period: timedelta | None = None) -> dict[str, Any]:
    """An override as the snapshot has it; times in seconds since 1970, `expires_at` null: it has no end."""
    notice = notice_at(
        override.created_at, override.expires_at, notice_period() if period is None else period
    )
    return {
        "id": override.pk,
        "scope": str(Scope.of(override)),
        "loop": override.loop.name if override.loop else None,
        "law": override.law or None,
        "queue": override.queue or None,
        "node": override.node.name if override.node else None,
        "name": override.name,
        "value": override.value,
        "instead_of": override.instead_of,
        "owner": override.owner.get_username(),
        "reason": override.reason,
        "replaces": override.replaces,
        "created_at": override.created_at.timestamp(),
        "expires_at": override.expires_at and override.expires_at.timestamp(),
        "notice_at": notice and notice.timestamp(),
    }
