"""What the laws of parallelism share: operators of paths, and what of them was not measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from controllers.framework.decision import Decision
from controllers.framework.parameter import Parameter
from controllers.framework.reason import listed, no_action
from controllers.parallelism.measured_topology import MOST_TASKS

UNMEASURED = "unmeasured"  # what limits a decision then
# Of an operator that is observed.
TAKEN = (
    Parameter("minimum", "tasks", "That its plant takes at least.", 1, 1, MOST_TASKS, "integer"),
    Parameter("maximum", "tasks", "That its plant takes at most.", MOST_TASKS, 1, MOST_TASKS, "integer"),
)


def operators_of(paths: Sequence[Sequence[str]]) -> list[str]:
    """Every operator of the paths once, in their order."""
    return list(dict.fromkeys(name for path in paths for name in path))


def held_unmeasured(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], needed: Sequence[str]
) -> Decision | None:
    """No action while a measurement that is `needed` of an operator is missing; None where all are there."""
    missing = [name for name in names if any(rows[name][each] is None for each in needed)]
    if not missing:
        return None
    reason = no_action(f"{listed(missing)} {'was' if len(missing) == 1 else 'were'} not measured")
    return Decision(None, reason, limited_by=UNMEASURED)


def task_range(parameters: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[int, int]:
    """The fewest and the most tasks of an operator: the loop's own, as far as its plant takes them."""
    least, most = int(row["minimum"]), int(row["maximum"])
    return min(max(int(parameters["minimum"]), least), most), max(
        min(int(parameters["maximum"]), most), least
    )
