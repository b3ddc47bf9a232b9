"""Preferences of a user: theme, density, and sound. They apply in all browsers of the user."""

from django.contrib.auth.models import User
from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.models import UserPreferences

# The values of each preference. The first one is the default, which is not stored.
CHOICES = {"theme": ("system", "light", "dark"), "density": ("comfortable", "compact"), "sound": ("off", "on")}


def load_preferences(user: User) -> dict[str, str] | None:
    """Return a user's preferences without those of the default value; None if the user never chose any."""
    values = UserPreferences.objects.filter(user=user).values_list("values", flat=True).first()
    if values is None:
        return None
    return {name: values[name] for name, choices in CHOICES.items() if values.get(name) in choices[1:]}


@transaction.atomic
def set_preference(actor: Actor, user: User, name: str, value: str) -> None:
    """Set a preference of a user's own. Raises `BadInput` that names the field."""
    require_permission(actor, "account.change")
    if name not in CHOICES:
        raise BadInput("name", f"must be {', '.join(CHOICES)}, not {name[:40]!r}.")
    if value not in CHOICES[name]:
        raise BadInput("value", f"must be {' or '.join(CHOICES[name])}, not {value[:40]!r}.")
    row, _ = UserPreferences.objects.select_for_update().get_or_create(user=user)
    before = row.values.get(name, CHOICES[name][0])
    if value == before:
        return
    row.values = {**row.values, name: value}
    row.save()
    audit_log.record(actor, "preference.set", name, before=before, after=value)
