"""All conditions by name: every module of this package is imported, and its conditions register themselves."""

from common import checks
from controllers.framework.discovery import import_modules
from workers.alerts import conditions
from workers.alerts.conditions import plant_conditions  # noqa: F401 # first, as in lists
from workers.alerts.conditions.condition import CONDITIONS, Condition

__all__ = ["CONDITIONS", "INTEGRITY", "get_condition"]

for _ in import_modules(conditions):
    pass

# Conditions of Weir's own integrity: their rules and alerts are for administrators.
INTEGRITY = frozenset(condition.name for condition in CONDITIONS.values() if condition.guards_integrity)


def get_condition(name: object) -> Condition:
    """Return the condition of that name. Raises `BadInput` that lists the known ones."""
    return CONDITIONS[checks.accept_choice(CONDITIONS).validate(name, "condition", end=".")]
