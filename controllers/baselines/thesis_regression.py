"""RG: Zacheilas' algorithm as in the thesis (Stutz, chapter 8), which `parallelism_forecast` corrects.

An operator's input and output in a window are regressed on records made while WT was in control:

    k(x, x') = σ² exp(-½ Σ |x_d - x'_d| / λ_d),  mean k(x, X) (K + I / 100)^-1 y

input over (timestamp, elapsed), output over (timestamp, elapsed, tasks), y as it is, around 0. λ are the evaluation's
10 000 s and 10 tasks. With its timestamps in seconds and a λ of 1, nothing would correlate with anything (ERRATA E34),
so here they count days, weakly weighted, as its text says. The cheapest path through six windows at costs of 1 (8.2.3)
gives the tasks; the last operator emits nothing and is never scaled (E35).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.baselines.parallelism_rules import SeenPath, Tasks
from controllers.parallelism.forecast_law import find_cheapest_path

Floats = npt.NDArray[np.float64]
DAY_SECONDS, ELAPSED_SECONDS, TASKS = 86_400.0, 10_000.0, 10.0
WINDOWS, NOISE = 6, 0.01


@dataclass(frozen=True)
class Record:
    at_seconds: float
    tasks: int
    executed_events: float
    emitted_events: float


class ThesisRegression:
    """The algorithm, trained once on records by operator; the last operator is the last of the path."""

    def __init__(self, records: Mapping[str, Sequence[Record]], window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._into, self._out = dict[str, _Regression](), dict[str, _Regression]()
        self._selectivity = dict[str, float]()
        for name, rows in list(records.items())[:-1]:
            if not rows:  # a run shorter than a window gives no records: the operator keeps its tasks
                continue
            into = np.asarray([row.executed_events for row in rows])
            out = np.asarray([row.emitted_events for row in rows])
            times = np.asarray([[row.at_seconds / DAY_SECONDS, row.at_seconds] for row in rows])
            tasks = np.asarray([[row.tasks] for row in rows], dtype=float)
            self._into[name] = _Regression(times, into, (1.0, ELAPSED_SECONDS))
            self._out[name] = _Regression(np.hstack([times, tasks]), out, (1.0, ELAPSED_SECONDS, TASKS))
            self._selectivity[name] = float(out.sum() / max(into.sum(), 1e-9))

    def decide(self, seen: SeenPath) -> Tasks:
        """Return the first step of each operator's cheapest path."""
        return {
            operator.name: self._choose_tasks(seen, operator.name, operator.tasks)
            if operator.name in self._into
            else operator.tasks
            for operator in seen.operators
        }

    def _choose_tasks(self, seen: SeenPath, name: str, tasks: int) -> int:
        ahead = seen.at_seconds + self._window_seconds * np.arange(1, WINDOWS + 1)
        counts = np.arange(seen.minimum, seen.maximum + 1, dtype=float)
        times = np.column_stack([ahead / DAY_SECONDS, ahead])
        grid = np.column_stack([np.repeat(times, counts.size, axis=0), np.tile(counts, ahead.size)])
        out = self._out[name].compute_mean(grid).reshape(ahead.size, counts.size)
        missed = np.maximum(0.0, self._into[name].compute_mean(times)[:, None] * self._selectivity[name] - out)
        columns, _ = find_cheapest_path(missed, tasks - seen.minimum, 1.0, 1.0, 1.0, seen.minimum)
        return seen.minimum + columns[0]


class _Regression:
    def __init__(self, points: Floats, values: Floats, scales: Sequence[float]) -> None:
        self._points, self._scales = points, np.asarray(scales)
        covariance = self._compute_kernel(points) + NOISE * np.eye(len(points))
        self._weights = np.linalg.solve(covariance, values)

    def _compute_kernel(self, points: Floats) -> Floats:
        distance = np.abs(points[:, None, :] - self._points[None, :, :]) / self._scales
        return np.asarray(np.exp(-0.5 * distance.sum(axis=2)))

    def compute_mean(self, points: Floats) -> Floats:
        return np.asarray(self._compute_kernel(points) @ self._weights)
