"""The remedy ladder of a queue: which level acts next in an overload, and which is released first after it.

    rebalance → workers → nodes → throttle → shed

`workers` represents more workers, concurrency, and parallelism together. The first three levels cost resources, the
fourth delay, the fifth events. A level is enabled when the one below is exhausted: saturated (its loop is at its limit,
or has nothing to move), or ineffective (enabled for `settling_decisions`, and the unmet share of the demand fell by
less than `effective_share` of what it was). A level that is exhausted from the start is skipped at once. Throttling
does not change the demand, so it is judged by the arrivals: it is effective while no more than `LEFT_BY_THROTTLING` of
the unmet demand arrives, and ineffective if more has arrived for `settling_decisions`. A queue may cap its ladder:
`cap` names the highest level it may reach.

Throttling and shedding need unmet demand, for `unmet_decisions` in a row. A backlog alone, however long, enables only
the levels that cost resources. As soon as the demand is met, shedding ends, and throttling ends with the next decision.
The other levels are released when the demand fits, after three decisions; their loops then return the resources at
their own pace.

An objective's error budget may pay for either (`controllers.shedding.budgets`). While too little of it is left,
shedding ends and is not enabled; throttling counts as exhausted, and its share is limited to what the budget allows.

    unmet       1 - capacity / demand; less than `MIN_UNMET` is the error of measured rates, and counts as 0
    overloaded  demand > capacity, or backlog > backlog_bound_seconds
    fits        demand ≤ release_share * capacity, and backlog ≤ backlog_bound_seconds

`demand` is what producers offer, before throttling and shedding; `capacity` is what the plant handles now; `came` is
what producers inserted, if known.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, UntypedLaw, Values
from controllers.framework.reason import format_no_action, format_number, format_percent, format_reason
from controllers.shedding.budgets import BUDGET_SECONDS, BUDGETS, compute_allowed_per_second, find_exhausted_objective

LEVELS = ("rebalance", "workers", "nodes", "throttle", "shed")
LEVEL_NAMES = {
    "rebalance": "rebalancing",
    "workers": "adding workers",
    "nodes": "adding nodes",
    "throttle": "throttling",
    "shed": "shedding",
}
THROTTLE, SHED = LEVELS.index("throttle") + 1, LEVELS.index("shed") + 1
MIN_UNMET = 0.005
# Producers insert more than the capacity while they wait, because measured rates and shares are never exact.
LEFT_BY_THROTTLING = 0.1
# Maximum share of the time; if producers were blocked all the time, the offered load could not be measured.
MAX_CLOSED = 0.95
SMALL = 0.095  # of the demand; a smaller share would be displayed as 0 to 9 %
# Decisions after the end of the overload until each level is released.
CALM_DECISIONS = {SHED: 1, THROTTLE: 2}
CALM_FOR_THE_REST = 3
EFFECT_SECONDS = 30.0

PARAMETERS = (
    Parameter("cap", "choice", "Highest level that this queue may reach.", "shed", kind="choice", choices=LEVELS),
    Parameter(
        "settling_decisions",
        "decisions",
        "Number of decisions within which an enabled level must show an effect.",
        3,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "effective_share",
        "share of the unmet demand",
        "Minimum effect in that time; a level with less is ineffective.",
        0.1,
        0,
        1,
    ),
    Parameter(
        "unmet_decisions",
        "decisions",
        "Number of decisions in a row with unmet demand before throttling or shedding.",
        1,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "backlog_bound_seconds",
        "s",
        "Maximum backlog, in time to process it; a longer one is an overload.",
        10.0,
        0,
        86_400,
    ),
    Parameter("release_share", "share of capacity", "Maximum demand at which levels are released.", 0.9, 0.01, 1),
    BUDGET_SECONDS,
)
OBSERVATION = (
    Parameter("demand_per_second", "events/s", "Rate that producers offer.", maximum=1e15, required=True),
    Parameter("capacity_per_second", "events/s", "Rate that the plant handles.", maximum=1e15, required=True),
    Parameter("came_per_second", "events/s", "Rate that producers insert; null: not known.", None, 0, 1e15),
    Parameter("backlog_seconds", "s", "Time to process the backlog.", 0.0, 0, 1e12),
    Parameter(
        "saturated",
        "flag",
        "Level → true if its loop is at its limit.",
        {},
        kind="map",
        items=(Parameter("saturated", "flag", "True: the loop is at its limit.", False, kind="flag"),),
    ),
    BUDGETS,
)
STATE = (
    Parameter("rung", "level", "Highest enabled level; 0 is none.", None, 0, len(LEVELS), "integer", required=True),
    Parameter(
        "decisions", "decisions", "Decisions since the level was enabled.", None, 0, 1e9, "integer", required=True
    ),
    Parameter("unmet", "share of demand", "Unmet demand when the level was enabled.", None, 0, 1, required=True),
    Parameter(
        "calm",
        "decisions",
        "Decisions since the demand fell below the release share.",
        None,
        0,
        1e9,
        "integer",
        required=True,
    ),
    Parameter("short", "decisions", "Decisions in a row with unmet demand.", 0, 0, 1e9, "integer"),
)


class Ladder(UntypedLaw):
    """The highest level that may act; see the module for the rules."""

    name = "ladder"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = "rung"
    lasting, lapsed = True, 0.0
    guard_defaults: Values = {"maximum": float(len(LEVELS))}

    def check(self, parameters: Values) -> None:
        """Accept all parameters: they can't contradict each other."""

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for an unknown level."""
        for rung in observation["saturated"]:
            if rung not in LEVELS:
                raise BadInput(f"{where}.saturated.{rung}", f"is not a level; the levels are {', '.join(LEVELS)}")

    def build_initial_state(self, parameters: Values) -> Json:
        """Return a state without an enabled level."""
        return {"rung": 0, "decisions": 0, "unmet": 0.0, "calm": 0, "short": 0}

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Accept any state: a level above the cap is released with the next decision."""

    def resume_state(self, parameters: Values, state: Json) -> Json:
        """Return a state without an enabled level.

        Throttling and the shedding table have expired, and levels that were exhausted then have not been tried now.
        """
        return self.build_initial_state(parameters)

    def correct_state(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """Return the state with the level in force; a level that was not left stays on trial."""
        rung = before["rung"] if action is None else int(action["rung"])
        if rung == after["rung"]:
            return after
        stays = {"decisions": before["decisions"] + 1, "unmet": before["unmet"]}
        return {**after, **(stays if rung == before["rung"] else {}), "rung": rung}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return the next level up or down, or no action if the enabled level is right."""
        cap = LEVELS.index(parameters["cap"]) + 1
        if state["rung"] >= SHED and (spent := _find_exhausted_budget(observation, "shed", state)):
            return _stop_shedding(parameters, state, observation, cap, spent)
        short = state["short"] + 1 if _compute_unmet_share(observation) else 0
        decisions = state["decisions"] + 1
        state = {**state, "rung": min(state["rung"], cap), "decisions": decisions, "short": short}
        if _fits(parameters, observation):
            return _descend({**state, "calm": state["calm"] + 1})
        state = {**state, "calm": 0}
        if state["rung"] >= THROTTLE and not _compute_unmet_share(observation):
            return _release_levels(state, f"demand is met, and {get_level_name(state['rung'])} needs unmet demand")
        if _is_overloaded(parameters, observation):
            return _climb(parameters, state, observation, cap)
        fits = format_percent(parameters["release_share"])
        reason = format_no_action(
            f"demand is met, but exceeds {fits} of capacity; {describe_enabled_levels(state['rung'])}"
        )
        return state, Decision(None, reason, {"rung": state["rung"]})


LAW: Law = Ladder()


def get_level_name(rung: int) -> str:
    return LEVEL_NAMES[LEVELS[rung - 1]]


def describe_enabled_levels(rung: int) -> str:
    return f"enabled: {', '.join(LEVEL_NAMES[name] for name in LEVELS[:rung])}" if rung else "no level is enabled"


def _is_overloaded(parameters: Values, observation: Values) -> bool:
    late = observation["backlog_seconds"] > parameters["backlog_bound_seconds"]
    return bool(late or observation["demand_per_second"] > observation["capacity_per_second"])


def _fits(parameters: Values, observation: Values) -> bool:
    fits = parameters["release_share"] * observation["capacity_per_second"]
    late = observation["backlog_seconds"] > parameters["backlog_bound_seconds"]
    return bool(observation["demand_per_second"] <= fits and not late)


def _compute_unmet_share(observation: Values) -> float:
    """Return the unmet share of the demand; 0 if it is within the error of measured rates."""
    return _share_over_capacity(observation, observation["demand_per_second"])


def _share_over_capacity(observation: Values, per_second: float) -> float:
    over = 1 - observation["capacity_per_second"] / per_second if per_second > 0 else 0.0
    return over if over >= MIN_UNMET else 0.0


def _explain_exhaustion(parameters: Values, state: Json, observation: Values, rung: int) -> str | None:
    """Return why a level is exhausted, or None if it is not."""
    if observation["saturated"].get(LEVELS[rung - 1], False):
        return "saturated"
    if rung == THROTTLE and _find_exhausted_budget(observation, "throttle", state):
        return "out of error budget"
    if rung != state["rung"] or state["decisions"] < parameters["settling_decisions"]:
        return None
    if rung == THROTTLE and observation.get("came_per_second") is not None:
        return None if _is_throttled(observation) else "ineffective"
    gained = state["unmet"] - _compute_unmet_share(observation)
    enough = parameters["effective_share"] * state["unmet"]
    return None if gained >= enough and gained > 0 else "ineffective"


def _is_throttled(observation: Values) -> bool:
    came = observation.get("came_per_second")
    left = None if came is None else _share_over_capacity(observation, came)
    return left is not None and left <= LEFT_BY_THROTTLING * _compute_unmet_share(observation)


def _climb(parameters: Values, state: Json, observation: Values, cap: int) -> tuple[Json, Decision]:
    unmet = _compute_unmet_share(observation)
    lasts = bool(unmet) and state["short"] >= parameters["unmet_decisions"]
    highest = cap if lasts else min(cap, THROTTLE - 1)
    if _find_exhausted_budget(observation, "shed", state):
        highest = min(highest, SHED - 1)
    rung, passed = max(1, state["rung"]), list[str]()
    while (why := _explain_exhaustion(parameters, state, observation, rung)) is not None and rung < highest:
        passed.append(f"{get_level_name(rung)} {why}")
        rung += 1
    terms = {"rung": rung, "unmet": round(unmet, 6), "backlog_seconds": observation["backlog_seconds"]}
    if rung >= THROTTLE:
        terms["closed_share"] = _compute_wait_share(parameters, observation)
    if rung == state["rung"]:
        settled = state["decisions"] >= parameters["settling_decisions"]
        if why is None and (settled or (rung == THROTTLE and _is_throttled(observation))):
            # The level is effective: its effect is measured anew from here.
            state = {**state, "decisions": 0, "unmet": unmet}
        return state, _keep_level(parameters, state, why, cap, observation, terms)
    cause = f"cheaper levels are exhausted ({', '.join(passed)})" if passed else _overload(observation)
    reason = format_reason(f"Enable {get_level_name(rung)}", cause, remarks=[_remark(parameters, observation)])
    after = {**state, "rung": rung, "decisions": 0, "unmet": unmet, "calm": 0}
    decision = Decision(
        _build_action(rung, _compute_wait_share(parameters, observation)), reason, terms, raw=float(rung)
    )
    return after, replace(decision, expected=_build_expectation(parameters, observation))


def _keep_level(
    parameters: Values, state: Json, why: str | None, cap: int, observation: Values, terms: dict[str, Any]
) -> Decision:
    """Return the decision of a ladder whose level does not change.

    From throttling on it acts in each interval, because producers wait for a share of each.
    """
    rung, unmet, limited_by = state["rung"], _compute_unmet_share(observation), None
    cause = f"{get_level_name(rung)} is enabled and has an effect, or has time left to show an effect"
    if why is not None and rung == cap < len(LEVELS):
        limited_by, cause = "cap", f"{get_level_name(rung)} is {why}, and this queue allows no level above it"
    elif (
        why is not None and unmet and rung == SHED - 1 and (spent := _find_exhausted_budget(observation, "shed", state))
    ):
        limited_by, cause = ("error budget", f"{get_level_name(rung)} is {why}, and {_describe_small_budget(spent)}")
    elif why is not None and not unmet:
        limited_by = "demand met"
        cause = f"{get_level_name(rung)} is {why}, and the demand is met; throttling and shedding need unmet demand"
    elif why is not None and rung < THROTTLE and rung < cap:
        lasted = f"unmet demand has lasted for {state['short']} of {parameters['unmet_decisions']} decisions"
        cause = f"{get_level_name(rung)} is {why}; {lasted}"
    elif why is not None:
        cause = f"{get_level_name(rung)} is {why}, and there is no level above it"
    remark = _remark(parameters, observation)
    if rung < THROTTLE:
        return Decision(None, format_no_action(cause, remarks=[remark]), terms, limited_by)
    reason = format_reason(f"Keep {get_level_name(rung)}", cause, remarks=[remark])
    action = _build_action(rung, _compute_wait_share(parameters, observation))
    return Decision(action, reason, terms, limited_by, raw=float(rung))


def _find_exhausted_budget(observation: Values, name: str, state: Json) -> str | None:
    """Return the objective whose error budget is too small for a level; None if there is none."""
    return find_exhausted_objective(observation.get("budgets", ()), name, is_enabled=allows(state["rung"], name))


def _describe_small_budget(objective: str) -> str:
    return f"the error budget of {objective} is too small to shed"


def _compute_wait_share(parameters: Values, observation: Values) -> float:
    """Return the share of the time for which producers wait: the unmet demand, as far as a budget allows."""
    allowed = compute_allowed_per_second(observation.get("budgets", ()), "throttle", parameters["budget_seconds"])
    most = MAX_CLOSED if allowed is None else min(MAX_CLOSED, allowed)
    return round(min(_compute_unmet_share(observation), most), 6)


def _stop_shedding(
    parameters: Values, state: Json, observation: Values, cap: int, objective: str
) -> tuple[Json, Decision]:
    left, unmet = min(SHED - 1, cap), _compute_unmet_share(observation)
    reason = format_reason("Disable shedding", f"{_describe_small_budget(objective)}; {describe_enabled_levels(left)}")
    action = _build_action(left, _compute_wait_share(parameters, observation))
    after: dict[str, Any] = {**state, "rung": left, "decisions": 0, "unmet": unmet, "calm": 0}
    return after, Decision(action, reason, dict(action), "error budget", raw=float(left))


def _overload(observation: Values) -> str:
    demand, capacity = observation["demand_per_second"], observation["capacity_per_second"]
    if demand > capacity:
        return f"demand of {format_number(demand)} events/s exceeds the capacity of {format_number(capacity)} events/s"
    return f"the backlog takes {format_number(observation['backlog_seconds'])} s to process"


def _remark(parameters: Values, observation: Values) -> str:
    backlog, bound = observation["backlog_seconds"], parameters["backlog_bound_seconds"]
    unmet = _compute_unmet_share(observation)
    words = f"unmet demand: {format_percent(unmet, 1 if 0 < unmet < SMALL else 0)}"
    return f"{words}; backlog: {format_number(backlog)} s, limit {format_number(bound)} s" if backlog > bound else words


def _build_expectation(parameters: Values, observation: Values) -> Expectation | None:
    late = observation["backlog_seconds"] - parameters["backlog_bound_seconds"]
    return Expectation("wait_seconds", "down", round(late, 6), EFFECT_SECONDS) if late > 0 else None


def _build_action(rung: int, unmet: float) -> dict[str, Json]:
    """Return the level, and from throttling on the share of the time for which producers wait."""
    return {"rung": rung, "closed_share": round(unmet, 6)} if rung >= THROTTLE else {"rung": rung}


def _descend(state: Json) -> tuple[Json, Decision]:
    rung = state["rung"]
    if rung == 0:
        return state, Decision(None, format_no_action("demand is met, and no level is enabled"), {"rung": 0})
    left = CALM_DECISIONS.get(rung, CALM_FOR_THE_REST) - state["calm"]
    if left > 0:
        reason = format_no_action(f"demand is within capacity; {get_level_name(rung)} ends {_soon(left)}")
        return state, Decision(None, reason, {"rung": rung})
    return _release_levels(state, "demand is within capacity")


def _soon(decisions: int) -> str:
    return "with the next decision" if decisions == 1 else f"in {decisions} decisions"


def _release_levels(state: Json, cause: str) -> tuple[Json, Decision]:
    """Release the level: throttling and shedding one by one, the others together."""
    rung = state["rung"]
    left = rung - 1 if rung in CALM_DECISIONS else 0
    action = f"Disable {get_level_name(rung)}" if left else "Disable all levels"
    after: dict[str, Any] = {**state, "rung": left, "decisions": 0, "unmet": 0.0}
    reason = format_reason(action, f"{cause}; {describe_enabled_levels(left)}")
    # A share of 0 for throttling is explicit: without it, producers would wait all the time.
    done = _build_action(left, 0.0)
    return after, Decision(done, reason, dict(done), raw=float(left))


def allows(rung: int, name: str) -> bool:
    return LEVELS.index(name) < rung
