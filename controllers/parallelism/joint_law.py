"""Tasks of all operators together, ahead of the load: by forecast, cost of a pause, and measured gain.

The forecast is a spread of rates (`needs.demand`), not one. Each capacity of the chain costs
its tasks and, expected over that spread, the events that wait too long, in a pause, in a peak, behind what
piled up (`fluid_backlog`): so an event that comes too late is weighed against a task that stands idle, as
a newsvendor weighs a paper not had against one not sold. Besides, the mean forecast between two
decisions has to keep `target_utilisation` and the paths' bound (`task_allocation`). How far tasks help is
learnt (`scaling_curve`). `plan` decides when to change: the present tasks stay while they do, up
to `tolerance` above the target, and while a change doesn't pay.

What failed comes again beside what is new (`fluid_backlog`): tasks that only keep pace with what is new never
end that, and cost accordingly.

After a rescale the measured gain of capacity is held against the expected one, unless that was so small that
noise hides it. Where less than `effective_share` of it came, the operator gets no more tasks than it had then
for `blocked_seconds`, and the decision says so; then it is tried again, or sooner, once notably more is
offered and what waits there outlasts the deadline. What it gives back in a dip meanwhile it may get again.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from controllers.framework.decision import Decision, Expected, Json
from controllers.framework.law import Law, Remedy, Values
from controllers.framework.parameter import Parameter, check_range
from controllers.framework.reason import NO_ACTION, because, counted, listed
from controllers.parallelism.fluid_backlog import cost_of_waiting
from controllers.parallelism.measured_paths import (
    TAKEN,
    held_unmeasured,
    operators_of,
    task_range,
)
from controllers.parallelism.measured_topology import MOST_TASKS
from controllers.parallelism.needs import (
    Known,
    TaskNeeds,
    capacity_per_second,
    demand,
    forecast,
    lateness,
    slowest_path_seconds,
    steps_per_window,
)
from controllers.parallelism.plan import Ints, ParallelismPlan, Stretches, cheapest_plan
from controllers.parallelism.queueing_topology import check_paths
from controllers.parallelism.scaling_curve import REMEMBERED, ScalingCurve, remember
from queues.checks import shown
from queues.errors import BadInput

# A gain of capacity that noise could not be.
NOTABLE = 0.05
# Of the expected gain; what is more came of something else.
MOST_GAIN = 1e6
# What was seen counts so much at the next check.
SEEN_AGAIN = 0.8
# A first share that could only be estimated counts so little beside one that was seen.
ESTIMATED = 1e-3
PARAMETERS = (
    Parameter("bound_seconds", "s", "Latency that every path keeps for what is expected.", 1.0, 1e-9, 1e6),
    Parameter("minimum", "tasks", "Of each operator, at least.", 1, 1, MOST_TASKS, "integer"),
    Parameter("maximum", "tasks", "Of each operator, at most.", 10, 1, MOST_TASKS, "integer"),
    Parameter("target_utilisation", "utilisation", "Of each task when they change.", 0.8, 0.1, 0.99),
    Parameter("tolerance", "share of the target", "Above it the present tasks still do.", 0.2, 0, 1),
    Parameter("missed_cost", "times its work", "Of an event that comes too late.", 8.0, 0, 1e6),
    Parameter("deadline_seconds", "s", "An event that waits longer has failed.", 60.0, 1e-3, 1e6),
    Parameter("window_seconds", "s", "Of the forecast.", 60.0, 1e-3, 1e7),
    Parameter("interval_seconds", "s", "Between decisions; tasks change no sooner.", 60.0, 1e-3, 1e7),
    Parameter("pause_seconds", "s", "For which a change stops everything.", 20.0, 0, 1e5),
    Parameter("change_seconds", "s", "Of all tasks, that a change costs besides.", 5.0, 0, 1e5),
    Parameter(
        "tasks_of",
        "tasks",
        "Of operators whose tasks a person has set.",
        {},
        kind="map",
        items=(Parameter("tasks", "tasks", "Of this operator.", None, 1, MOST_TASKS, "integer"),),
    ),
    Parameter("effective_share", "share", "Of the expected gain; with less a rescale failed.", 0.3, 0, 1),
    Parameter("blocked_seconds", "s", "Until what did not help is tried again.", 1800.0, 0, 1e7),
)
OPERATOR = (
    Parameter("tasks", "tasks", "Now.", None, 1, MOST_TASKS, "integer", required=True),
    Parameter("rate_per_second", "events/s", "Offered to all its tasks; null: not measured.", None, 0, 1e12),
    Parameter("service_seconds", "s", "Of one event in a task; null: not measured.", None, 0, 1e6),
    Parameter("backlog_events", "events", "Waiting there.", 0.0, 0, 1e15),
    Parameter("variability", "mean of c²", "Of arrivals and service.", 1.0, 0, 1e6),
    Parameter("latency_seconds", "s", "What an event spends there besides waiting.", 0.0, 0, 1e6),
    *TAKEN,
)
OBSERVATION = (
    Parameter("at_seconds", "s", "Now.", None, 0, 1e12, required=True),
    Parameter("source_per_second", "events/s", "Offered now.", None, 0, 1e12, required=True),
    Parameter(
        "failed_per_second",
        "events/s",
        "That was too late and comes again; null: not measured.",
        None,
        0,
        1e12,
    ),
    Parameter(
        "forecast_per_second",
        "events/s",
        "Expected in each window.",
        maximum=1e12,
        kind="numbers",
        most=1_000,
    ),
    Parameter("deviation_per_second", "events/s", "Its deviation.", maximum=1e12, kind="numbers"),
    Parameter("paths", "lists of operators", "Paths from a source to a sink.", kind="names", required=True),
    Parameter(
        "operators",
        "by name",
        "What was measured.",
        kind="map",
        required=True,
        items=(Parameter("operator", "operator", "One of them.", kind="object", items=OPERATOR),),
    ),
)
EXPECTED = (
    Parameter("tasks", "tasks", "That were set.", None, 1, MOST_TASKS, "integer", required=True),
    Parameter("from_per_second", "events/s", "Capacity before.", None, 0, 1e15, required=True),
    Parameter("to_per_second", "events/s", "Capacity expected.", None, 0, 1e15, required=True),
)
MEMORY = (
    Parameter(
        "tasks", "tasks", "Of the points.", None, 1, MOST_TASKS, "integers", required=True, most=REMEMBERED
    ),
    Parameter("service_seconds", "s", "There.", maximum=1e6, kind="numbers", required=True, most=REMEMBERED),
    Parameter("seen_per_second", "events/s", "At the source and here.", maximum=1e15, kind="numbers", most=2),
    Parameter("waited", "flag", "Whether something did before it when last seen.", False, kind="flag"),
    Parameter("blocked_until_seconds", "s", "Or null.", None, 0, 1e13),
    Parameter("blocked_per_second", "events/s", "Offered here when it was blocked, or null.", None, 0, 1e12),
    Parameter("blocked_tasks", "tasks", "Had when it was blocked, or null.", None, 1, MOST_TASKS, "integer"),
    Parameter("expected", "gain", "Of the last rescale, or null.", kind="object", items=EXPECTED),
)
STATE = (
    Parameter(
        "operators",
        "by name",
        "What was learnt of each.",
        kind="map",
        required=True,
        items=(Parameter("operator", "operator", "One of them.", kind="object", items=MEMORY),),
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
# What comes at a source, summed over what was seen of it; of less no share can be learnt.
LEAST_SEEN = 1e-9
LEAST_SHARE, MOST_SHARE = 1e-9, 1e9


class ParallelismJoint:
    """All operators of the paths, over a horizon; see the module."""

    name = "parallelism_joint"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = None
    guard_defaults: Values = {}
    remedy, rank = Remedy("workers"), 3

    def check(self, parameters: Values) -> None:
        """Raise `BadInput` when minimum is above maximum."""
        check_range(parameters)

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for paths without sense, or a forecast whose deviations are not as many."""
        check_paths(observation["paths"], list(observation["operators"]), f"{where}.paths")
        means, deviations = forecast(observation)
        if len(means) != len(deviations):
            raise BadInput(
                f"{where}.deviation_per_second",
                f"takes one number per window ({len(means)}), not {len(deviations)}",
            )

    def initial_state(self, parameters: Values) -> Json:
        """Nothing learnt."""
        return {"operators": {}}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Raise `BadInput` for points that are not pairs of different tasks and a service, and for a source
        at which nothing was seen."""
        for name, row in state["operators"].items():
            _check_memory(row, f"{where}.operators.{name}")

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Tasks of every operator on a path, or none when the present ones stay."""
        rows = observation["operators"]
        names = operators_of(observation["paths"])
        if held := held_unmeasured(rows, names, ("rate_per_second", "service_seconds")):
            return state, held
        verdicts, memory = dict[str, float](), dict[str, dict[str, Json]]()
        for name in names:
            passed = _passed(observation, memory, name)
            memory[name] = _learn(
                parameters, state["operators"].get(name), observation, name, passed, verdicts
            )
        known = [_known(parameters, observation, name, memory[name]) for name in names]
        plan, needs = _planned(parameters, observation, known)
        current = np.asarray([each.row["tasks"] for each in known])
        changes = bool((plan.tasks != current).any())
        if changes:
            _expect(memory, known, plan.tasks)
        next_state = {"operators": {**state["operators"], **memory}}
        return next_state, _decision(parameters, observation, known, needs, plan, verdicts)


LAW: Law = ParallelismJoint()


def _planned(
    parameters: Values, observation: Values, known: Sequence[Known]
) -> tuple[ParallelismPlan, TaskNeeds]:
    of, cost = demand(parameters, observation, known), lateness(parameters, known)
    needs = TaskNeeds.of(parameters, observation, known, of)
    current = np.asarray([each.row["tasks"] for each in known])
    windows, steps = len(needs.needed), steps_per_window(parameters)
    begins = np.arange(windows) * steps
    ends = np.minimum(begins + steps, of.rates.shape[1]) - 1
    late, left = cost_of_waiting(of, cost, needs.capacities, begins, parameters["pause_seconds"])
    now = cost_of_waiting(of, cost, np.asarray([needs.capacity_now]), begins[:1], 0.0)
    window_seconds = steps * of.step_seconds
    stretches = Stretches(
        needs.needed,
        needs.levels,
        (late + left)[:, ends],
        window_seconds,
        parameters["change_seconds"] * float(current.sum()),
    )
    waiting_now = (now[0] + now[1])[0, ends, 0].tolist()
    return cheapest_plan(current, needs.keeps, waiting_now, stretches), needs


def _check_memory(row: Values, where: str) -> None:
    if len(row["tasks"]) != len(row["service_seconds"]):
        raise BadInput(f"{where}.service_seconds", f"takes one number per point ({len(row['tasks'])})")
    if len(set(row["tasks"])) != len(row["tasks"]):
        raise BadInput(f"{where}.tasks", f"takes each number of tasks once, not {row['tasks']}")
    seen = row["seen_per_second"]
    if seen and (len(seen) != 2 or seen[0] < LEAST_SEEN / 2):
        raise BadInput(
            f"{where}.seen_per_second", f"takes two numbers, the first above 0, or null, not {shown(seen)}"
        )


def _passed(observation: Values, memory: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """What gets through to an operator, events/s of the source, where something waits before it; None where
    nothing does. What waits is always busy: it passes its capacity."""
    rows, source = observation["operators"], observation["source_per_second"]
    before = {each for path in observation["paths"] if name in path for each in path[: path.index(name)]}
    waiting = [each for each in before if rows[each]["backlog_events"] > source]
    passed = [
        rows[each]["tasks"] / rows[each]["service_seconds"] / share
        for each in waiting
        if rows[each]["service_seconds"] > 0 and each in memory
        if (share := _share(memory[each]["seen_per_second"]))
    ]
    return min([source, *passed]) if waiting else None


def _learn(
    parameters: Values,
    memory: Json,
    observation: Values,
    name: str,
    passed: float | None,
    verdicts: dict[str, float],
) -> dict[str, Json]:
    """What is remembered of an operator from now on; `verdicts` gets a rescale's share of its gain."""
    row, source = observation["operators"][name], observation["source_per_second"]
    before = memory or NOTHING_LEARNT
    points = dict(zip(map(int, before["tasks"]), before["service_seconds"], strict=True))
    points = remember(points, int(row["tasks"]), row["service_seconds"])
    seen = _seen(before, row["rate_per_second"], source, passed)
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
    """Until when an operator gets no more tasks than it had when that was found, and what it was offered
    then; all null where it may. It ends before its time where notably more is offered and what waits outlasts
    the deadline.
    """
    at_seconds, rate = observation["at_seconds"], row["rate_per_second"]
    if share_of_gain is not None and share_of_gain < parameters["effective_share"]:
        return _blocked(at_seconds + parameters["blocked_seconds"], rate, row["tasks"])
    until, offered = before["blocked_until_seconds"], before.get("blocked_per_second")
    if until is None or at_seconds >= until:
        return _blocked(None, None, None)
    waits_seconds = row["backlog_events"] * row["service_seconds"] / row["tasks"]
    has_grown = offered is not None and rate > offered * (1 + NOTABLE)
    if has_grown and waits_seconds > parameters["deadline_seconds"]:
        return _blocked(None, None, None)
    return _blocked(until, offered, before.get("blocked_tasks"))


def _blocked(until_seconds: float | None, per_second: float | None, tasks: int | None) -> dict[str, Json]:
    return {"blocked_until_seconds": until_seconds, "blocked_per_second": per_second, "blocked_tasks": tasks}


def _is_notable(expected: Mapping[str, float]) -> bool:
    """Whether noise could not hide such a gain."""
    return expected["to_per_second"] >= expected["from_per_second"] * (1 + NOTABLE)


def _seen(before: Mapping[str, Any], rate: float, source: float, passed: float | None) -> list[float] | None:
    """Events at the source and at the operator, the older the less they count. Where something waits before
    it, what comes is what was let through; then what had piled up comes down; both say nothing, and only
    where nothing else is known it is taken for a share of what passes. Nor does a source say anything that
    has been idle for so long that hardly anything is left of what was seen."""
    seen = before["seen_per_second"]
    if not seen:
        first = [source, rate] if passed is None else [passed * ESTIMATED, rate * ESTIMATED]
        return first if first[0] >= LEAST_SEEN else None
    if passed is not None or before["waited"] or (seen[0] < LEAST_SEEN and source < LEAST_SEEN):
        return list(seen)
    return [SEEN_AGAIN * old + new for old, new in zip(seen, (source, rate), strict=True)]


def _share_of_gain(expected: Mapping[str, float], row: Mapping[str, Any]) -> float:
    if row["service_seconds"] <= 0:
        return 1.0
    gained = row["tasks"] / row["service_seconds"] - expected["from_per_second"]
    share = gained / max(expected["to_per_second"] - expected["from_per_second"], 1e-9)
    return float(min(max(share, -MOST_GAIN), MOST_GAIN))


def _known(parameters: Values, observation: Values, name: str, memory: Mapping[str, Any]) -> Known:
    row = observation["operators"][name]
    points = dict(zip(map(int, memory["tasks"]), memory["service_seconds"], strict=True))
    curve = ScalingCurve.through(points, int(row["tasks"]))
    is_blocked = memory["blocked_until_seconds"] is not None
    hand = parameters["tasks_of"].get(name)
    fewest, most = task_range(parameters, row) if hand is None else (hand, hand)
    share = _share(memory["seen_per_second"])
    if memory["seen_per_second"] is None and row["backlog_events"] > 0:
        share = 1.0  # not known, and what waits has come from somewhere
    had = max(int(row["tasks"]), int(memory["blocked_tasks"] or 0))
    return Known(name, row, curve, share, had if is_blocked and hand is None else None, fewest, most)


def _share(seen: Sequence[float] | None) -> float:
    """Events that come here for one at the source; next to none is none."""
    source, here = seen or (1.0, 0.0)
    share = here / source
    return min(share, MOST_SHARE) if share >= LEAST_SHARE else 0.0


def _expect(memory: Mapping[str, dict[str, Json]], known: Sequence[Known], tasks: Ints) -> None:
    """Notes what more tasks should bring, to be held against what they do."""
    for each, count in zip(known, tasks.tolist(), strict=True):
        before, after = (each.curve.capacity_per_second(n) for n in (each.row["tasks"], count))
        expected = {"tasks": count, "from_per_second": before, "to_per_second": after}
        finite = math.isfinite(before) and math.isfinite(after)
        if count > each.row["tasks"] and finite and _is_notable(expected):
            memory[each.name]["expected"] = expected


def _decision(
    parameters: Values,
    observation: Values,
    known: Sequence[Known],
    needs: TaskNeeds,
    plan: ParallelismPlan,
    verdicts: Mapping[str, float],
) -> Decision:
    tasks = {each.name: int(count) for each, count in zip(known, plan.tasks, strict=True)}
    before = {each.name: int(each.row["tasks"]) for each in known}
    capacity = capacity_per_second(known, plan.tasks)
    by_hand = {name: int(count) for name, count in parameters["tasks_of"].items() if name in tasks}
    terms = {
        "tasks_before": before,
        "tasks_needed": {each.name: int(n) for each, n in zip(known, needs.needed[0], strict=True)},
        "tasks_total": sum(tasks.values()),
        "windows_until_change": plan.changes_at,
        "cost_task_seconds": round(plan.cost, 3),
        "capacity_per_second": round(capacity, 3),
        "path_seconds": slowest_path_seconds(observation, known, plan.tasks),
        "gain_shares": {name: round(share, 4) for name, share in verdicts.items()},
        "blocked": needs.blocked,
        "by_hand": by_hand,
    }
    failed = [name for name, share in verdicts.items() if share < parameters["effective_share"]]
    reason = because(
        _what(before, tasks),
        _cause(parameters, needs, before, tasks),
        remarks=[
            *([f"the last rescale of {listed(failed)} gained less than expected"] if failed else []),
            *(
                [f"{listed(needs.blocked)}: more tasks did not help, tried again later"]
                if needs.blocked
                else []
            ),
            *([f"set by a person: {listed(list(by_hand))}"] if by_hand else []),
        ],
    )
    limited = "effectiveness" if needs.blocked else _at_most(parameters, known, needs)
    if tasks == before:
        return Decision(None, reason, terms, limited)
    expected = _expected(parameters, before, tasks, capacity, needs.capacity_now)
    return Decision({"tasks": tasks}, reason, terms, limited, expected=expected)


def _expected(
    parameters: Values, before: Mapping[str, int], tasks: Mapping[str, int], capacity: float, now: float
) -> Expected:
    """More capacity where that is what it is for; else the tasks themselves."""
    within = parameters["interval_seconds"] / 2
    if capacity >= now * (1 + NOTABLE):
        return Expected("capacity_per_second", "up", capacity - now, within)
    change = sum(tasks.values()) - sum(before.values())
    return Expected("tasks", "up" if change > 0 else "down", float(abs(change)), within)


def _at_most(parameters: Values, known: Sequence[Known], needs: TaskNeeds) -> str | None:
    if any(name not in parameters["tasks_of"] for name in needs.short):
        return "maximum"
    most = (task_range(parameters, each.row)[1] for each in known)
    full = any(need >= limit for need, limit in zip(needs.needed[0], most, strict=True))
    return "maximum" if full and not needs.keeps[0] else None


def _what(before: Mapping[str, int], tasks: Mapping[str, int]) -> str:
    """The action in words: the operators whose tasks change."""
    changes = [f"{name} {count} → {tasks[name]}" for name, count in before.items() if tasks[name] != count]
    return f"Set tasks of {listed(changes)}" if changes else NO_ACTION


def _cause(parameters: Values, needs: TaskNeeds, before: Mapping[str, int], tasks: Mapping[str, int]) -> str:
    now, then = sum(before.values()), sum(tasks.values())
    have, (do, suffice) = counted(now, "task"), ("does", "suffices") if now == 1 else ("do", "suffice")
    pause = "the pause" if parameters["pause_seconds"] else "the change"
    if needs.short and then > now:
        return f"{have} {do} not suffice for the forecast load, nor do {then}, and more are not allowed"
    if tasks == before and needs.keeps[0] and not needs.short:
        return f"{have} {suffice} for now, and a change would not repay {pause}"
    if tasks == before:
        return f"{have} {do} not suffice, and more are not allowed"
    if not needs.keeps[0]:
        return f"{have} {do} not suffice for the forecast load, {then} do"
    return f"{counted(then, 'task')} instead of {now} {'repays' if then == 1 else 'repay'} {pause}"
