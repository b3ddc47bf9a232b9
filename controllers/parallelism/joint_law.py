"""The joint law: the tasks of all operators together, ahead of the load.

It uses a forecast, the cost of a pause, and the measured gain. The forecast is a distribution of rates (`needs`). Each
capacity of the chain costs its tasks and, expected over that distribution, the events that wait too long in a pause, in
a peak, or behind the backlog (`plan`): a late event is weighed against an idle task, as in the newsvendor problem.
Besides, the mean forecast between two decisions has to keep `target_utilisation` and the bound of the paths
(`task_allocation`). The effect of tasks is learned (`ScalingCurve`). `plan` decides when to change: the current tasks
stay while they suffice, up to `tolerance` above the target, and while a change doesn't pay off.

Failed events return in addition to new ones (`plan`): tasks that only keep pace with new events never end
that, and cost accordingly.

After a rescale the measured gain of capacity is compared with the expected one, unless noise would hide it. If less
than `effective_share` of it was reached, the operator gets no more tasks than it had then for `blocked_seconds`, and
the decision says so. The law tries again after that, or earlier when notably more is offered and the waiting exceeds
the deadline. Tasks released in a dip may be restored meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec.structs import replace

from common.checks import shorten_for_message
from common.errors import BadInput
from common.parameter import check_range, value
from controllers.framework.decision import Decision, Expectation
from controllers.framework.law import Law, Remedy
from controllers.framework.reason import NO_ACTION, format_count, format_names, format_reason
from controllers.parallelism import inputs
from controllers.parallelism.measured_topology import MAX_TASKS, MeasuredTopology
from controllers.parallelism.needs import (
    REMEMBERED,
    JointObservation,
    JointParameters,
    JointRow,
    PlannedOperator,
    ScalingCurve,
    TaskNeeds,
    build_demand,
    build_lateness,
    compute_capacity_per_second,
    estimate_slowest_path_seconds,
    remember,
)
from controllers.parallelism.plan import ParallelismPlan, PlanRanges, compute_waiting_cost, find_cheapest_plan
from controllers.parallelism.task_allocation import check_paths

# Minimum gain of capacity that noise could not cause.
NOTABLE = 0.05
# Share of the expected gain; a larger gain has another cause.
MAX_GAIN = 1e6
# Weight of earlier counts at the next check.
SEEN_AGAIN = 0.8
# Weight of an estimated first share next to an observed one.
ESTIMATED = 1e-3
# Minimum count at a source from which a share can be learned.
MIN_SEEN = 1e-9
MIN_SHARE, MAX_SHARE = 1e-9, 1e9


class JointGain(msgspec.Struct, frozen=True, kw_only=True):
    """The expected result of a rescale."""

    tasks: Annotated[int, value("tasks", "Tasks that were set.", 1, MAX_TASKS)]
    from_per_second: Annotated[float, value("events/s", "Capacity before.", 0, 1e15)]
    to_per_second: Annotated[float, value("events/s", "Expected capacity.", 0, 1e15)]

    @property
    def is_notable(self) -> bool:
        """Return whether noise could not hide such a gain."""
        return self.to_per_second >= self.from_per_second * (1 + NOTABLE)

    def compute_reached_share(self, row: JointRow) -> float:
        if row.service <= 0:
            return 1.0
        gained = row.tasks / row.service - self.from_per_second
        share = gained / max(self.to_per_second - self.from_per_second, 1e-9)
        return float(min(max(share, -MAX_GAIN), MAX_GAIN))


class JointMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The values learned about an operator."""

    tasks: Annotated[
        tuple[int, ...], value("tasks", "Tasks at the measured points.", 1, MAX_TASKS, required=True, most=REMEMBERED)
    ] = ()
    service_seconds: Annotated[
        tuple[float, ...], value("s", "Service times at the measured points.", 0, 1e6, required=True, most=REMEMBERED)
    ] = ()
    seen_per_second: Annotated[
        tuple[float, ...] | None, value("events/s", "Events counted at the source and the operator.", 0, 1e15, most=2)
    ] = None
    waited: Annotated[bool, value("flag", "True: events waited for the operator at the last observation.")] = False
    blocked_until_seconds: Annotated[
        float | None, value("s", "Time until which changes are blocked, or null.", 0, 1e13)
    ] = None
    blocked_per_second: Annotated[
        float | None, value("events/s", "Offered load when the operator was blocked, or null.")
    ] = None
    blocked_tasks: Annotated[int | None, value("tasks", "Tasks when blocked, or null.", 1, MAX_TASKS)] = None
    expected: Annotated[JointGain | None, value("gain", "Expected result of the last rescale, or null.")] = None

    def compute_share(self) -> float:
        """Return the events that arrive here per event at the source; next to none counts as none."""
        source, here = self.seen_per_second or (1.0, 0.0)
        share = here / source
        return min(share, MAX_SHARE) if share >= MIN_SHARE else 0.0


class JointState(msgspec.Struct, frozen=True, kw_only=True):
    operators: Annotated[
        dict[str, Annotated[JointMemory, value("operator", "Learned values of one operator.")]],
        value("by name", "Learned values by operator.", required=True),
    ] = {}


class JointParallelism(Law[JointParameters, JointObservation, JointState]):
    """All operators of the paths, over a horizon; see the module."""

    name = "parallelism_joint"
    Parameters, Observation, State = JointParameters, JointObservation, JointState
    remedy, rank = Remedy("workers"), 3

    def check(self, parameters: JointParameters) -> None:
        check_range(parameters.minimum, parameters.maximum)

    def check_observation(self, parameters: JointParameters, observation: JointObservation, where: str) -> None:
        """Raise `BadInput` for invalid paths, or a forecast with a different number of deviations."""
        check_paths(observation.paths, list(observation.operators), f"{where}.paths")
        means, deviations = observation.forecast()
        if len(means) != len(deviations):
            raise BadInput(
                f"{where}.deviation_per_second",
                f"must have one number per window ({len(means)}), not {len(deviations)}",
            )

    def check_state(self, parameters: JointParameters, state: JointState, where: str) -> None:
        """Raise `BadInput` unless points are pairs of different tasks and a service time, and sources have counts."""
        for name, row in state.operators.items():
            field, seen = f"{where}.operators.{name}", row.seen_per_second
            if len(row.tasks) != len(row.service_seconds):
                raise BadInput(f"{field}.service_seconds", f"must have one number per point ({len(row.tasks)})")
            if len(set(row.tasks)) != len(row.tasks):
                raise BadInput(f"{field}.tasks", f"must have each number of tasks only once, not {list(row.tasks)}")
            if seen and (len(seen) != 2 or seen[0] < MIN_SEEN / 2):
                shown = shorten_for_message(list(seen))
                raise BadInput(
                    f"{field}.seen_per_second", f"must be two numbers, the first above 0, or null, not {shown}"
                )

    def decide(
        self, parameters: JointParameters, state: JointState, observation: JointObservation
    ) -> tuple[JointState, Decision]:
        """Return the tasks of every operator on a path, or no action if the current ones stay."""
        rows, names = observation.operators, inputs.list_operators(observation.paths)
        if held := inputs.hold_unmeasured([name for name in names if not rows[name].is_measured]):
            return state, held
        verdicts, memory = dict[str, float](), dict[str, JointMemory]()
        for name in names:
            before = state.operators.get(name, JointMemory())
            passed = _estimate_passed(observation, memory, name)
            memory[name] = _learn(parameters, before, observation, name, passed, verdicts)
        known = [_estimate_operator(parameters, rows[name], name, memory[name]) for name in names]
        plan, needs = _plan_tasks(parameters, observation, known)
        for operator, count in zip(known, plan.tasks.tolist(), strict=True):
            # What more tasks should bring is compared with the result later.
            now, then = (operator.curve.compute_capacity_per_second(n) for n in (operator.row.tasks, count))
            expected = JointGain(tasks=count, from_per_second=now, to_per_second=then)
            if count > operator.row.tasks and math.isfinite(now) and math.isfinite(then) and expected.is_notable:
                memory[operator.name] = replace(memory[operator.name], expected=expected)
        next_state = JointState(operators={**state.operators, **memory})
        return next_state, _build_decision(parameters, observation, known, needs, plan, verdicts)


LAW = JointParallelism()


def _plan_tasks(
    parameters: JointParameters, observation: JointObservation, known: Sequence[PlannedOperator]
) -> tuple[ParallelismPlan, TaskNeeds]:
    of, cost = build_demand(parameters, observation, known), build_lateness(parameters, known)
    needs = TaskNeeds.compute(parameters, observation.paths, known, of)
    current = np.asarray([row.row.tasks for row in known])
    windows, steps = len(needs.needed), parameters.steps_per_window
    begins = np.arange(windows) * steps
    ends = np.minimum(begins + steps, of.rates.shape[1]) - 1
    pause_seconds = _compute_pause_seconds(parameters, observation)
    late, left = compute_waiting_cost(of, cost, needs.capacities, begins, pause_seconds)
    now = compute_waiting_cost(of, cost, np.asarray([needs.capacity_now]), begins[:1], 0.0)
    change_cost = parameters.change_seconds * float(current.sum())
    ranges = PlanRanges(needs.needed, needs.levels, (late + left)[:, ends], steps * of.step_seconds, change_cost)
    return find_cheapest_plan(current, needs.keeps, (now[0] + now[1])[0, ends, 0].tolist(), ranges), needs


def _compute_pause_seconds(parameters: JointParameters, observation: JointObservation) -> float:
    """Return how long a change stops processing: the parameter assumes it, and a measured pause may be longer."""
    return max(parameters.pause_seconds, observation.change_pause_seconds or 0.0)


def _estimate_passed(observation: JointObservation, memory: Mapping[str, JointMemory], name: str) -> float | None:
    """Return what gets through to an operator (events/s of the source) if events wait before it.

    Otherwise, return None. An operator with waiting events is always busy: it passes its capacity.
    """
    rows, source = observation.operators, observation.source_per_second
    before = {upstream for path in observation.paths if name in path for upstream in path[: path.index(name)]}
    waiting = [upstream for upstream in before if rows[upstream].backlog_events > source]
    passed = [
        rows[upstream].tasks / rows[upstream].service / share
        for upstream in waiting
        if rows[upstream].service > 0 and upstream in memory
        if (share := memory[upstream].compute_share())
    ]
    return min([source, *passed]) if waiting else None


def _learn(
    parameters: JointParameters,
    before: JointMemory,
    observation: JointObservation,
    name: str,
    passed: float | None,
    verdicts: dict[str, float],
) -> JointMemory:
    """Return the memory of an operator; `verdicts` receives the share of the expected gain of a rescale."""
    row, expected = observation.operators[name], before.expected
    points = remember(dict(zip(before.tasks, before.service_seconds, strict=True)), row.tasks, row.service)
    if expected is not None and expected.tasks == row.tasks and expected.is_notable:
        verdicts[name] = expected.compute_reached_share(row)
    blocked_until, blocked_rate, blocked_tasks = _block(parameters, observation, before, row, verdicts.get(name))
    return JointMemory(
        tasks=tuple(points),
        service_seconds=tuple(points.values()),
        seen_per_second=_update_rates(before, row.rate, observation.source_per_second, passed),
        waited=passed is not None,
        blocked_until_seconds=blocked_until,
        blocked_per_second=blocked_rate,
        blocked_tasks=blocked_tasks,
    )


def _block(
    parameters: JointParameters,
    observation: JointObservation,
    before: JointMemory,
    row: JointRow,
    share_of_gain: float | None,
) -> tuple[float | None, float | None, int | None]:
    """Return until when an operator gets no more tasks than it had, the load at that time, and its tasks.

    All values are None if it may get more. The block ends early if notably more is offered and the waiting exceeds the
    deadline.
    """
    at_seconds = observation.at_seconds
    if share_of_gain is not None and share_of_gain < parameters.effective_share:
        return at_seconds + parameters.blocked_seconds, row.rate, row.tasks
    until, offered = before.blocked_until_seconds, before.blocked_per_second
    waits_seconds = row.backlog_events * row.service / row.tasks
    has_grown = offered is not None and row.rate > offered * (1 + NOTABLE)
    if until is None or at_seconds >= until or (has_grown and waits_seconds > parameters.deadline_seconds):
        return None, None, None
    return until, offered, before.blocked_tasks


def _update_rates(before: JointMemory, rate: float, source: float, passed: float | None) -> tuple[float, ...] | None:
    """Return the counts at the source and at the operator; older counts weigh less.

    While events wait before the operator, its arrivals are what was let through; afterwards the backlog arrives. Both
    say nothing about the share, so they are used only if nothing else is known. A source that was idle for so long that
    its counts have decayed says nothing, either.
    """
    seen = before.seen_per_second
    if not seen:
        first = (source, rate) if passed is None else (passed * ESTIMATED, rate * ESTIMATED)
        return first if first[0] >= MIN_SEEN else None
    if passed is not None or before.waited or (seen[0] < MIN_SEEN and source < MIN_SEEN):
        return seen
    return SEEN_AGAIN * seen[0] + source, SEEN_AGAIN * seen[1] + rate


def _estimate_operator(parameters: JointParameters, row: JointRow, name: str, memory: JointMemory) -> PlannedOperator:
    curve = ScalingCurve.fit(dict(zip(memory.tasks, memory.service_seconds, strict=True)), row.tasks)
    hand = parameters.tasks_of.get(name)
    fewest, most = inputs.compute_task_range(parameters, row) if hand is None else (hand, hand)
    share = memory.compute_share()
    if memory.seen_per_second is None and row.backlog_events > 0:
        share = 1.0  # unknown, and the waiting events came from somewhere
    is_blocked = memory.blocked_until_seconds is not None and hand is None
    blocked_at = max(row.tasks, memory.blocked_tasks or 0) if is_blocked else None
    return PlannedOperator(name, row, curve, share, blocked_at, fewest, most)


def _build_decision(
    parameters: JointParameters,
    observation: JointObservation,
    known: Sequence[PlannedOperator],
    needs: TaskNeeds,
    plan: ParallelismPlan,
    verdicts: Mapping[str, float],
) -> Decision:
    tasks = {operator.name: int(count) for operator, count in zip(known, plan.tasks, strict=True)}
    before = {row.name: row.row.tasks for row in known}
    capacity = compute_capacity_per_second(known, plan.tasks)
    by_hand = {name: count for name, count in parameters.tasks_of.items() if name in tasks}
    pause_seconds = _compute_pause_seconds(parameters, observation)
    terms = {
        "tasks_before": before,
        "tasks_needed": {operator.name: int(n) for operator, n in zip(known, needs.needed[0], strict=True)},
        "tasks_total": sum(tasks.values()),
        "windows_until_change": plan.changes_at,
        "cost_task_seconds": round(plan.cost, 3),
        "capacity_per_second": round(capacity, 3),
        "path_seconds": estimate_slowest_path_seconds(observation, known, plan.tasks),
        "gain_shares": {name: round(share, 4) for name, share in verdicts.items()},
        "blocked": needs.blocked,
        "by_hand": by_hand,
        "pause_seconds": pause_seconds,
    }
    failed = [name for name, share in verdicts.items() if share < parameters.effective_share]
    reason = format_reason(
        inputs.describe_changed_tasks(before, tasks, NO_ACTION),
        _explain_plan(needs, before, tasks, pause_seconds),
        remarks=[
            *([f"the last rescale of {format_names(failed)} gained less than expected"] if failed else []),
            *([f"{format_names(needs.blocked)}: more tasks did not help; retrying later"] if needs.blocked else []),
            *([f"set by a user: {format_names(list(by_hand))}"] if by_hand else []),
        ],
    )
    most = [inputs.compute_task_range(parameters, operator.row)[1] for operator in known]
    is_full = any(need >= limit for need, limit in zip(needs.needed[0], most, strict=True)) and not needs.keeps[0]
    is_short = is_full or any(name not in parameters.tasks_of for name in needs.short)
    limited = "effectiveness" if needs.blocked else "maximum" if is_short else None
    if tasks == before:
        return Decision(None, reason, terms, limited)
    # More capacity is expected if that is the purpose, otherwise the tasks themselves.
    change, within = sum(tasks.values()) - sum(before.values()), parameters.interval_seconds / 2
    expected = Expectation("tasks", "up" if change > 0 else "down", float(abs(change)), within)
    if capacity >= needs.capacity_now * (1 + NOTABLE):
        expected = Expectation("capacity_per_second", "up", capacity - needs.capacity_now, within)
    return Decision({"tasks": tasks}, reason, terms, limited, expected=expected)


def _explain_plan(needs: TaskNeeds, before: Mapping[str, int], tasks: Mapping[str, int], pause_seconds: float) -> str:
    now, then = sum(before.values()), sum(tasks.values())
    have, (do, suffice) = format_count(now, "task"), ("does", "suffices") if now == 1 else ("do", "suffice")
    pause = "the pause" if pause_seconds else "the change"
    if needs.short and then > now:
        return f"{have} {do} not suffice for the forecast load, nor do {then}, and more are not allowed"
    if tasks == before and needs.keeps[0] and not needs.short:
        return f"{have} {suffice} for now; the expected gain of a change is smaller than the cost of {pause}"
    if tasks == before:
        return f"{have} {do} not suffice, and more are not allowed"
    if not needs.keeps[0]:
        return f"{have} {do} not suffice for the forecast load, but {then} do"
    return f"the expected gain of {format_count(then, 'task')} instead of {now} exceeds the cost of {pause}"


def observe(
    topology: MeasuredTopology, forecast_per_second: Sequence[float] = (), deviation_per_second: Sequence[float] = ()
) -> JointObservation:
    """Return the observation of a topology; the forecast is that of the sources."""
    rows = {}
    for operator in inputs.list_steered_operators(topology):
        arrivals = inputs.compute_squared_variation(operator, "arrival_interval_seconds", "arrival_interval_variance")
        service = inputs.compute_squared_variation(operator, "service_seconds", "service_variance")
        rows[operator.name] = JointRow(
            tasks=operator.parallelism,
            rate_per_second=inputs.compute_rate_per_second(operator, topology.window_seconds),
            service_seconds=inputs.compute_service_seconds(operator),
            backlog_events=inputs.estimate_backlog_events(topology, operator),
            variability=(arrivals + service) / 2,
            latency_seconds=operator.measure("latency_seconds") or 0.0,
            # The plant would refuse others at each tick.
            minimum=max(1, operator.minimum),
            maximum=max(1, operator.maximum),
        )
    return JointObservation(
        at_seconds=topology.at,
        source_per_second=inputs.compute_source_per_second(topology),
        failed_per_second=inputs.compute_failed_per_second(topology),
        forecast_per_second=tuple(forecast_per_second),
        deviation_per_second=tuple(deviation_per_second),
        change_pause_seconds=topology.change_pause_seconds,
        paths=inputs.list_steered_paths(topology),
        operators=rows,
    )
