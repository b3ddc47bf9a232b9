"""The planner in the lab's scenario `whole-plant`, and the same planner with perfect foresight."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict

from controllers.planning.inputs import RESERVED_SHARE, PlanInputs
from controllers.planning.law import PlanningObservation, PlanningParameters, PlanningState, expect, judge
from controllers.planning.load_forecast import BandScale, correct_forecast
from controllers.planning.model import ModeledNodes, ModeledPool, ModeledQueue, ModeledStage, ModeledType, PlantModel
from controllers.planning.plan import PlantPlan, plan_inputs
from controllers.planning.program import NoPlanError, solve_course
from controllers.simulation.composite_plant import CompositePlant, compute_mean_rates
from controllers.simulation.scenario import Floats
from controllers.simulation.whole_plant import (
    MOVE_PRICE,
    NODE_LOST_SECONDS,
    SLOW_FACTOR,
    SLOW_SECONDS,
    WholePlantCourse,
    WholePlantLaw,
    build_plant,
    set_initial_units,
)
from controllers.simulation.whole_plant_laws import (
    MEASURED_SECONDS,
    NAMES,
    QueueForecasts,
    SeparateLoops,
    StaticPeak,
    ThresholdScaling,
)

FORECAST_SECONDS, MEMORY_SECONDS = 15.0, 120.0
# A plan is due early if the load of the last seconds is this many deviations from the forecast.
SURPRISE_SECONDS, SURPRISE = 5, 3.0
# Price of a change of one task, which pauses its queue, and of one worker. Share of a node's capacity to plan with.
TASK_CHANGE_PRICE, WORKER_CHANGE_PRICE, NODE_UTILISATION = 0.02, 0.002, 0.97
MAX_BOUND_SECONDS = 120.0
PARAMETERS = PlanningParameters(horizon_seconds=600.0, first_step_seconds=10.0, steps=11, error_seconds=45.0)


def model_plant(plant: CompositePlant, means: Floats, deviations: Floats, step_seconds: float) -> PlantModel:
    """Return the plant as the planner sees it, with the forecast of each queue."""
    queues = {
        name: ModeledQueue(
            forecast_per_second=tuple(mean.tolist()),
            deviation_per_second=tuple(deviation.tolist()),
            types={
                kind: ModeledType(
                    share=min(1.0, flow.recent_share.get(kind, share)) * (1 - 1e-9),
                    lost_price=price,
                    max_shed_share=flow.of.max_shed_share,
                )
                for kind, (share, price) in flow.of.types.items()
            },
            backlog_events=max(0.0, flow.waiting),
            held_events=flow.held,
            max_held_events=flow.of.max_held_events,
            room_events=flow.of.room_events,
            bound_seconds=flow.of.bound_seconds,
            bad_second_price=flow.of.bad_second_price,
        )
        for (name, flow), mean, deviation in zip(plant.queues.items(), means, deviations, strict=True)
    }
    stages, nodes = dict[str, ModeledStage](), dict[str, ModeledNodes]()
    capacity = sum(node.ordered * node.of.per_second for node in plant.nodes) or 1.0
    for name, units in plant.units.items():
        of = units.of
        ready = units.starting[-1] - plant.second if units.starting else 0
        common: dict[str, Any] = {
            "units": units.working,
            "starting": len(units.starting),
            "starting_seconds": float(max(0, ready)),
            "start_seconds": float(of.start_seconds),
            "price_per_hour": of.price_per_hour,
            "minimum": min(of.minimum, units.maximum),
            "maximum": units.maximum,
        }
        if of.queue:
            pool: dict[str, Any] = {
                "pool": "slots",
                "change_price": TASK_CHANGE_PRICE if of.pause_seconds else WORKER_CHANGE_PRICE,
                "pause_seconds": float(of.pause_seconds),
            }
            stages[name] = ModeledStage(**common, **pool, queue=of.queue, per_second=units.per_second)
        else:
            moved = 1_000 * len(plant.queues) * of.per_second / max(capacity, of.per_second)
            share = NODE_UTILISATION * of.per_second
            nodes[name] = ModeledNodes(**common, change_price=MOVE_PRICE * moved, per_second=share)
    pools = {"slots": ModeledPool(units=1, minimum=1, maximum=1, slots=plant.slots)}
    return PlantModel(queues=queues, stages=stages, nodes=nodes, pools=pools, forecast_step_seconds=step_seconds)


class WholePlantPlanner:
    """A plan every `interval_seconds`, or when the load or the nodes differ from what the last one expected."""

    def __init__(self, course: WholePlantCourse) -> None:
        self._course, self._forecasts = course, QueueForecasts(course)
        self._parameters = replace_interval(course.interval_seconds)
        self._band, self._state = BandScale(FORECAST_SECONDS), PlanningState()
        self._expected: tuple[Floats, Floats, int, list[int]] | None = None
        self._event_seconds = 0.0
        self._verdicts: dict[str, list[int]] = {"cost": [], "waiting": []}

    def act(self, plant: CompositePlant, past: Floats) -> None:
        self._band.observe(past)
        self._event_seconds += sum(flow.waiting + flow.held for flow in plant.queues.values())
        if not self._is_due(plant, past):
            return
        count = round(self._parameters.horizon_seconds / FORECAST_SECONDS)
        ahead = np.asarray((np.arange(count) + 0.5) * FORECAST_SECONDS, dtype=np.float64)
        means, deviations = self._expect_load(plant, past, ahead)
        is_regular = plant.second % self._course.interval_seconds == 0
        if is_regular:
            self._band.expect(plant.second, means)
        self._expected = means[:, 0], deviations[:, 0], plant.second, [units.maximum for units in plant.nodes]
        model = model_plant(plant, means, deviations, FORECAST_SECONDS)
        try:
            plan = plan_inputs(self._build_inputs(plant, model), explain=False)
        except NoPlanError:
            return  # what was set stays
        if is_regular:
            self._judge(plant, model, plan)
        apply_plan(plant, plan)

    def _expect_load(self, plant: CompositePlant, past: Floats, ahead: Floats) -> tuple[Floats, Floats]:
        means, deviations = self._forecasts.predict(past, ahead)
        recent = compute_mean_rates(past, plant.second, MEASURED_SECONDS)
        means = correct_forecast(means, recent, ahead, MEMORY_SECONDS)
        return means, self._band.compute_deviations(means, deviations)

    def _build_inputs(self, plant: CompositePlant, model: PlantModel) -> PlanInputs:
        return PlanInputs.build(model, self._parameters)

    def _is_due(self, plant: CompositePlant, past: Floats) -> bool:
        if plant.second % self._course.interval_seconds == 0 or self._expected is None:
            return True
        mean, deviation, planned_at, nodes = self._expected
        if nodes != [units.maximum for units in plant.nodes]:
            return True
        if plant.second - planned_at < SURPRISE_SECONDS:
            return False
        recent = compute_mean_rates(past, plant.second, SURPRISE_SECONDS)
        noise = np.hypot(deviation, np.sqrt(np.maximum(mean, 1.0) / SURPRISE_SECONDS))
        return bool(np.any(np.abs(recent - mean) > SURPRISE * noise))

    def _judge(self, plant: CompositePlant, model: PlantModel, plan: PlantPlan) -> None:
        """Compare what earlier plans expected with what happened, and remember what this one expects."""
        fields = {name: getattr(model, name) for name in PlantModel.__struct_fields__}
        observation = PlanningObservation(
            **fields, at_seconds=float(plant.second), spent=plant.cost, event_seconds=self._event_seconds
        )
        before = self._state
        self._state = judge(self._parameters, before, observation)
        for name, held in self._verdicts.items():
            calibration = getattr(self._state, name)
            if calibration is not getattr(before, name) and calibration.coverage is not None:
                held.append(calibration.held[-1])
        self._state = expect(self._state, observation, plan.outlook, plan.outlook)

    def summarize(self) -> Mapping[str, float | None]:
        return {
            f"{name}_coverage": round(sum(held) / len(held), 4) if held else None
            for name, held in self._verdicts.items()
        }


def replace_interval(seconds: int) -> PlanningParameters:
    return PlanningParameters(**{**asdict(PARAMETERS), "interval_seconds": float(seconds)})


def apply_plan(plant: CompositePlant, plan: PlantPlan) -> None:
    """Set the units, the admission, and the shed shares of a plan."""
    ordered = {name: count - plant.units[name].ordered for name, count in plan.units.items() if name in plant.units}
    # Ended units free slots for others.
    for name in sorted(ordered, key=lambda name: ordered[name]):
        plant.set_units(name, plan.units[name])
    for name, flow in plant.queues.items():
        flow.admit_per_second = plan.admit_per_second.get(name)
        flow.shed_shares = dict(plan.shed_shares.get(name, {}))


class PerfectForesight(WholePlantPlanner):
    """Plans with the true arrivals and the true times of the disturbances, as a reference for the other laws."""

    # A reserve for pauses and for the noise within a step.
    UTILISATION, DEVIATION = 0.99, 0.06

    def __init__(self, course: WholePlantCourse) -> None:
        super().__init__(course)
        self._totals = course.sum_by_queue()
        self._owners = np.asarray([NAMES.index(queue) for queue, _ in course.kinds])

    def _expect_load(self, plant: CompositePlant, past: Floats, ahead: Floats) -> tuple[Floats, Floats]:
        means = self._average(self._totals, plant.second + ahead - FORECAST_SECONDS / 2)
        return means.T, self.DEVIATION * means.T

    def summarize(self) -> Mapping[str, float | None]:
        bound = compute_cost_bound(self._course)
        return {**super().summarize(), "cost_bound": None if bound is None else round(bound, 6)}

    def _average(self, counts: Floats, begins: Floats) -> Floats:
        """Return the mean per second of each column in steps that begin at these times."""
        sums = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
        edges = np.minimum(np.append(begins, begins[-1] + FORECAST_SECONDS).astype(int), len(counts) - 1)
        lengths = np.maximum(np.diff(edges), 1)[:, None]
        return np.asarray(np.where(np.diff(edges)[:, None] > 0, np.diff(sums[edges], axis=0) / lengths, counts[-1]))

    def _build_inputs(self, plant: CompositePlant, model: PlantModel) -> PlanInputs:
        inputs, course = super()._build_inputs(plant, model), self._course
        begins = plant.second + inputs.begins
        ends = begins + inputs.steps
        is_lost = (ends > course.lost_node_at) & (begins < course.lost_node_at + NODE_LOST_SECONDS)
        is_slow = (begins + ends) / 2 < course.slow_at + SLOW_SECONDS
        is_slow &= (begins + ends) / 2 >= course.slow_at
        now = plant.units["report workers"].factor
        slow = np.where(is_slow, SLOW_FACTOR, 1.0) / now
        sums = np.concatenate([np.zeros((1, len(course.kinds))), np.cumsum(course.arrivals, axis=0)])
        last = course.seconds - 1
        first, after = np.minimum(begins, last).astype(int), np.minimum(ends, last + 1).astype(int)
        counts = sums[after] - sums[first]
        shares = {
            kind: counts[:, at] / np.maximum(counts[:, self._owners == self._owners[at]].sum(axis=1), 1.0)
            for at, kind in enumerate(course.kinds)
        }
        return replace(
            inputs,
            speeds={
                name: (slow if name == "report workers" else np.ones(slow.size)) * self.UTILISATION
                for name in model.stages
            },
            maxima={
                units.of.name: np.asarray(units.of.maximum - 1.0 * (is_lost & (units.of.name == "large nodes")))
                for units in plant.nodes
            },
            shares=shares,
        )


def compute_cost_bound(course: WholePlantCourse, step_seconds: int = 15) -> float | None:
    """Return a cost that no law can undercut, but for rounding: one program over the whole run with the true arrivals.

    It has fractions of units, changes of tasks for nothing, no pauses, and no fluctuations within a step. It is None if
    the solver takes longer than `MAX_BOUND_SECONDS`.
    """
    plant, totals = build_plant(), course.sum_by_queue()
    set_initial_units(plant, totals[:60].mean(axis=0))
    edges = np.arange(0, course.seconds, step_seconds)
    lengths = np.diff(np.append(edges, course.seconds)).astype(float)
    rates = np.asarray(np.add.reduceat(totals, edges, axis=0) / lengths[:, None])
    model = model_plant(plant, rates.T, np.zeros(rates.T.shape), float(step_seconds))
    model = msgspec.structs.replace(
        model,
        stages={
            name: msgspec.structs.replace(of, change_price=0.0, pause_seconds=0.0) for name, of in model.stages.items()
        },
        nodes={
            name: msgspec.structs.replace(of, per_second=of.per_second / NODE_UTILISATION)
            for name, of in model.nodes.items()
        },
        queues={
            name: msgspec.structs.replace(of, bound_seconds=of.bound_seconds / (1 - RESERVED_SHARE))
            for name, of in model.queues.items()
        },
    )
    parameters = msgspec.structs.replace(
        PARAMETERS, horizon_seconds=float(edges.size * step_seconds), steps=edges.size, solver_seconds=MAX_BOUND_SECONDS
    )
    inputs = PlanInputs.build(model, msgspec.structs.replace(parameters, first_step_seconds=float(step_seconds)))
    middle = edges + step_seconds / 2
    is_slow = (middle >= course.slow_at) & (middle < course.slow_at + SLOW_SECONDS)
    is_lost = (middle >= course.lost_node_at) & (middle < course.lost_node_at + NODE_LOST_SECONDS)
    counts = np.add.reduceat(course.arrivals, edges, axis=0)
    owners = [NAMES.index(queue) for queue, _ in course.kinds]
    inputs = replace(
        inputs,
        speeds={"report workers": np.where(is_slow, SLOW_FACTOR, 1.0)},
        maxima={"large nodes": np.asarray(plant.units["large nodes"].of.maximum - 1.0 * is_lost, dtype=np.float64)},
        shares={
            kind: counts[:, at] / np.maximum(rates[:, owner] * lengths, 1.0)
            for at, (kind, owner) in enumerate(zip(course.kinds, owners, strict=True))
        },
    )
    try:
        return solve_course(inputs).cost
    except NoPlanError:
        return None


LAWS: Mapping[str, Callable[[WholePlantCourse], WholePlantLaw]] = {
    "planner": WholePlantPlanner,
    "loops": SeparateLoops,
    "threshold": ThresholdScaling,
    "static-peak": StaticPeak,
    "foresight": PerfectForesight,
}
