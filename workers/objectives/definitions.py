"""Objectives as people define them: read, checked, kept. Errors name their field; nothing changed then."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from common import checks
from common.errors import BadInput
from workers.objectives.measure import EVENTS, Measure, measure
from workers.objectives.models import Objective

MAX_OBJECTIVES = 50
MIN_TARGET, MAX_TARGET = 0.5, 0.99999
MIN_DAYS, MAX_DAYS = 3, 90
# What is counted: a change of one of these restarts the count, since minutes of another promise don't apply
# to it.
COUNTED = ("kind", "subject", "condition", "lost", "of")
FIELDS = (*COUNTED, "target", "window_days", "pays_for")


def document(objective: Objective) -> dict[str, Any]:
    """Return the objective as `define` reads it."""
    fields = {name: getattr(objective, name) for name in FIELDS}
    return {"name": objective.name, "revision": objective.revision, **fields}


def measure_of(objective: Objective) -> Measure:
    """Return the objective's measure. Raises `BadInput` if another version wrote what this one can't read."""
    return measure(objective.kind, objective.condition, objective.lost, objective.of)


@transaction.atomic
def define(
    name: Any, fields: Mapping[str, Any], by: User | None, now: datetime, revision: int | None = None
) -> Objective:
    """Create an objective, or change the one of that name; omitted fields stay, or have their defaults.

    `revision`: the revision that was edited; None overwrites. Raises `BadInput`.
    """
    checks.accept_name().validate(name, "name", end=".")
    objective = Objective.objects.select_for_update().filter(name=name).first()
    if objective is None and Objective.objects.count() >= MAX_OBJECTIVES:
        raise BadInput("name", f"can't be added: the limit is {MAX_OBJECTIVES} objectives. Remove an objective first.")
    if objective is not None and revision is not None and objective.revision != revision:
        raise BadInput("revision", "is outdated: another user has changed the objective; reload it.")
    before = None if objective is None else document(objective)
    row = objective or Objective(name=name)
    for field, value in validate_fields(fields, before).items():
        setattr(row, field, value)
    row.revision = 1 if objective is None else objective.revision + 1
    row.changed_by, row.changed_at = by, now
    row.save()
    if before is not None and any(before[counted_field] != getattr(row, counted_field) for counted_field in COUNTED):
        row.minutes.all().delete()
    return row


def is_another(before: Objective, now: Objective) -> bool:
    """Return whether an objective counts something else than before."""
    return any(getattr(before, field) != getattr(now, field) for field in COUNTED)


def validate_fields(fields: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all fields of an objective, the given ones in place of those before. Raises `BadInput`."""
    checks.refuse_unknown(fields, FIELDS, "", message="is unknown; the fields are {known}.")
    given = {"kind": "plant", "window_days": 30, **(before or {}), **fields}
    kind = _validate_choice(Objective.Kind.values, given["kind"], "kind")
    texts = {name: _validate_text(given.get(name, ""), name) for name in ("subject", "condition", "lost", "of")}
    if kind == Objective.Kind.PLANT and texts["subject"]:
        raise BadInput("subject", "must be empty for the kind plant; choose the kind queue or application.")
    read_measure = measure(kind, texts["condition"], texts["lost"], texts["of"])
    return {
        "kind": kind,
        **texts,
        "target": _validate_target(given.get("target")),
        "window_days": _validate_days(given["window_days"]),
        "pays_for": _pays_for(given.get("pays_for", ""), kind, read_measure),
    }


def _validate_choice(known: list[str], value: Any, field: str) -> str:
    return str(checks.accept_choice(known, f"one of {', '.join(filter(None, known))}").validate(value, field, end="."))


def _validate_text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise BadInput(field, "must be text.")
    return value.strip()


def _validate_target(value: Any) -> float:
    if not checks.is_number(value, MIN_TARGET, MAX_TARGET):
        raise BadInput("target", f"must be a share from {MIN_TARGET} to {MAX_TARGET}, such as 0.999.")
    return float(value)


def _validate_days(value: Any) -> int:
    if not checks.is_number(value, MIN_DAYS, MAX_DAYS) or not float(value).is_integer():
        raise BadInput("window_days", f"must be a whole number of days from {MIN_DAYS} to {MAX_DAYS}.")
    return int(value)


def _pays_for(value: Any, kind: str, found: Measure) -> str:
    """Check that what a loop spends is counted in the loop's unit: shed events, seconds of waiting."""
    pays = _validate_choice(Objective.PaysFor.values, value, "pays_for") if value else ""
    names = found.lost.columns if found.lost is not None else frozenset()
    if pays == Objective.PaysFor.SHEDDING and ("shed_per_second" not in names or found.unit != EVENTS):
        raise BadInput("pays_for", "can be shed only if `lost` uses shed_per_second and `of` uses a rate of events.")
    if pays == Objective.PaysFor.THROTTLING and (
        "throttled_share" not in names or found.unit == EVENTS or kind != Objective.Kind.QUEUE
    ):
        raise BadInput(
            "pays_for", 'can be throttle only if `kind` is queue, `lost` uses throttled_share, and `of` is "1".'
        )
    return pays


def remove(objective: Objective) -> None:
    """Remove an objective with all that was counted for it."""
    objective.delete()
