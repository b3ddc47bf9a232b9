"""Permanent settings by administrators: the plant's settings, and a loop's own parameters and guard."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.db import transaction

from common.errors import BadInput
from common.stored_document import Time, describe
from console.accounts.access import Actor, require_permission
from console.actions.loops import require_no_override
from console.audit import audit_log
from console.display.override_words import format_short_value
from controllers import catalog
from controllers.framework import guard
from workers.control.kinds.registry import get_kind
from workers.models import Loop, Setting
from workers.steering import overrides, plant_settings
from workers.steering.overrides import read_reason


@dataclass(frozen=True, kw_only=True)
class ShownSetting:
    """A setting of the plant as declared, with its value and its last change."""

    name: str
    value: Annotated[float | dict[str, float] | None, describe("Current value, in `unit`; null: no value.")]
    default: float | dict[str, float] | None
    optional: Annotated[bool, describe("Whether null is allowed.")]
    minimum: float | None
    maximum: float | None
    unit: str
    help: str
    kind: str
    changed_by: Annotated[str | None, describe("The user who changed it last; null: never changed.")]
    changed_at: Time | None

    @property
    def text(self) -> str:
        """Return the value as people read it."""
        return plant_settings.format_setting(self.value)


def list_setting_rows() -> list[ShownSetting]:
    changed = plant_settings.list_changes()
    return [
        ShownSetting(
            name=setting.name,
            value=changed[setting.name].value if setting.name in changed else setting.default,
            default=setting.default,
            optional=setting.or_null,
            minimum=setting.minimum,
            maximum=setting.maximum,
            unit=setting.unit,
            help=setting.help,
            kind=setting.kind,
            changed_by=_get_editor_name(changed.get(setting.name)),
            changed_at=changed[setting.name].changed_at if setting.name in changed else None,
        )
        for setting in plant_settings.DECLARED
    ]


def _get_editor_name(row: Setting | None) -> str | None:
    return row.changed_by.get_username() if row is not None and row.changed_by else None


@transaction.atomic
def change_setting(actor: Actor, name: str, value: object, reason: str, now: datetime) -> tuple[Any, Any]:
    """Change a setting of the plant; return (before, after). Raises `BadInput` that names name, value, or reason."""
    require_permission(actor, "settings.change")
    why = read_reason(reason)
    before, after = plant_settings.change(name, value, actor.user, now)
    audit_log.record(actor, "settings.change", name, reason=why, before=before, after=after)
    return before, after


@transaction.atomic
def change_own(actor: Actor, loop: Loop, name: str, value: object, *, reason: str, now: datetime) -> tuple[Any, Any]:
    """Set a loop's own value of a parameter or of `guard.NAME`, which applies without overrides.

    None restores the default. Raises `BadInput` that names name, value, or reason.
    """
    require_permission(actor, "settings.change")
    why, law = read_reason(reason), catalog.get_law(loop.law)
    row = Loop.objects.select_for_update().get(pk=loop.pk)
    if name == law.actuator:
        raise BadInput("name", f"{name} is the loop's output. Set it manually on the loop's page instead.")
    if followed := get_kind(loop.law).followed.get(name):
        raise BadInput("name", f"{name} follows {followed}: change it there, or override it.")
    parameter = catalog.get_parameter(law, name)
    try:
        checked = parameter.default if value is None else parameter.check(value, "value")
        before, changed = _change_setting(row, name, checked, value is None)
    except BadInput as error:
        raise BadInput("value", error.message) from None
    require_no_override(row, name, "value", now)
    _check_override_conflict(row, changed, now)
    Loop.objects.filter(pk=row.pk).update(**changed)
    audit_log.record(actor, "settings.change", f"{loop.name} {name}", reason=why, before=before, after=checked)
    return before, checked


def _check_override_conflict(row: Loop, changed: Mapping[str, Any], now: datetime) -> None:
    """Reject an own value that contradicts the overrides in force, which would all be ignored."""
    held = overrides.list_for_loop(row, now)
    if overrides.compute_effective_values(row, held, now).conflict:
        return
    row = copy(row)
    for column, values in changed.items():
        setattr(row, column, values)
    if why := overrides.compute_effective_values(row, held, now).conflict:
        names = ", ".join(
            f"{other.name} {format_short_value(other.value)} by {other.owner.get_username()}" for other in held
        )
        raise BadInput("value", f"contradicts active overrides ({names}): {why}. End the override first.")


def _change_setting(row: Loop, name: str, value: object, back: bool) -> tuple[Any, dict[str, Any]]:
    """Return the previous value, and the new column, validated as a whole."""
    law, key = catalog.get_law(row.law), name.removeprefix("guard.")
    column = "guard" if name.startswith("guard.") else "parameters"
    own = {other_key: kept for other_key, kept in getattr(row, column).items() if other_key != key}
    if not back:
        own[key] = value
    read = guard.read_settings if column == "guard" else catalog.read_parameters
    before, _ = read(law, getattr(row, column))[key], read(law, own)
    return before, {column: own}
