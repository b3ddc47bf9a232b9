"""The remedy ladder of a queue: which level acts next in an overload, and which is released first after it.

    rebalance → workers → nodes → throttle → shed

`workers` represents more workers, concurrency, and parallelism together. The first three levels cost resources, the
fourth delay, the fifth events. Levels that cannot help the queue (`unavailable`) are not offered. A level is enabled
when those below are exhausted: saturated (its loop is at its limit, or has nothing to move), or ineffective (enabled
for `settling_decisions`, and the unmet share of the demand fell by less than `effective_share` of what it was). A level
that is exhausted from the start is skipped at once. A loop in advise is not exhausted while its `advice` would help:
the ladder names the advice and waits for its approval, for at most `advice_seconds` at each level. Before shedding, a
level is skipped if its trial or wait would last until the latency exceeds its bound (`latency_slack_seconds`).
Throttling does not change the demand, so it is judged by the arrivals: it is effective while no more than
`LEFT_BY_THROTTLING` of the unmet demand arrives, and ineffective if more has arrived for `settling_decisions`. A queue
may cap its ladder: `cap` names the highest level it may reach.

Throttling and shedding need unmet demand, for `unmet_decisions` in a row. A backlog alone, however long, enables only
the levels that cost resources. As soon as the demand is met, shedding ends, and throttling ends with the next decision.
The other levels are released when the demand fits, after three decisions; their loops then return the resources at
their own pace.

An objective's error budget may pay for either (`controllers.shedding.budgets`). While too little of it is left,
shedding ends and is not enabled; throttling counts as exhausted, and its share is limited to what the budget allows.

    unmet       1 - capacity / demand; less than `MIN_UNMET` is the error of measured rates, and counts as 0
    overloaded  demand > capacity, or backlog > backlog_bound_seconds
    fits        demand ≤ release_share * capacity, and backlog ≤ backlog_bound_seconds
    latency     of a queue whose arrivals exceed its capacity grows by 1 - capacity / came seconds per second

`demand` is what producers offer, before throttling and shedding; `capacity` is what the plant handles now; `came` is
what producers inserted, if known.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec.structs import replace

from common.errors import BadInput
from common.parameter import value
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_no_action, format_number, format_percent, format_reason
from controllers.shedding.budgets import (
    BUDGET_SECONDS,
    Budgets,
    BudgetSeconds,
    Level,
    compute_allowed_per_second,
    find_exhausted_objective,
)

LEVEL_NAMES = {
    "rebalance": "rebalancing",
    "workers": "adding workers",
    "nodes": "adding nodes",
    "throttle": "throttling",
    "shed": "shedding",
}
LEVELS = tuple(LEVEL_NAMES)
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


class LadderParameters(msgspec.Struct, frozen=True, kw_only=True):
    cap: Annotated[str, value("choice", "Highest level that this queue may reach.", choices=LEVELS)] = "shed"
    settling_decisions: Annotated[
        int, value("decisions", "Number of decisions within which an enabled level must show an effect.", 1, 1_000)
    ] = 3
    effective_share: Annotated[
        float,
        value("share of the unmet demand", "Minimum effect in that time; a level with less is ineffective.", 0, 1),
    ] = 0.1
    unmet_decisions: Annotated[
        int,
        value("decisions", "Number of decisions in a row with unmet demand before throttling or shedding.", 1, 1_000),
    ] = 1
    backlog_bound_seconds: Annotated[
        float, value("s", "Maximum backlog, in time to process it; a longer one is an overload.", 0, 86_400)
    ] = 10.0
    release_share: Annotated[
        float, value("share of capacity", "Maximum demand at which levels are released.", 0.01, 1)
    ] = 0.9
    advice_seconds: Annotated[
        float, value("s", "Maximum time at a level that waits for a person to approve its loops' advice.", 0, 86_400)
    ] = 120.0
    budget_seconds: BudgetSeconds = BUDGET_SECONDS


class LadderObservation(msgspec.Struct, frozen=True, kw_only=True):
    demand_per_second: Annotated[float, value("events/s", "Rate that producers offer.", maximum=1e15)]
    capacity_per_second: Annotated[float, value("events/s", "Rate that the plant handles.", maximum=1e15)]
    came_per_second: Annotated[
        float | None, value("events/s", "Rate that producers insert; null: not known.", maximum=1e15)
    ] = None
    backlog_seconds: Annotated[float, value("s", "Time to process the backlog.")] = 0.0
    saturated: Annotated[
        dict[str, Annotated[bool, value("flag", "True: the loop is at its limit.")]],
        value("flag", "Level → true if its loop is at its limit."),
    ] = {}
    unavailable: Annotated[
        dict[str, Annotated[str, value("text", "Reason.")]],
        value("text", "Level → why it cannot help this queue; it is not offered."),
    ] = {}
    advice: Annotated[
        dict[str, Annotated[str, value("text", "Advice.")]],
        value("text", "Level → what its loops would do if a person approved it."),
    ] = {}
    interval_seconds: Annotated[float, value("s", "Time between decisions.", 0, 86_400)] = 5.0
    latency_slack_seconds: Annotated[
        float | None,
        value("s", "Latency bound minus latency of the applications that may shed; null: not known.", maximum=1e9),
    ] = None
    budgets: Budgets = ()

    def compute_share_over_capacity(self, per_second: float) -> float:
        """Return the share of a rate that exceeds the capacity; 0 within the error of measured rates."""
        over = 1 - self.capacity_per_second / per_second if per_second > 0 else 0.0
        return over if over >= MIN_UNMET else 0.0

    @property
    def unmet(self) -> float:
        """Return the unmet share of the demand."""
        return self.compute_share_over_capacity(self.demand_per_second)

    @property
    def is_throttled(self) -> bool:
        """Return whether producers insert no more than the plant handles, within the measurement error."""
        if self.came_per_second is None:
            return False
        return self.compute_share_over_capacity(self.came_per_second) <= LEFT_BY_THROTTLING * self.unmet

    def exceeds_latency_bound_within(self, seconds: float) -> bool:
        """Return whether the latency exceeds its bound in this time if nothing changes."""
        if self.latency_slack_seconds is None:
            return False
        arrivals_per_second = self.demand_per_second if self.came_per_second is None else self.came_per_second
        growth = self.compute_share_over_capacity(arrivals_per_second)
        return growth > 0 and self.latency_slack_seconds < growth * seconds

    def list_offered(self, cap: int) -> list[int]:
        """Return the levels up to the cap that can help the queue."""
        return [rung for rung, name in enumerate(LEVELS[:cap], 1) if name not in self.unavailable]

    def find_level_below(self, rung: int) -> int:
        """Return the next lower level that can help the queue; 0 for none."""
        return max(self.list_offered(rung - 1), default=0)

    def find_exhausted_budget(self, level: Level, rung: int) -> str | None:
        """Return the objective whose error budget is too small for a level; None if there is none."""
        return find_exhausted_objective(self.budgets, level, is_enabled=allows(rung, level))


class LadderState(msgspec.Struct, frozen=True, kw_only=True):
    rung: Annotated[int, value("level", "Highest enabled level; 0 is none.", 0, len(LEVELS), required=True)] = 0
    decisions: Annotated[int, value("decisions", "Decisions since the level was enabled.", 0, 1e9, required=True)] = 0
    unmet: Annotated[
        float, value("share of demand", "Unmet demand when the level was enabled.", 0, 1, required=True)
    ] = 0.0
    calm: Annotated[
        int, value("decisions", "Decisions since the demand fell below the release share.", 0, 1e9, required=True)
    ] = 0
    short: Annotated[int, value("decisions", "Decisions in a row with unmet demand.", 0, 1e9)] = 0
    advised: Annotated[int, value("decisions", "Decisions at the level while advice waited for approval.", 0, 1e9)] = 0

    def enable(self, rung: int, unmet: float) -> "LadderState":
        """Return the state after the change to another level."""
        return replace(self, rung=rung, decisions=0, unmet=unmet, calm=0, advised=0)


class Ladder(Law[LadderParameters, LadderObservation, LadderState]):
    """The highest level that may act; see the module for the rules."""

    name = "ladder"
    Parameters, Observation, State = LadderParameters, LadderObservation, LadderState
    actuator = "rung"
    lasting, lapsed = True, 0.0
    guard_defaults: Values = {"maximum": float(len(LEVELS))}

    def check_observation(self, parameters: LadderParameters, observation: LadderObservation, where: str) -> None:
        for field in ("saturated", "unavailable", "advice"):
            for rung in getattr(observation, field):
                if rung not in LEVELS:
                    raise BadInput(f"{where}.{field}.{rung}", f"is not a level; the levels are {', '.join(LEVELS)}")

    def resume(self, state: LadderState) -> LadderState:
        """Return a state without an enabled level.

        Throttling and the shedding table have expired, and levels that were exhausted then have not been tried now.
        """
        return LadderState()

    def correct(
        self, parameters: LadderParameters, before: LadderState, after: LadderState, action: Values | None
    ) -> LadderState:
        """Return the state with the level in force; a level that was not left stays on trial."""
        rung = before.rung if action is None else int(action["rung"])
        if rung == after.rung:
            return after
        if rung == before.rung:
            after = replace(after, decisions=before.decisions + 1, unmet=before.unmet, advised=before.advised)
        return replace(after, rung=rung)

    def decide(
        self, parameters: LadderParameters, state: LadderState, observation: LadderObservation
    ) -> tuple[LadderState, Decision]:
        """Return the next level up or down, or no action if the enabled level is right."""
        cap, unmet = LEVELS.index(parameters.cap) + 1, observation.unmet
        if state.rung >= SHED and (spent := observation.find_exhausted_budget("shed", state.rung)):
            # Return to throttling, or to the cap if it is lower.
            left = observation.find_level_below(min(SHED, cap + 1))
            reason = format_reason(
                "Disable shedding", f"{_describe_small_budget(spent)}; {_describe_enabled_levels(left, observation)}"
            )
            action = _build_action(left, _compute_wait_share(parameters, observation))
            return state.enable(left, unmet), Decision(action, reason, dict(action), "error budget", raw=float(left))
        rung = min(state.rung, cap)
        state = replace(
            state,
            rung=rung,
            decisions=state.decisions + 1,
            short=state.short + 1 if unmet else 0,
            advised=state.advised + 1 if rung and LEVELS[rung - 1] in observation.advice else state.advised,
        )
        late = observation.backlog_seconds > parameters.backlog_bound_seconds
        demand, capacity = observation.demand_per_second, observation.capacity_per_second
        if demand <= parameters.release_share * capacity and not late:
            return _descend(replace(state, calm=state.calm + 1), observation)
        state = replace(state, calm=0)
        if state.rung >= THROTTLE and not unmet:
            cause = f"demand is met, and {get_level_name(state.rung)} needs unmet demand"
            return _release_to(observation.find_level_below(state.rung), state, cause, observation)
        if late or demand > capacity:
            return _climb(parameters, state, observation, cap)
        fits = format_percent(parameters.release_share)
        reason = format_no_action(
            f"demand is met, but exceeds {fits} of capacity; {_describe_enabled_levels(state.rung, observation)}"
        )
        return state, Decision(None, reason, {"rung": state.rung})


LAW = Ladder()


def get_level_name(rung: int) -> str:
    """Return the name of a level for use in a sentence."""
    return LEVEL_NAMES[LEVELS[rung - 1]]


def _describe_enabled_levels(rung: int, observation: LadderObservation) -> str:
    names = ", ".join(get_level_name(offered) for offered in observation.list_offered(rung))
    return f"enabled: {names}" if names else "no level is enabled"


def allows(rung: int, name: str) -> bool:
    """Return whether a level may act while the ladder has reached `rung`."""
    return LEVELS.index(name) < rung


def _explain_exhaustion(
    parameters: LadderParameters, state: LadderState, observation: LadderObservation, rung: int, *, may_shed: bool
) -> str | None:
    """Return why a level is exhausted, or None if it is not."""
    if observation.saturated.get(LEVELS[rung - 1], False):
        return "saturated"
    if rung == THROTTLE and observation.find_exhausted_budget("throttle", state.rung):
        return "out of error budget"
    if may_shed and observation.exceeds_latency_bound_within(
        _compute_trial_seconds(parameters, state, observation, rung)
    ):
        return "too slow for the latency bound"
    if LEVELS[rung - 1] in observation.advice:
        waits = _compute_advice_seconds_left(parameters, state, observation, rung) > 0
        return None if waits else f"not approved within {format_number(parameters.advice_seconds)} s"
    if rung != state.rung or state.decisions < parameters.settling_decisions:
        return None
    if rung == THROTTLE and observation.came_per_second is not None:
        return None if observation.is_throttled else "ineffective"
    gained = state.unmet - observation.unmet
    enough = parameters.effective_share * state.unmet
    return None if gained >= enough and gained > 0 else "ineffective"


def _compute_trial_seconds(
    parameters: LadderParameters, state: LadderState, observation: LadderObservation, rung: int
) -> float:
    """Return the time until shedding acts if the level is tried first. A wait for advice can end at each decision."""
    decisions = parameters.settling_decisions - (state.decisions if rung == state.rung else 0)
    if LEVELS[rung - 1] in observation.advice:
        decisions = 1
    return (max(0, decisions) + 1) * observation.interval_seconds


def _compute_advice_seconds_left(
    parameters: LadderParameters, state: LadderState, observation: LadderObservation, rung: int
) -> float:
    waited = state.advised if rung == state.rung else 0
    return max(0.0, parameters.advice_seconds - waited * observation.interval_seconds)


def _describe_advice(
    parameters: LadderParameters, state: LadderState, observation: LadderObservation, rung: int
) -> list[str]:
    """Return the advice that the ladder waits for at a level, if any."""
    advice = observation.advice.get(LEVELS[rung - 1])
    left = _compute_advice_seconds_left(parameters, state, observation, rung)
    return [advice, f"the ladder waits another {format_number(left)} s"] if advice and left else []


def _climb(
    parameters: LadderParameters, state: LadderState, observation: LadderObservation, cap: int
) -> tuple[LadderState, Decision]:
    unmet, backlog, bound = observation.unmet, observation.backlog_seconds, parameters.backlog_bound_seconds
    lasts = bool(unmet) and state.short >= parameters.unmet_decisions
    highest = cap if lasts else min(cap, THROTTLE - 1)
    if observation.find_exhausted_budget("shed", state.rung):
        highest = min(highest, SHED - 1)
    path = [rung for rung in observation.list_offered(cap) if rung == state.rung or state.rung < rung <= highest]
    if not path:
        return _leave_unavailable_level(parameters, state, observation, cap)
    passed = list[str]()
    for rung in path:
        may_shed = rung < path[-1] == SHED
        why = _explain_exhaustion(parameters, state, observation, rung, may_shed=may_shed)
        if why is None or rung == path[-1]:
            break
        passed.append(f"{get_level_name(rung)} {why}")
    terms: dict[str, Json] = {"rung": rung, "unmet": round(unmet, 6), "backlog_seconds": backlog}
    wait_share = _compute_wait_share(parameters, observation)
    if rung >= THROTTLE:
        terms["closed_share"] = wait_share
    remark = f"unmet demand: {format_percent(unmet, 1 if 0 < unmet < SMALL else 0)}"
    if backlog > bound:
        remark = f"{remark}; backlog: {format_number(backlog)} s, limit {format_number(bound)} s"
    if rung == state.rung:
        settled = state.decisions >= parameters.settling_decisions
        if why is None and (settled or (rung == THROTTLE and observation.is_throttled)):
            # The level is effective. The next check measures its effect from here.
            state = replace(state, decisions=0, unmet=unmet)
        limited_by, *causes = _explain_kept_level(parameters, state, why, cap, observation)
        if rung < THROTTLE:
            return state, Decision(None, format_no_action(*causes, remarks=[remark]), terms, limited_by)
        # From throttling on the ladder acts in each interval, because producers wait for a share of each.
        reason = format_reason(f"Keep {get_level_name(rung)}", *causes, remarks=[remark])
        return state, Decision(_build_action(rung, wait_share), reason, terms, limited_by, raw=float(rung))
    demand, capacity = observation.demand_per_second, observation.capacity_per_second
    if passed:
        cause = f"cheaper levels are exhausted ({', '.join(passed)})"
    elif demand > capacity:
        cause = f"demand of {format_number(demand)} events/s exceeds the capacity of {format_number(capacity)} events/s"
    else:
        cause = f"the backlog takes {format_number(backlog)} s to process"
    advice = _describe_advice(parameters, state, observation, rung)
    reason = format_reason(f"Enable {get_level_name(rung)}", cause, *advice, remarks=[remark])
    late = round(backlog - bound, 6)
    expected = Expectation("wait_seconds", "down", late, EFFECT_SECONDS) if backlog > bound else None
    decision = Decision(_build_action(rung, wait_share), reason, terms, raw=float(rung), expected=expected)
    return state.enable(rung, unmet), decision


def _leave_unavailable_level(
    parameters: LadderParameters, state: LadderState, observation: LadderObservation, cap: int
) -> tuple[LadderState, Decision]:
    """Return the decision while no level that may be enabled now can help the queue."""
    if state.rung:
        cause = observation.unavailable[LEVELS[state.rung - 1]]
        return _release_to(observation.find_level_below(state.rung), state, cause, observation)
    if observation.list_offered(cap) and observation.unmet:
        cause = _describe_unmet_wait(parameters, state)
    else:
        cause = "none of the levels allowed for this queue can help now"
    return state, Decision(None, format_no_action(cause), {"rung": 0})


def _describe_unmet_wait(parameters: LadderParameters, state: LadderState) -> str:
    return f"unmet demand has lasted for {state.short} of {parameters.unmet_decisions} decisions"


def _explain_kept_level(
    parameters: LadderParameters, state: LadderState, why: str | None, cap: int, observation: LadderObservation
) -> tuple[str | None, *tuple[str, ...]]:
    """Return what limits a ladder whose level does not change, and the causes."""
    rung, name = state.rung, get_level_name(state.rung)
    if why is None:
        advice = _describe_advice(parameters, state, observation, rung)
        return None, *(advice or [f"{name} is enabled and has an effect, or has time left to show an effect"])
    above = [other for other in observation.list_offered(len(LEVELS)) if other > rung]
    if above and above[0] > cap:
        return "cap", f"{name} is {why}, and this queue allows no level above it"
    if not observation.unmet:
        return "demand met", f"{name} is {why}, and the demand is met; throttling and shedding need unmet demand"
    if rung == SHED - 1 and (spent := observation.find_exhausted_budget("shed", rung)):
        return "error budget", f"{name} is {why}, and {_describe_small_budget(spent)}"
    if above and rung < THROTTLE:
        return None, f"{name} is {why}; {_describe_unmet_wait(parameters, state)}"
    return None, f"{name} is {why}, and no level above it can help"


def _describe_small_budget(objective: str) -> str:
    return f"the error budget of {objective} is too small to shed"


def _compute_wait_share(parameters: LadderParameters, observation: LadderObservation) -> float:
    """Return the share of the time for which producers wait: the unmet demand, as far as a budget allows.

    It is 0 if no producer can wait.
    """
    if "throttle" in observation.unavailable:
        return 0.0
    allowed = compute_allowed_per_second(observation.budgets, "throttle", parameters.budget_seconds)
    most = MAX_CLOSED if allowed is None else min(MAX_CLOSED, allowed)
    return round(min(observation.unmet, most), 6)


def _build_action(rung: int, wait_share: float) -> Mapping[str, Json]:
    """Return the level, and from throttling on the share of the time for which producers wait."""
    return {"rung": rung, "closed_share": round(wait_share, 6)} if rung >= THROTTLE else {"rung": rung}


def _descend(state: LadderState, observation: LadderObservation) -> tuple[LadderState, Decision]:
    rung = state.rung
    if rung == 0:
        return state, Decision(None, format_no_action("demand is met, and no level is enabled"), {"rung": 0})
    left = CALM_DECISIONS.get(rung, CALM_FOR_THE_REST) - state.calm
    if left > 0:
        soon = "with the next decision" if left == 1 else f"in {left} decisions"
        reason = format_no_action(f"demand is within capacity; {get_level_name(rung)} ends {soon}")
        return state, Decision(None, reason, {"rung": rung})
    # Throttling and shedding are released one by one, the others together.
    left = observation.find_level_below(rung) if rung in CALM_DECISIONS else 0
    return _release_to(left, state, "demand is within capacity", observation)


def _release_to(
    left: int, state: LadderState, cause: str, observation: LadderObservation
) -> tuple[LadderState, Decision]:
    what = f"Disable {get_level_name(state.rung)}" if left else "Disable all levels"
    reason = format_reason(what, f"{cause}; {_describe_enabled_levels(left, observation)}")
    # A share of 0 for throttling is explicit: without it, producers would wait all the time.
    action = _build_action(left, 0.0)
    after = replace(state, rung=left, decisions=0, unmet=0.0, advised=0)
    return after, Decision(action, reason, dict(action), raw=float(left))
