"""What the parallelism laws share: operators of paths, and which of their measurements are missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from common.parameter import Parameter
from controllers.framework.decision import Decision
from controllers.framework.reason import format_names, format_no_action
from controllers.parallelism.measured_topology import MAX_TASKS

UNMEASURED = "unmeasured"  # the value of `limited_by` then
# Fields of an observed operator.
TAKEN = (
    Parameter("minimum", "tasks", "Minimum tasks that the plant accepts.", 1, 1, MAX_TASKS, "integer"),
    Parameter("maximum", "tasks", "Maximum tasks that the plant accepts.", MAX_TASKS, 1, MAX_TASKS, "integer"),
)


def list_operators(paths: Sequence[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(name for path in paths for name in path))


def hold_unmeasured(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], needed: Sequence[str]
) -> Decision | None:
    """Return a decision without an action if a `needed` measurement is missing, otherwise None."""
    missing = [name for name in names if any(rows[name][measure_] is None for measure_ in needed)]
    if not missing:
        return None
    reason = format_no_action(f"{format_names(missing)} {'was' if len(missing) == 1 else 'were'} not measured")
    return Decision(None, reason, limited_by=UNMEASURED)


def compute_task_range(parameters: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[int, int]:
    """Return the minimum and maximum tasks of an operator: the loop's own, within what the plant accepts."""
    least, most = int(row["minimum"]), int(row["maximum"])
    return min(max(int(parameters["minimum"]), least), most), max(min(int(parameters["maximum"]), most), least)
