"""What the database records of control now, in the shape of the snapshot: the loops' last decisions, the
overrides in force.
"""

from datetime import datetime
from typing import Any

from django.db.models import Count, OuterRef, Q, Subquery

from workers.models import LedgerEntry, Loop, Override

SETPOINTS = ("setpoint", "upper_limit", "bound_seconds", "utilisation_budget")
MEASURED = ("measured", "queue_length")


def overrides_now(now: datetime) -> list[dict[str, Any]]:
    """Overrides in force, the soonest to expire first."""
    rows = Override.objects.filter(ended_at=None, expires_at__gt=now).order_by("expires_at", "id")
    return [_override(row) for row in rows.select_related("loop", "node", "owner")]


def loops_now(now: datetime) -> dict[str, dict[str, Any]]:
    """Every loop with its newest ledger entry: two queries, however many loops and entries there are."""
    newest = LedgerEntry.objects.filter(loop=OuterRef("pk")).order_by("-at", "-id").values("id")[:1]
    in_force = Q(overrides__ended_at=None, overrides__expires_at__gt=now)
    loops = list(
        Loop.objects.order_by("name").annotate(
            newest=Subquery(newest), in_force=Count("overrides", filter=in_force)
        )
    )
    entries = LedgerEntry.objects.in_bulk([loop.newest for loop in loops if loop.newest])
    return {loop.name: _loop(loop, entries.get(loop.newest)) for loop in loops}


def _loop(loop: Any, entry: LedgerEntry | None) -> dict[str, Any]:
    parameters = entry.parameters if entry else loop.parameters
    return {
        "id": loop.pk,
        "law": loop.law,
        "target": loop.target,
        "mode": entry.mode if entry else loop.mode,
        "measured": _first(entry.observation if entry else None, MEASURED),
        "setpoint": _first(parameters, SETPOINTS),
        "actuator": _actuator(entry),
        "at": entry.at.timestamp() if entry else None,
        "reason": entry.reason if entry else None,
        "verdict": entry.verdict if entry else None,
        "entry": entry.pk if entry else None,
        "overrides": loop.in_force,
    }


def _actuator(entry: LedgerEntry | None) -> float | None:
    """What was applied: 0 when nothing was, unknown without an entry."""
    if entry is None:
        return None
    if not entry.applied or not entry.action:
        return 0
    numbers = [value for value in entry.action.values() if isinstance(value, int | float)]
    return numbers[0] if numbers else None


def _first(document: dict[str, Any] | None, names: tuple[str, ...]) -> Any:
    return next((document[name] for name in names if document and name in document), None)


def _override(row: Override) -> dict[str, Any]:
    return {
        "id": row.pk,
        "loop": row.loop.name if row.loop else None,
        "node": row.node.name if row.node else None,
        "name": row.name,
        "value": row.value,
        "instead_of": row.instead_of,
        "owner": row.owner.get_username(),
        "reason": row.reason,
        "expires_at": row.expires_at.timestamp(),
    }
