"""The joint law: the tasks of all operators together, ahead of the load.

It uses a forecast, the cost of a pause, and the measured gain. The forecast is a distribution of rates
(`needs.demand`). Each capacity of the chain costs its tasks and, expected over that distribution, the events that wait
too long in a pause, in a peak, or behind the backlog (`fluid_backlog`): a late event is weighed against an idle task,
as in the newsvendor problem. Besides, the mean forecast between two decisions has to keep `target_utilisation` and the
bound of the paths (`task_allocation`). The effect of tasks is learned (`scaling_curve`). `plan` decides when to change:
the current tasks stay while they suffice, up to `tolerance` above the target, and while a change doesn't pay off.

Failed events return in addition to new ones (`fluid_backlog`): tasks that only keep pace with new events never end
that, and cost accordingly.

After a rescale the measured gain of capacity is compared with the expected one, unless noise would hide it. If less
than `effective_share` of it was reached, the operator gets no more tasks than it had then for `blocked_seconds`, and
the decision says so. The law tries again after that, or earlier when notably more is offered and the waiting exceeds
the deadline. Tasks released in a dip may be restored meanwhile.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common.checks import shorten_for_message
from common.errors import BadInput
from common.parameter import Parameter, check_range
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Remedy, UntypedLaw, Values
from controllers.framework.reason import NO_ACTION, format_count, format_names, format_reason
from controllers.parallelism.inputs import TAKEN, compute_task_range, hold_unmeasured, list_operators
from controllers.parallelism.measured_topology import MAX_TASKS
from controllers.parallelism.needs import (
    REMEMBERED,
    PlannedOperator,
    ScalingCurve,
    TaskNeeds,
    build_demand,
    build_lateness,
    compute_capacity_per_second,
    compute_steps_per_window,
    estimate_slowest_path_seconds,
    forecast,
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
PARAMETERS = (
    Parameter("bound_seconds", "s", "Maximum latency of every path under the expected load.", 1.0, 1e-9, 1e6),
    Parameter("minimum", "tasks", "Minimum tasks of each operator.", 1, 1, MAX_TASKS, "integer"),
    Parameter("maximum", "tasks", "Maximum tasks of each operator.", 10, 1, MAX_TASKS, "integer"),
    Parameter("target_utilisation", "utilization", "Target utilization of each task after a change.", 0.8, 0.1, 0.99),
    Parameter(
        "tolerance", "share of the target", "Excess above the target up to which the current tasks suffice.", 0.2, 0, 1
    ),
    Parameter("missed_cost", "multiple of its work", "Cost of a late event.", 8.0, 0, 1e6),
    Parameter("deadline_seconds", "s", "Waiting time after which an event counts as failed.", 60.0, 1e-3, 1e6),
    Parameter("window_seconds", "s", "Length of a forecast window.", 60.0, 1e-3, 1e7),
    Parameter("interval_seconds", "s", "Time between decisions; tasks change no more often.", 60.0, 1e-3, 1e7),
    Parameter("pause_seconds", "s", "Time that a change stops all processing.", 20.0, 0, 1e5),
    Parameter("change_seconds", "s", "Additional cost of a change, over all tasks.", 5.0, 0, 1e5),
    Parameter(
        "tasks_of",
        "tasks",
        "Tasks by operator, as set by a user.",
        {},
        kind="map",
        items=(Parameter("tasks", "tasks", "Tasks of this operator.", None, 1, MAX_TASKS, "integer"),),
    ),
    Parameter("effective_share", "share", "Share of the expected gain below which a rescale has failed.", 0.3, 0, 1),
    Parameter("blocked_seconds", "s", "Time until an ineffective change is tried again.", 1800.0, 0, 1e7),
)
OPERATOR = (
    Parameter("tasks", "tasks", "Current tasks.", None, 1, MAX_TASKS, "integer", required=True),
    Parameter("rate_per_second", "events/s", "Load offered to all its tasks; null: not measured.", None, 0, 1e12),
    Parameter("service_seconds", "s", "Service time of an event in a task; null: not measured.", None, 0, 1e6),
    Parameter("backlog_events", "events", "Events waiting for the operator.", 0.0, 0, 1e15),
    Parameter("variability", "mean of c²", "Variability of arrivals and service.", 1.0, 0, 1e6),
    Parameter("latency_seconds", "s", "Time that an event spends in the operator besides waiting.", 0.0, 0, 1e6),
    *TAKEN,
)
OBSERVATION = (
    Parameter("at_seconds", "s", "Time of the observation.", None, 0, 1e12, required=True),
    Parameter("source_per_second", "events/s", "Load offered now.", None, 0, 1e12, required=True),
    Parameter("failed_per_second", "events/s", "Failed events that are sent again; null: not measured.", None, 0, 1e12),
    Parameter(
        "forecast_per_second", "events/s", "Expected load in each window.", maximum=1e12, kind="numbers", most=1_000
    ),
    Parameter("deviation_per_second", "events/s", "Standard deviation of the load.", maximum=1e12, kind="numbers"),
    Parameter("paths", "lists of operators", "Paths from a source to a sink.", kind="names", required=True),
    Parameter(
        "operators",
        "by name",
        "Measurements by operator.",
        kind="map",
        required=True,
        items=(Parameter("operator", "operator", "Measurements of one operator.", kind="object", items=OPERATOR),),
    ),
)
EXPECTED = (
    Parameter("tasks", "tasks", "Tasks that were set.", None, 1, MAX_TASKS, "integer", required=True),
    Parameter("from_per_second", "events/s", "Capacity before.", None, 0, 1e15, required=True),
    Parameter("to_per_second", "events/s", "Expected capacity.", None, 0, 1e15, required=True),
)
MEMORY = (
    Parameter(
        "tasks",
        "tasks",
        "Tasks at the measured points.",
        None,
        1,
        MAX_TASKS,
        "integers",
        required=True,
        most=REMEMBERED,
    ),
    Parameter(
        "service_seconds",
        "s",
        "Service times at the measured points.",
        maximum=1e6,
        kind="numbers",
        required=True,
        most=REMEMBERED,
    ),
    Parameter(
        "seen_per_second",
        "events/s",
        "Events counted at the source and the operator.",
        maximum=1e15,
        kind="numbers",
        most=2,
    ),
    Parameter("waited", "flag", "True: events waited for the operator at the last observation.", False, kind="flag"),
    Parameter("blocked_until_seconds", "s", "Time until which changes are blocked, or null.", None, 0, 1e13),
    Parameter("blocked_per_second", "events/s", "Offered load when the operator was blocked, or null.", None, 0, 1e12),
    Parameter("blocked_tasks", "tasks", "Tasks when blocked, or null.", None, 1, MAX_TASKS, "integer"),
    Parameter("expected", "gain", "Expected result of the last rescale, or null.", kind="object", items=EXPECTED),
)
STATE = (
    Parameter(
        "operators",
        "by name",
        "Learned values by operator.",
        kind="map",
        required=True,
        items=(Parameter("operator", "operator", "Learned values of one operator.", kind="object", items=MEMORY),),
    ),
)
NOTHING_LEARNT: Mapping[str, Json] = {
    "tasks": [],
    "service_seconds": [],
    "seen_per_second": None,
    "waited": False,
    "blocked_until_seconds": None,
    "blocked_per_second": None,
    "blocked_tasks": None,
    "expected": None,
}
# Minimum count at a source from which a share can be learned.
MIN_SEEN = 1e-9
MIN_SHARE, MAX_SHARE = 1e-9, 1e9


class JointParallelism(UntypedLaw):
    """All operators of the paths, over a horizon; see the module."""

    name = "parallelism_joint"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = None
    guard_defaults: Values = {}
    remedy, rank = Remedy("workers"), 3

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` if minimum is above maximum."""
        check_range(parameters["minimum"], parameters["maximum"])

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for invalid paths, or a forecast with a different number of deviations."""
        check_paths(observation["paths"], list(observation["operators"]), f"{where}.paths")
        means, deviations = forecast(observation)
        if len(means) != len(deviations):
            raise BadInput(
                f"{where}.deviation_per_second",
                f"must have one number per window ({len(means)}), not {len(deviations)}",
            )

    def build_initial_state(self, parameters: Values) -> Json:
        return {"operators": {}}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Raise `BadInput` for invalid points, or a source without counts.

        Points must be pairs of different tasks and a service time.
        """
        for name, row in state["operators"].items():
            _check_memory(row, f"{where}.operators.{name}")

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the tasks of every operator on a path, or no action if the current ones stay."""
        rows = observation["operators"]
        names = list_operators(observation["paths"])
        if held := hold_unmeasured(rows, names, ("rate_per_second", "service_seconds")):
            return state, held
        verdicts, memory = dict[str, float](), dict[str, dict[str, Json]]()
        for name in names:
            passed = _estimate_passed(observation, memory, name)
            memory[name] = _learn(parameters, state["operators"].get(name), observation, name, passed, verdicts)
        known = [_estimate_operator(parameters, observation, name, memory[name]) for name in names]
        plan, needs = _plan_tasks(parameters, observation, known)
        current = np.asarray([row.row["tasks"] for row in known])
        changes = bool((plan.tasks != current).any())
        if changes:
            for each, count in zip(known, plan.tasks.tolist(), strict=True):
                before, after = (each.curve.compute_capacity_per_second(n) for n in (each.row["tasks"], count))
                expected = {"tasks": count, "from_per_second": before, "to_per_second": after}
                finite = math.isfinite(before) and math.isfinite(after)
                if count > each.row["tasks"] and finite and _is_notable(expected):
                    memory[each.name]["expected"] = expected
        next_state = {"operators": {**state["operators"], **memory}}
        return next_state, _build_decision(parameters, observation, known, needs, plan, verdicts)


LAW: Law = JointParallelism()


def _plan_tasks(
    parameters: Values, observation: Values, known: Sequence[PlannedOperator]
) -> tuple[ParallelismPlan, TaskNeeds]:
    of, cost = build_demand(parameters, observation, known), build_lateness(parameters, known)
    needs = TaskNeeds.compute(parameters, observation, known, of)
    current = np.asarray([row.row["tasks"] for row in known])
    windows, steps = len(needs.needed), compute_steps_per_window(parameters)
    begins = np.arange(windows) * steps
    ends = np.minimum(begins + steps, of.rates.shape[1]) - 1
    late, left = compute_waiting_cost(of, cost, needs.capacities, begins, parameters["pause_seconds"])
    now = compute_waiting_cost(of, cost, np.asarray([needs.capacity_now]), begins[:1], 0.0)
    window_seconds = steps * of.step_seconds
    stretches = PlanRanges(
        needs.needed,
        needs.levels,
        (late + left)[:, ends],
        window_seconds,
        parameters["change_seconds"] * float(current.sum()),
    )
    waiting_now = (now[0] + now[1])[0, ends, 0].tolist()
    return find_cheapest_plan(current, needs.keeps, waiting_now, stretches), needs


def _check_memory(row: Values, where: str) -> None:
    if len(row["tasks"]) != len(row["service_seconds"]):
        raise BadInput(f"{where}.service_seconds", f"must have one number per point ({len(row['tasks'])})")
    if len(set(row["tasks"])) != len(row["tasks"]):
        raise BadInput(f"{where}.tasks", f"must have each number of tasks only once, not {row['tasks']}")
    seen = row["seen_per_second"]
    if seen and (len(seen) != 2 or seen[0] < MIN_SEEN / 2):
        raise BadInput(
            f"{where}.seen_per_second",
            f"must be two numbers, the first above 0, or null, not {shorten_for_message(seen)}",
        )


def _estimate_passed(observation: Values, memory: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """Return what gets through to an operator (events/s of the source) if events wait before it.

    Otherwise, return None. An operator with waiting events is always busy: it passes its capacity.
    """
    rows, source = observation["operators"], observation["source_per_second"]
    before = {upstream for path in observation["paths"] if name in path for upstream in path[: path.index(name)]}
    waiting = [upstream for upstream in before if rows[upstream]["backlog_events"] > source]
    passed = [
        rows[upstream]["tasks"] / rows[upstream]["service_seconds"] / share
        for upstream in waiting
        if rows[upstream]["service_seconds"] > 0 and upstream in memory
        if (share := _share(memory[upstream]["seen_per_second"]))
    ]
    return min([source, *passed]) if waiting else None


def _learn(
    parameters: Values, memory: Json, observation: Values, name: str, passed: float | None, verdicts: dict[str, float]
) -> dict[str, Json]:
    """Return the memory of an operator; `verdicts` receives the share of the expected gain of a rescale."""
    row, source = observation["operators"][name], observation["source_per_second"]
    before = memory or NOTHING_LEARNT
    points = dict(zip(map(int, before["tasks"]), before["service_seconds"], strict=True))
    points = remember(points, int(row["tasks"]), row["service_seconds"])
    seen = _update_rates(before, row["rate_per_second"], source, passed)
    expected = before["expected"]
    if expected is not None and expected["tasks"] == row["tasks"] and _is_notable(expected):
        verdicts[name] = _share_of_gain(expected, row)
    blocked = _block(parameters, observation, before, row, verdicts.get(name))
    return {
        "tasks": [float(count) for count in points],
        "service_seconds": list(points.values()),
        "seen_per_second": seen,
        "waited": passed is not None,
        **blocked,
        "expected": None,
    }


def _block(
    parameters: Values,
    observation: Values,
    before: Mapping[str, Any],
    row: Mapping[str, Any],
    share_of_gain: float | None,
) -> dict[str, Json]:
    """Return until when an operator gets no more tasks than it had, and the load at that time.

    All values are null if it may get more. The block ends early if notably more is offered and the waiting exceeds the
    deadline.
    """
    at_seconds, rate = observation["at_seconds"], row["rate_per_second"]
    if share_of_gain is not None and share_of_gain < parameters["effective_share"]:
        return _build_block(at_seconds + parameters["blocked_seconds"], rate, row["tasks"])
    until, offered = before["blocked_until_seconds"], before.get("blocked_per_second")
    if until is None or at_seconds >= until:
        return _build_block(None, None, None)
    waits_seconds = row["backlog_events"] * row["service_seconds"] / row["tasks"]
    has_grown = offered is not None and rate > offered * (1 + NOTABLE)
    if has_grown and waits_seconds > parameters["deadline_seconds"]:
        return _build_block(None, None, None)
    return _build_block(until, offered, before.get("blocked_tasks"))


def _build_block(until_seconds: float | None, per_second: float | None, tasks: int | None) -> dict[str, Json]:
    return {"blocked_until_seconds": until_seconds, "blocked_per_second": per_second, "blocked_tasks": tasks}


def _is_notable(expected: Mapping[str, float]) -> bool:
    return expected["to_per_second"] >= expected["from_per_second"] * (1 + NOTABLE)


def _update_rates(before: Mapping[str, Any], rate: float, source: float, passed: float | None) -> list[float] | None:
    """Return the counts at the source and at the operator; older counts weigh less.

    While events wait before the operator, its arrivals are what was let through; afterwards the backlog arrives. Both
    say nothing about the share, so they are used only if nothing else is known. A source that was idle for so long that
    its counts have decayed says nothing, either.
    """
    seen = before["seen_per_second"]
    if not seen:
        first = [source, rate] if passed is None else [passed * ESTIMATED, rate * ESTIMATED]
        return first if first[0] >= MIN_SEEN else None
    if passed is not None or before["waited"] or (seen[0] < MIN_SEEN and source < MIN_SEEN):
        return list(seen)
    return [SEEN_AGAIN * old + new for old, new in zip(seen, (source, rate), strict=True)]


def _share_of_gain(expected: Mapping[str, float], row: Mapping[str, Any]) -> float:
    if row["service_seconds"] <= 0:
        return 1.0
    gained = row["tasks"] / row["service_seconds"] - expected["from_per_second"]
    share = gained / max(expected["to_per_second"] - expected["from_per_second"], 1e-9)
    return float(min(max(share, -MAX_GAIN), MAX_GAIN))


def _estimate_operator(
    parameters: Values, observation: Values, name: str, memory: Mapping[str, Any]
) -> PlannedOperator:
    row = observation["operators"][name]
    points = dict(zip(map(int, memory["tasks"]), memory["service_seconds"], strict=True))
    curve = ScalingCurve.fit(points, int(row["tasks"]))
    is_blocked = memory["blocked_until_seconds"] is not None
    hand = parameters["tasks_of"].get(name)
    fewest, most = compute_task_range(parameters, row) if hand is None else (hand, hand)
    share = _share(memory["seen_per_second"])
    if memory["seen_per_second"] is None and row["backlog_events"] > 0:
        share = 1.0  # unknown, and the waiting events came from somewhere
    had = max(int(row["tasks"]), int(memory["blocked_tasks"] or 0))
    return PlannedOperator(name, row, curve, share, had if is_blocked and hand is None else None, fewest, most)


def _share(seen: Sequence[float] | None) -> float:
    """Return the events that arrive here per event at the source; next to none counts as none."""
    source, here = seen or (1.0, 0.0)
    share = here / source
    return min(share, MAX_SHARE) if share >= MIN_SHARE else 0.0


def _build_decision(
    parameters: Values,
    observation: Values,
    known: Sequence[PlannedOperator],
    needs: TaskNeeds,
    plan: ParallelismPlan,
    verdicts: Mapping[str, float],
) -> Decision:
    tasks = {each.name: int(count) for each, count in zip(known, plan.tasks, strict=True)}
    before = {row.name: int(row.row["tasks"]) for row in known}
    capacity = compute_capacity_per_second(known, plan.tasks)
    by_hand = {name: int(count) for name, count in parameters["tasks_of"].items() if name in tasks}
    terms = {
        "tasks_before": before,
        "tasks_needed": {each.name: int(n) for each, n in zip(known, needs.needed[0], strict=True)},
        "tasks_total": sum(tasks.values()),
        "windows_until_change": plan.changes_at,
        "cost_task_seconds": round(plan.cost, 3),
        "capacity_per_second": round(capacity, 3),
        "path_seconds": estimate_slowest_path_seconds(observation, known, plan.tasks),
        "gain_shares": {name: round(share, 4) for name, share in verdicts.items()},
        "blocked": needs.blocked,
        "by_hand": by_hand,
    }
    failed = [name for name, share in verdicts.items() if share < parameters["effective_share"]]
    reason = format_reason(
        _describe_action(before, tasks),
        _cause(parameters, needs, before, tasks),
        remarks=[
            *([f"the last rescale of {format_names(failed)} gained less than expected"] if failed else []),
            *([f"{format_names(needs.blocked)}: more tasks did not help; retrying later"] if needs.blocked else []),
            *([f"set by a user: {format_names(list(by_hand))}"] if by_hand else []),
        ],
    )
    limited = "effectiveness" if needs.blocked else _explain_maximum(parameters, known, needs)
    if tasks == before:
        return Decision(None, reason, terms, limited)
    expected = _build_expectation(parameters, before, tasks, capacity, needs.capacity_now)
    return Decision({"tasks": tasks}, reason, terms, limited, expected=expected)


def _build_expectation(
    parameters: Values, before: Mapping[str, int], tasks: Mapping[str, int], capacity: float, now: float
) -> Expectation:
    """Return the expected effect: more capacity if that is the purpose, otherwise the tasks themselves."""
    within = parameters["interval_seconds"] / 2
    if capacity >= now * (1 + NOTABLE):
        return Expectation("capacity_per_second", "up", capacity - now, within)
    change = sum(tasks.values()) - sum(before.values())
    return Expectation("tasks", "up" if change > 0 else "down", float(abs(change)), within)


def _explain_maximum(parameters: Values, known: Sequence[PlannedOperator], needs: TaskNeeds) -> str | None:
    if any(name not in parameters["tasks_of"] for name in needs.short):
        return "maximum"
    most = (compute_task_range(parameters, row.row)[1] for row in known)
    full = any(need >= limit for need, limit in zip(needs.needed[0], most, strict=True))
    return "maximum" if full and not needs.keeps[0] else None


def _describe_action(before: Mapping[str, int], tasks: Mapping[str, int]) -> str:
    """Describe the action: the operators whose tasks change."""
    changes = [f"{name} {count} → {tasks[name]}" for name, count in before.items() if tasks[name] != count]
    return f"Set tasks of {format_names(changes)}" if changes else NO_ACTION


def _cause(parameters: Values, needs: TaskNeeds, before: Mapping[str, int], tasks: Mapping[str, int]) -> str:
    now, then = sum(before.values()), sum(tasks.values())
    have, (do, suffice) = format_count(now, "task"), ("does", "suffices") if now == 1 else ("do", "suffice")
    pause = "the pause" if parameters["pause_seconds"] else "the change"
    if needs.short and then > now:
        return f"{have} {do} not suffice for the forecast load, nor do {then}, and more are not allowed"
    if tasks == before and needs.keeps[0] and not needs.short:
        return f"{have} {suffice} for now; the expected gain of a change is smaller than the cost of {pause}"
    if tasks == before:
        return f"{have} {do} not suffice, and more are not allowed"
    if not needs.keeps[0]:
        return f"{have} {do} not suffice for the forecast load, but {then} do"
    return f"the expected gain of {format_count(then, 'task')} instead of {now} exceeds the cost of {pause}"
