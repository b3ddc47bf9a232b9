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

from typing import Annotated

import msgspec
import numpy as np

from common.errors import BadInput
from common.parameter import value
from controllers.framework.decision import Decision
from controllers.framework.law import Law, NoState, Remedy, Values
from controllers.framework.reason import format_count, format_reason

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class ForecastParameters(msgspec.Struct, frozen=True, kw_only=True):
    cost_missed: Annotated[float, value("cost per event", "Cost of an event that isn't handled in its window.")] = 1.0
    cost_task: Annotated[float, value("cost per task and window", "Cost of a task.")] = 1.0
    cost_change: Annotated[float, value("cost per change", "Cost of changing the number of tasks.")] = 1.0
    minimum: Annotated[
        int, value("tasks", "Minimum tasks; also the first column of missed, unless `first` is given.", 1, 100_000)
    ] = 1


class ForecastObservation(msgspec.Struct, frozen=True, kw_only=True):
    missed: Annotated[
        tuple[tuple[float, ...], ...],
        value("events", "Missed events per window: with the minimum tasks, one more task, and so on.", maximum=1e15),
    ]
    current: Annotated[int, value("tasks", "Current tasks.", 1, 200_000)]
    first: Annotated[
        int | None, value("tasks", "Tasks of the first column of missed; null: the minimum.", 1, 100_000)
    ] = None


class ParallelismForecast(Law[ForecastParameters, ForecastObservation, NoState]):
    """Tasks by the cheapest path through future windows; see the module for the costs."""

    name = "parallelism_forecast"
    Parameters, Observation = ForecastParameters, ForecastObservation
    actuator = "tasks"
    lasting = True
    guard_defaults: Values = {"minimum": 1.0}
    remedy, rank = Remedy("workers"), 2

    def check_observation(self, parameters: ForecastParameters, observation: ForecastObservation, where: str) -> None:
        """Raise `BadInput` for no windows, or a current number outside the range of the columns."""
        if not observation.missed:
            raise BadInput(f"{where}.missed", "must have at least one window")
        low = parameters.minimum if observation.first is None else observation.first
        high = low + len(observation.missed[0]) - 1
        if not low <= observation.current <= high:
            raise BadInput(
                f"{where}.current", f"must be {low} to {high}, the columns of missed, not {observation.current}"
            )

    def decide(
        self, parameters: ForecastParameters, state: NoState, observation: ForecastObservation
    ) -> tuple[NoState, Decision]:
        """Return the first step of the cheapest path, the path, and its cost."""
        first = parameters.minimum if observation.first is None else observation.first
        missed, current = np.asarray(observation.missed, dtype=float), observation.current
        left_out = min(max(0, parameters.minimum - first), missed.shape[1] - 1)
        low, missed = first + left_out, missed[:, left_out:]
        columns, cost = find_cheapest_path(
            missed,
            current - low if current >= low else None,
            parameters.cost_missed,
            parameters.cost_task,
            parameters.cost_change,
            low,
        )
        path = [low + column for column in columns]
        changes = sum(before != after for before, after in zip([current, *path], path, strict=False))
        terms = {
            "missed": sum(row[column] for row, column in zip(missed.tolist(), columns, strict=True)),
            "changes": changes,
            "tasks_mean": sum(path) / len(path),
        }
        keeps = path[0] == current
        what = f"Keep {format_count(current, 'task')}" if keeps else f"Set tasks from {current} to {path[0]}"
        cause = f"first step of the cheapest path over {format_count(len(path), 'window')}"
        reason = format_reason(what, cause, remarks=[f"cost: {cost:.6g}; changes: {changes}"])
        action = {"tasks": path[0], "path": path, "cost": cost}
        return state, Decision(action, reason, terms, raw=float(path[0]))


LAW = ParallelismForecast()


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
        # For each earlier number of tasks: the same number again, or the cheapest other; of equal ones the smallest.
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
