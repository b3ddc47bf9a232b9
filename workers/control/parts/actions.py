"""Default descriptions of an action, as a number and in words, for kinds that have none of their own."""

from collections.abc import Mapping
from typing import Any

from controllers.framework.reason import format_count

Document = Mapping[str, Any]
NOUNS = {"shares": "replica", "tasks": "operator"}  # an action's value by name → what its items belong to


def total(action: Document) -> float:
    """Return the sum of all numbers in the action."""
    return sum(_compute_amount(value) for value in action.values())


def compute_amounts(observation: Document, action: Document) -> dict[str, float]:
    """Return the size of the action's parts by name; nothing where it has none."""
    return {name: _compute_amount(value) for name, value in action.items()}


def compute_tasks_in_force(observation: Document, action: Document) -> dict[str, float]:
    """Return the tasks of each operator after the action; operators that it does not change keep theirs."""
    now = {name: row["tasks"] for name, row in observation.get("operators", {}).items()}
    return {**now, **action.get("tasks", {})}


def _compute_amount(value: Any) -> float:
    if isinstance(value, Mapping):
        return total(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def were_set(action: Document) -> str:
    """Describe the action's values in the past tense: "set admit 412.3"."""
    values = ", ".join(f"{name.replace('_', ' ')} {_format_value(name, value)}" for name, value in action.items())
    return f"set {values}"


def _format_value(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return f"of {format_count(len(value), NOUNS.get(name, 'item'))}"
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


def describe_nothing(action: Document) -> str:
    """Return no description: the action's values are sufficient."""
    return ""
