"""Stops that would replace a longer one: users who stopped something for longer rely on that."""

from datetime import datetime

from common.errors import BadInput
from console.display.override_words import describe_end
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import DRAINING, Scope


def require_later_end(scope: Scope, name: str, value: str, expiry: Expiry, now: datetime, field: str) -> None:
    """Raise `BadInput` of `field` if the same stop would end sooner than now."""
    rows = overrides.list_active(now).filter(name=name, **scope.get_field_values()).select_related("owner")
    longer = next(
        (override_ for override_ in overrides.sort_by_expiry(rows).reverse() if override_.value == value), None
    )
    asked = expiry.compute(now)
    if longer is None or asked is None or (longer.expires_at is not None and asked >= longer.expires_at):
        return
    by = f"{describe_end(longer)} by {longer.owner.get_username()} ({longer.reason[:200]})"
    what = str(scope) if name == DRAINING else f"{name} of {scope}"
    raise BadInput(field, f"{what} is {longer.value} {by}. Extend or end it.")
