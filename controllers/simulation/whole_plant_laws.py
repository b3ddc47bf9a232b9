"""The separate loops and the baselines of the lab's scenario `whole-plant`, and its forecasts."""

import math
from collections.abc import Mapping

import numpy as np

from controllers.baselines.parallelism import Hpa, MeasuredInterval, SeenPath
from controllers.design.forecast import Forecaster, compute_bucket_averages
from controllers.parallelism.joint_law import JointParallelism, JointState
from controllers.parallelism.needs import JointObservation, JointParameters, JointRow
from controllers.rebalancing.allocation import ObservedNode, ObservedQueue
from controllers.rebalancing.node_scaling import NodeScaling, NodeScalingObservation, NodeScalingParameters
from controllers.shedding.ladder import LEVELS, Ladder, LadderObservation, LadderParameters, allows
from controllers.simulation.composite_plant import CompositePlant, SimulatedFlow, SimulatedUnits, compute_mean_rates
from controllers.simulation.scenario import Floats
from controllers.simulation.whole_plant import QUEUES, WholePlantCourse
from controllers.worker_rate.law import WorkerRate
from controllers.worker_rate.shared import WorkerRateObservation, WorkerRateParameters
from queues.nodes.node_state import IDLE, NORMAL, OFFLINE
from queues.points import TOTAL, apportion

NAMES = tuple(of.name for of in QUEUES)
APPLICATIONS = ("orders", "telemetry")
BUCKETS, MIN_POINTS, MEASURED_SECONDS = 32, 8, 5
# Intervals of the loops (s), and the forecast windows of the joint law.
LOOP_SECONDS, TASK_SECONDS, NODE_SECONDS, JOINT_WINDOWS = 5, 30, 30, 10


class QueueForecasts:
    """The forecast of each queue's arrivals."""

    def __init__(self, course: WholePlantCourse) -> None:
        self._bucket = max(1, round(course.day_seconds / BUCKETS))
        self._forecasters = [Forecaster(course.day_seconds) for _ in NAMES]

    def predict(self, past: Floats, ahead_seconds: Floats) -> tuple[Floats, Floats]:
        """Return means and deviations by queue and time from now on."""
        size = len(past)
        bucket = min(self._bucket, max(1, size // MIN_POINTS))
        means, deviations = [], []
        for column, forecaster in zip(past.T, self._forecasters, strict=True):
            at, rates = compute_bucket_averages(column, bucket)
            mean, deviation = forecaster.predict_ahead(at, rates, size + ahead_seconds)
            means.append(np.maximum(mean, 0.0))
            deviations.append(deviation)
        return np.asarray(means), np.asarray(deviations)


class SeparateLoops:
    """The shipped laws, each with its own actuator, and the remedy ladder."""

    def __init__(self, course: WholePlantCourse) -> None:
        self._forecasts = QueueForecasts(course)
        self._workers, self._tasks, self._nodes, self._ladder = (
            WorkerRate(),
            JointParallelism(),
            NodeScaling(),
            Ladder(),
        )
        self._worker_parameters = WorkerRateParameters(workers="permanent", interval_seconds=float(LOOP_SECONDS))
        self._node_parameters = NodeScalingParameters()
        self._worker_state = self._workers.start(self._worker_parameters)
        self._joint_states = dict.fromkeys(APPLICATIONS, JointState())
        self._node_state = self._nodes.start(self._node_parameters)
        self._ladder_states = {name: self._ladder.start(LadderParameters()) for name in NAMES}
        self._departed = 0.0

    def act(self, plant: CompositePlant, past: Floats) -> None:
        if plant.second % LOOP_SECONDS:
            return
        rates = dict(zip(NAMES, compute_mean_rates(past, plant.second, MEASURED_SECONDS).tolist(), strict=True))
        if plant.second % TASK_SECONDS == 0:
            windows = np.asarray((np.arange(JOINT_WINDOWS) + 0.5) * TASK_SECONDS, dtype=np.float64)
            means, deviations = self._forecasts.predict(past, windows)
            for name in APPLICATIONS:
                row = NAMES.index(name)
                self._set_tasks(plant, name, rates[name], means[row], deviations[row])
            self._set_nodes(plant, rates, float(means[:, :4].sum(axis=0).max()))
        self._set_workers(plant, rates["reports"])
        for name in NAMES:
            self._climb(plant, name, rates[name])

    def _set_workers(self, plant: CompositePlant, rate: float) -> None:
        units, flow = plant.units["report workers"], plant.queues["reports"]
        observation = WorkerRateObservation(
            queue_length=flow.waiting,
            removed=max(0.0, flow.departed - self._departed),
            running=float(units.ordered),
            service_seconds=1 / units.per_second,
            oldest_seconds=flow.age_seconds,
            expected_per_second=rate,
        )
        self._departed = flow.departed
        self._worker_state, decision = self._workers.decide(self._worker_parameters, self._worker_state, observation)
        if decision.action:
            plant.set_units(units.of.name, int(decision.action["start"]))

    def _set_tasks(self, plant: CompositePlant, name: str, rate: float, mean: Floats, deviation: Floats) -> None:
        stages, flow = plant.stages[name], plant.queues[name]
        parameters = JointParameters(
            bound_seconds=flow.of.bound_seconds,
            deadline_seconds=flow.of.bound_seconds,
            maximum=max(units.of.maximum for units in stages),
            window_seconds=float(TASK_SECONDS),
            interval_seconds=float(TASK_SECONDS),
            pause_seconds=float(stages[0].of.pause_seconds),
        )
        # All events wait before the slowest operator.
        slowest = min(stages, key=lambda units: units.working * units.per_second)
        rows = {
            units.of.name: JointRow(
                tasks=units.ordered,
                rate_per_second=rate,
                service_seconds=1 / units.per_second,
                backlog_events=flow.waiting if units is slowest else 0.0,
                latency_seconds=1 / units.per_second,
                maximum=units.of.maximum,
            )
            for units in stages
        }
        observation = JointObservation(
            at_seconds=float(plant.second),
            source_per_second=rate,
            forecast_per_second=tuple(mean.tolist()),
            deviation_per_second=tuple(deviation.tolist()),
            paths=(tuple(rows),),
            operators=rows,
        )
        self._joint_states[name], decision = self._tasks.decide(parameters, self._joint_states[name], observation)
        for stage, count in (decision.action or {"tasks": {}})["tasks"].items():
            plant.set_units(stage, count)

    def _set_nodes(self, plant: CompositePlant, rates: Mapping[str, float], expected: float) -> None:
        nodes = [(units, number) for units in plant.nodes for number in range(units.of.maximum)]
        states = [
            OFFLINE if number >= units.maximum else NORMAL if number < units.ordered else IDLE
            for units, number in nodes
        ]
        names = [f"{units.of.name} {number}" for units, number in nodes]
        weights = {
            name: units.of.per_second
            for name, state, (units, _) in zip(names, states, nodes, strict=True)
            if state == NORMAL
        }
        points = apportion(TOTAL, weights)
        total = sum(rates.values())
        observation = NodeScalingObservation(
            nodes=[
                ObservedNode(name=name, capacity=units.of.per_second, measured=units.of.per_second, state=state)
                for name, state, (units, _) in zip(names, states, nodes, strict=True)
            ],
            queues=[
                ObservedQueue(name=name, rate=rate, measured_rate=rate, containers=points)
                for name, rate in rates.items()
            ],
            forecast=max(1.0, expected / total) if total > 0 else 1.0,
        )
        self._node_state, decision = self._nodes.decide(self._node_parameters, self._node_state, observation)
        action = decision.action or {"use": [], "release": []}
        for units in plant.nodes:
            used, released = (
                sum(name.startswith(units.of.name) for name in action[part]) for part in ("use", "release")
            )
            plant.set_units(units.of.name, units.ordered + used - released)

    def _climb(self, plant: CompositePlant, name: str, rate: float) -> None:
        flow, stages = plant.queues[name], plant.stages[name]
        capacity = compute_available_capacity(plant, name)
        slots_left = plant.slots - sum(units.ordered for row in plant.stages.values() for units in row)
        most = all(units.ordered >= units.maximum for units in stages) or slots_left <= 0
        parameters = LadderParameters(
            cap="shed" if flow.of.max_shed_share else "throttle", backlog_bound_seconds=flow.of.bound_seconds
        )
        observation = LadderObservation(
            demand_per_second=rate,
            capacity_per_second=capacity,
            backlog_seconds=(flow.waiting + flow.held) / capacity if capacity else 1e6,
            saturated={
                "rebalance": True,
                "workers": most,
                "nodes": all(units.ordered >= units.maximum for units in plant.nodes),
                "throttle": flow.held >= flow.of.max_held_events - 1,
            },
            interval_seconds=float(LOOP_SECONDS),
        )
        state, decision = self._ladder.decide(parameters, self._ladder_states[name], observation)
        self._ladder_states[name] = state
        closed = float((decision.terms or {}).get("closed_share", observation.unmet))
        flow.admit_per_second = rate * (1 - closed) if allows(state.rung, "throttle") else None
        excess = max(0.0, rate - capacity) if allows(state.rung, LEVELS[-1]) else 0.0
        flow.shed_shares = shed_cheapest_types(flow, rate, excess)

    def summarize(self) -> Mapping[str, float | None]:
        return {}


def compute_available_capacity(plant: CompositePlant, name: str) -> float:
    """Return what a queue can process: by its stages, and by what the nodes leave to it.

    Workers follow their queue within seconds, so all that may still start count. Otherwise, the ladder would hold back
    events before the worker law sees them.
    """
    left = plant.compute_node_capacity()
    slots_left = plant.slots - sum(units.ordered for row in plant.stages.values() for units in row)
    for flow in sorted(plant.queues.values(), key=lambda flow: flow.of.bound_seconds):
        capacity = plant.compute_capacity(flow.of.name)
        if flow.of.name == name and name not in APPLICATIONS:
            capacity = sum(
                min(units.maximum, units.ordered + max(0, slots_left)) * units.per_second
                for units in plant.stages[name]
            )
        if flow.of.name == name:
            return min(capacity, max(left, 0.0))
        left -= min(capacity, flow.served)
    return 0.0


def shed_cheapest_types(flow: SimulatedFlow, rate: float, excess: float) -> dict[str, float]:
    """Return the share of each type to shed, so that the excess is dropped at the lowest price."""
    shares = dict[str, float]()
    for kind, (share, _) in sorted(flow.of.types.items(), key=lambda item: item[1][1]):
        offered = flow.recent_share.get(kind, share) * rate
        dropped = min(excess, offered * flow.of.max_shed_share)
        if dropped > 0:
            shares[kind] = dropped / offered
        excess -= dropped
    return shares


class ThresholdScaling:
    """Nodes and tasks by their utilization, and workers by their queue, every 15 s. Nothing is held back or shed."""

    SYNC_SECONDS, NODE_TARGET, CATCH_UP_SECONDS, DOWN_FACTOR = 15, 0.7, 60.0, 5.0

    def __init__(self, course: WholePlantCourse) -> None:
        self._hpa = {name: Hpa() for name in (*NAMES, "nodes")}

    def act(self, plant: CompositePlant, past: Floats) -> None:
        if plant.second % self.SYNC_SECONDS:
            return
        rates = compute_mean_rates(past, plant.second, self.SYNC_SECONDS)
        for name, rate in zip(NAMES, rates.tolist(), strict=True):
            for units in plant.stages[name]:
                wanted = self._scale(name, units, rate, plant)
                if name not in APPLICATIONS:
                    wanted = max(
                        wanted, math.ceil(plant.queues[name].waiting / self.CATCH_UP_SECONDS / units.per_second)
                    )
                plant.set_units(units.of.name, wanted)
        self._set_nodes(plant, float(rates.sum()))

    def _scale(self, name: str, units: SimulatedUnits, rate: float, plant: CompositePlant) -> int:
        busy = units.ordered * units.per_second if plant.queues[name].waiting > rate else rate
        measured = MeasuredInterval(units.of.name, max(1, units.ordered), busy, 1 / units.per_second, 0, 0, 0, 0.0)
        # The scale-down window of 300 s is shorter in compressed time.
        seen = SeenPath([measured], plant.second * self.DOWN_FACTOR, 1, units.maximum)
        return self._hpa[name].decide(seen)[units.of.name]

    def _set_nodes(self, plant: CompositePlant, rate: float) -> None:
        size = min(units.of.per_second for units in plant.nodes)
        present = sum(units.ordered * units.of.per_second for units in plant.nodes) / size
        measured = MeasuredInterval("nodes", max(1, round(present)), rate, 1 / size, 0, 0, 0, 0.0)
        most = sum(units.maximum * units.of.per_second for units in plant.nodes) / size
        seen = SeenPath([measured], plant.second * self.DOWN_FACTOR, 1, int(most))
        left = self._hpa["nodes"].decide(seen)["nodes"] * size
        for units in sorted(plant.nodes, key=lambda units: -units.of.per_second):
            is_last = units.of.per_second == size
            count = min(units.maximum, math.ceil(left / size) if is_last else int(left // units.of.per_second))
            plant.set_units(units.of.name, count)
            left -= max(count, units.of.minimum) * units.of.per_second

    def summarize(self) -> Mapping[str, float | None]:
        return {}


class StaticPeak:
    """Fixed units for the greatest load of `WINDOW_SECONDS`, known in advance."""

    WINDOW_SECONDS = 30

    def __init__(self, course: WholePlantCourse) -> None:
        totals = course.sum_by_queue()
        whole = totals[: len(totals) // self.WINDOW_SECONDS * self.WINDOW_SECONDS]
        self._peaks = whole.reshape(-1, self.WINDOW_SECONDS, len(NAMES)).mean(axis=1)

    def act(self, plant: CompositePlant, past: Floats) -> None:
        if plant.second > 1:
            return
        for name, peak in zip(NAMES, self._peaks.max(axis=0).tolist(), strict=True):
            for units in plant.stages[name]:
                plant.set_units(units.of.name, math.ceil(peak / units.of.per_second))
        left = float(self._peaks.sum(axis=1).max())
        for units in sorted(plant.nodes, key=lambda units: -units.of.per_second):
            count = min(units.of.maximum, math.ceil(left / units.of.per_second))
            plant.set_units(units.of.name, count)
            left -= count * units.of.per_second

    def summarize(self) -> Mapping[str, float | None]:
        return {}
