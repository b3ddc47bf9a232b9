"""All conditions by name."""

from typing import Any

from common import checks
from workers.alerts.conditions import (
    control_conditions,
    foreign_conditions,
    objective_conditions,
    plant_conditions,
    sensor_conditions,
)
from workers.alerts.conditions.condition import Condition

CONDITIONS: dict[str, Condition] = {
    each.name: each
    for each in (
        *plant_conditions.CONDITIONS,
        *foreign_conditions.CONDITIONS,
        *sensor_conditions.CONDITIONS,
        *control_conditions.CONDITIONS,
        *objective_conditions.CONDITIONS,
    )
}


# Conditions of Weir's own integrity: their rules and alerts are for administrators.
INTEGRITY = frozenset(each.name for each in CONDITIONS.values() if each.guards_integrity)


def get_condition(name: Any) -> Condition:
    """Return the condition of that name. Raises `BadInput` that lists the known ones."""
    return CONDITIONS[checks.accept_choice(CONDITIONS).validate(name, "condition", end=".")]
