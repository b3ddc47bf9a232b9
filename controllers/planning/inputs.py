"""The inputs of the planner's program: its parameters, its steps, and the numbers of a model by step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from common.parameter import value
from controllers.planning.model import PlantModel, UnitGroup

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
ROUNDING, HOUR_SECONDS = 1e-9, 3_600.0
# Shares of the promised waiting time: left for fluctuations within a step, and kept when pauses take the rest.
RESERVED_SHARE, MIN_BOUND_SHARE = 0.2, 0.2


class PlannerParameters(msgspec.Struct, frozen=True, kw_only=True):
    horizon_seconds: Annotated[float, value("s", "Time that a plan covers.", 60, 14_400)] = 1_800.0
    first_step_seconds: Annotated[float, value("s", "Length of the first step; later ones are longer.", 1, 3_600)] = (
        10.0
    )
    steps: Annotated[int, value("steps", "Number of steps.", 2, 60)] = 10
    interval_seconds: Annotated[float, value("s", "Time between two plans.", 1, 3_600)] = 30.0
    error_seconds: Annotated[float, value("s", "Time for which a load above the forecast lasts.", 1, 3_600)] = 60.0
    verdict_seconds: Annotated[
        float, value("s", "Time after which the expected cost and waiting are compared with the actual.", 1, 3_600)
    ] = 120.0
    solver_seconds: Annotated[float, value("s", "Maximum time of one solution.", 0.01, 600)] = 2.0


def build_steps(parameters: PlannerParameters) -> Floats:
    """Return the lengths of the steps (s), a geometric sequence whose sum is the horizon."""
    count, first = parameters.steps, parameters.first_step_seconds
    low, high = 1.0, 10.0
    if count * first >= parameters.horizon_seconds:
        return np.full(count, parameters.horizon_seconds / count)
    for _ in range(60):
        ratio = (low + high) / 2
        too_long = first * (ratio**count - 1) / (ratio - 1) > parameters.horizon_seconds
        low, high = (low, ratio) if too_long else (ratio, high)
    return np.asarray(first * low ** np.arange(count))


def average_forecast(values: tuple[float, ...], every_seconds: float, steps: Floats) -> Floats:
    """Return the mean of a forecast in each step; its last value continues."""
    edges = np.concatenate([[0.0], np.cumsum(steps)])
    ends = every_seconds * np.arange(len(values) + 1)
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(values) * every_seconds)])
    beyond = np.maximum(edges - ends[-1], 0.0) * values[-1]
    return np.asarray(np.diff(np.interp(edges, ends, sums) + beyond) / steps)


@dataclass(frozen=True)
class PlanInputs:
    """The numbers of a model by step: rows follow the order of names in the model."""

    model: PlantModel
    parameters: PlannerParameters
    steps: Floats
    rates: Floats
    deviations: Floats
    owners: Indices  # queue of each event type
    types: tuple[tuple[str, str], ...]
    speeds: Mapping[str, Floats] = field(default_factory=dict)  # stage → factor of its speed in each step
    maxima: Mapping[str, Floats] = field(default_factory=dict)  # group → most units in each step
    shares: Mapping[tuple[str, str], Floats] = field(default_factory=dict)  # queue and type → share in each step
    fixed_units: Mapping[str, Floats] = field(default_factory=dict)  # group → units in each step

    @classmethod
    def build(cls, model: PlantModel, parameters: PlannerParameters, spread: float = 0.0) -> "PlanInputs":
        """Return the inputs; the expected load is that many deviations above the mean."""
        steps, every = build_steps(parameters), model.forecast_step_seconds
        queues = list(model.queues.values())
        means = [average_forecast(queue.forecast_per_second, every, steps) for queue in queues]
        deviations = [
            average_forecast(queue.deviation_per_second, every, steps) if queue.deviation_per_second else 0 * steps
            for queue in queues
        ]
        types = [(name, kind) for name, queue in model.queues.items() for kind in queue.types]
        names = list(model.queues)
        return cls(
            model,
            parameters,
            steps,
            np.reshape(means, (-1, steps.size)) + spread * np.reshape(deviations, (-1, steps.size)),
            np.reshape(deviations, (-1, steps.size)),
            np.asarray([names.index(name) for name, _ in types], dtype=np.int64),
            tuple(types),
        )

    @property
    def begins(self) -> Floats:
        """Return the start of each step (s from now)."""
        return np.asarray(np.cumsum(self.steps) - self.steps)

    def get_type_share(self, queue: str, kind: str) -> Floats:
        """Return the share of a type in its queue's events in each step."""
        share = self.model.queues[queue].types[kind].share
        return self.shares.get((queue, kind), np.full(self.steps.size, share))

    def list_queue_values(self, name: str) -> Floats:
        return np.asarray([getattr(queue, name) for queue in self.model.queues.values()], dtype=float)

    @property
    def bounds(self) -> Floats:
        """Return the bound of each queue (s) that leaves time for the pause of a change, at least a share of it."""
        bounds = []
        for name, queue in self.model.queues.items():
            pause = max((stage.pause_seconds for _, stage in self.model.iterate_stages(name)), default=0.0)
            left = queue.bound_seconds * (1 - RESERVED_SHARE) - pause
            bounds.append(max(left, MIN_BOUND_SHARE * queue.bound_seconds))
        return np.asarray(bounds)

    def compute_allowed_waiting(self) -> Floats:
        """Return how many events may wait at the end of each step: those that arrived within the bound before it.

        A queue is first in, first out, so no event is older than the bound then. Before now, the present rate counts.
        """
        ends = np.cumsum(self.steps)
        times, allowed = np.concatenate([[0.0], ends]), []
        for bound, rates in zip(self.bounds.tolist(), self.rates, strict=True):
            arrived = np.concatenate([[0.0], np.cumsum(rates * self.steps)])
            before = np.interp(ends - bound, times, arrived) + np.minimum(ends - bound, 0.0) * rates[0]
            allowed.append(arrived[1:] - before)
        return np.reshape(allowed, self.rates.shape)

    def keep_units(self) -> "PlanInputs":
        """Return the inputs of a course in which nobody orders or ends units."""
        kept = {
            name: group.units + np.where(self.begins >= group.starting_seconds - ROUNDING, float(group.starting), 0.0)
            for name, group in self.model.groups.items()
        }
        return replace(self, fixed_units=kept)

    def locate_orders(self, group: UnitGroup) -> int:
        """Return the last step whose units have to be ordered before the next plan."""
        lead = group.start_seconds + self.parameters.interval_seconds
        return int(np.searchsorted(self.begins, lead - ROUNDING, side="left")) - 1

    def compute_unit_ranges(self, name: str, group: UnitGroup, count: int | None) -> tuple[Floats, Floats]:
        """Return the fewest and the most working units of each step; `count` fixes those that are ordered now."""
        if (units := self.fixed_units.get(name)) is not None:
            return units, units
        low, high = group.range
        arrived = group.units + np.where(self.begins >= group.starting_seconds - ROUNDING, group.starting, 0)
        can_order = self.begins >= group.start_seconds - ROUNDING
        lowest, highest = np.full(self.steps.size, float(low)), np.where(can_order, float(high), arrived)
        highest = np.minimum(highest, self.maxima.get(name, high))
        if count is not None:
            last = min(self.locate_orders(group), self.steps.size - 1)
            part = np.where(can_order, count, np.minimum(count, arrived))[: last + 1]
            lowest[: last + 1], highest[: last + 1] = part, part
        return np.minimum(lowest, highest), highest
