"""The forecast law: how many tasks an operator should have now.

It depends on what each number of tasks would miss in future windows. Zacheilas' transition graph: a state is a window
and a number of tasks p'; the edge to it costs

    C = missed * cost_missed + p' * cost_task + [p' differs from before] * cost_change

and the cheapest path from now on gives the first step (Stutz, 8 with ERRATA E36). The graph has layers, so dynamic
programming finds the same path as Dijkstra in O(windows * tasks²) (E37). Among equally cheap paths the one with fewer
tasks is taken, window by window. Missed events per window come from `design.forecast`.

The first column of missed events stands for the minimum, or for `first` tasks if the observation says so, because the
sensor does not know the parameters. Fewer than the minimum are never chosen, and from fewer each choice is a change. If
no column reaches the minimum, the last one is the closest.
"""

from collections.abc import Sequence

import numpy as np

from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.decision import Decision, Json
from controllers.framework.law import Law, Remedy, UntypedLaw, Values
from controllers.framework.reason import format_count, format_reason

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
PARAMETERS = (
    Parameter("cost_missed", "cost per event", "Cost of an event that isn't handled in its window.", 1.0, 0, 1e12),
    Parameter("cost_task", "cost per task and window", "Cost of a task.", 1.0, 0, 1e12),
    Parameter("cost_change", "cost per change", "Cost of changing the number of tasks.", 1.0, 0, 1e12),
    Parameter(
        "minimum",
        "tasks",
        "Minimum tasks; also the first column of missed, unless `first` is given.",
        1,
        1,
        100_000,
        "integer",
    ),
)
OBSERVATION = (
    Parameter(
        "missed",
        "events",
        "Missed events per window: with the minimum tasks, one more task, and so on.",
        maximum=1e15,
        kind="table",
        required=True,
    ),
    Parameter("current", "tasks", "Current tasks.", None, 1, 200_000, "integer", required=True),
    Parameter("first", "tasks", "Tasks of the first column of missed; null: the minimum.", None, 1, 100_000, "integer"),
)


class ParallelismForecast(UntypedLaw):
    """Tasks by the cheapest path through future windows; see the module for the costs."""

    name = "parallelism_forecast"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = ()
    actuator: str | None = "tasks"
    lasting = True
    guard_defaults: Values = {"minimum": 1.0}
    remedy, rank = Remedy("workers"), 2

    def check(self, parameters: Values) -> None:
        """Accept all parameters: costs can't contradict each other."""

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for no windows, or a current number outside the range of the columns."""
        missed, low = observation["missed"], _get_first_column_tasks(parameters, observation)
        if not missed:
            raise BadInput(f"{where}.missed", "must have at least one window")
        high = low + len(missed[0]) - 1
        if not low <= observation["current"] <= high:
            raise BadInput(
                f"{where}.current", f"must be {low} to {high}, the columns of missed, not {observation['current']}"
            )

    def build_initial_state(self, parameters: Values) -> Json:
        """Return an empty state: only the forecast decides."""
        return {}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Accept every state: it is empty."""

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the first step of the cheapest path, the path, and its cost."""
        low, missed_events = _choices(parameters, observation)
        current = int(observation["current"])
        columns, cost = find_cheapest_path(
            missed_events,
            current - low if current >= low else None,
            parameters["cost_missed"],
            parameters["cost_task"],
            parameters["cost_change"],
            low,
        )
        path = [low + column for column in columns]
        action = {"tasks": path[0], "path": path, "cost": cost}
        changes = sum(before != after for before, after in zip([current, *path], path, strict=False))
        missed = sum(row[column] for row, column in zip(missed_events.tolist(), columns, strict=True))
        terms = {"missed": missed, "changes": changes, "tasks_mean": sum(path) / len(path)}
        keeps = path[0] == current
        what = f"Keep {format_count(current, 'task')}" if keeps else f"Set tasks from {current} to {path[0]}"
        cause = f"first step of the cheapest path over {format_count(len(path), 'window')}"
        reason = format_reason(what, cause, remarks=[f"cost: {cost:.6g}; changes: {changes}"])
        return state, Decision(action, reason, terms, raw=float(path[0]))


LAW: Law = ParallelismForecast()


def _get_first_column_tasks(parameters: Values, observation: Values) -> int:
    first = observation.get("first")
    return int(parameters["minimum"] if first is None else first)


def _choices(parameters: Values, observation: Values) -> tuple[int, Floats]:
    first, missed = (_get_first_column_tasks(parameters, observation), np.asarray(observation["missed"], dtype=float))
    left_out = min(max(0, int(parameters["minimum"]) - first), missed.shape[1] - 1)
    return first + left_out, missed[:, left_out:]


def find_cheapest_path(
    missed: Floats, current: int | None, cost_missed: float, cost_task: float, cost_change: float, minimum: int = 1
) -> tuple[list[int], float]:
    """Return the columns of the cheapest path (windows,), and its cost.

    `missed` is windows by numbers of tasks. `current` is the present column; None: there is none, and each choice is a
    change. Computed backwards from the last window: to_come[p] is the lowest cost of what follows when p tasks run.
    """
    columns = np.arange(missed.shape[1])
    here = missed * cost_missed + (minimum + columns) * cost_task
    to_come, choices = np.zeros(missed.shape[1]), []
    for window in here[::-1]:
        # For each earlier number of tasks: the same number again, or the cheapest other; of equal ones the
        # smallest.
        stays, moves = window + to_come, cost_change + window + to_come
        to = int(moves.argmin())
        least = moves[to]
        equal = np.where(stays == least, np.minimum(columns, to), to)
        choices.append(np.where(stays < least, columns, equal))
        to_come = np.minimum(stays, least)
    start = int(to_come.argmin()) if current is None else current
    path = list[int]()
    for choice in choices[::-1]:
        path.append(int(choice[path[-1] if path else start]))
    return path, float(to_come[start]) + (cost_change if current is None else 0.0)
