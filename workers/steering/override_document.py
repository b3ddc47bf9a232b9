"""An override as a document for the snapshot and the API."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from common.stored_document import convert_to_plain
from workers.documents.loops import OverrideStatus
from workers.models import Override
from workers.steering.expiry import notice_at, notice_period
from workers.steering.scope import Scope


def build_statuses(rows: Iterable[Override]) -> list[OverrideStatus]:
    """Return overrides as the snapshot has them; the setting is read once for all."""
    period = notice_period()
    return [build_status(row, period) for row in rows]


def document(override: Override) -> dict[str, Any]:
    """Return the same as plain JSON."""
    return convert_to_plain(build_status(override))


def build_status(override: Override, period: timedelta | None = None) -> OverrideStatus:
    """Return an override as the snapshot has it."""
    notice = notice_at(override.created_at, override.expires_at, notice_period() if period is None else period)
    return OverrideStatus(
        id=override.pk,
        scope=str(Scope.build(override)),
        loop=override.loop.name if override.loop else None,
        law=override.law or None,
        queue=override.queue or None,
        node=override.node.name if override.node else None,
        host=override.host or None,
        name=override.name,
        value=override.value,
        instead_of=override.instead_of,
        owner=override.owner.get_username(),
        reason=override.reason,
        replaces=override.replaces,
        created_at=override.created_at.timestamp(),
        expires_at=override.expires_at.timestamp() if override.expires_at else None,
        notice_at=notice.timestamp() if notice else None,
    )
