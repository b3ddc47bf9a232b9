"""The remedy ladder of a queue: who acts next in an overload, and who lets go first when it is over.

    rebalance → workers → nodes → throttle → shed

`workers` stands for more workers, concurrency and parallelism together. The first three cost resources, the
fourth delay, the fifth events. A rung engages when the one below is exhausted: saturated (its loop is at its
limit, or has nothing to move), or ineffective (engaged for `settling_decisions`, and the part of the demand
that is not met fell by less than `effective_share` of what it was). A rung that is exhausted from the
start is passed at once. A queue may cap its ladder: `cap` names the highest rung it may reach.

When the demand fits again, what costs most goes first: shedding at once, throttling with the next decision,
the rest with the third; the loops of those rungs then give back what they took in their own time.

    overloaded  demand > capacity, or backlog > backlog_bound_seconds
    over        demand ≤ release_share * capacity, and backlog ≤ backlog_bound_seconds

`demand` is what producers offer, before throttling and shedding; `capacity` what the plant handles now.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from controllers.framework.decision import Decision, Expected, Json
from controllers.framework.law import Law, Values
from controllers.framework.parameter import Parameter, read_values
from queues.errors import BadInput

RUNGS = ("rebalance", "workers", "nodes", "throttle", "shed")
THROTTLE, SHED = RUNGS.index("throttle") + 1, RUNGS.index("shed") + 1
# What it takes to let go of each rung: decisions since the overload was over.
CALM_DECISIONS = {SHED: 1, THROTTLE: 2}
CALM_FOR_THE_REST = 3
EFFECT_SECONDS = 30.0

PARAMETERS = (
    Parameter(
        "cap", "choice", "The highest rung this queue may reach.", "shed", kind="choice", choices=RUNGS
    ),
    Parameter(
        "settling_decisions",
        "decisions",
        "How long an engaged rung has to show an effect.",
        3,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "effective_share",
        "share of what is not met",
        "A rung whose effect in that time is less is ineffective.",
        0.1,
        0,
        1,
    ),
    Parameter("backlog_bound_seconds", "s", "A backlog that takes longer is an overload.", 10.0, 0, 86_400),
    Parameter("release_share", "share of capacity", "The demand fits when it is below this.", 0.9, 0.01, 1),
)
OBSERVATION = (
    Parameter("demand_per_second", "events/s", "What producers offer.", maximum=1e15, required=True),
    Parameter("capacity_per_second", "events/s", "What the plant handles.", maximum=1e15, required=True),
    Parameter("backlog_seconds", "s", "How long what waits takes.", 0.0, 0, 1e12),
    Parameter(
        "saturated",
        "flag",
        "rung → whether its loop can do no more.",
        {},
        kind="map",
        items=(Parameter("saturated", "flag", "True: no more.", False, kind="flag"),),
    ),
)
STATE = (
    Parameter("rung", "rung", "The highest engaged; 0 is none.", 0, 0, len(RUNGS), "integer"),
    Parameter("decisions", "decisions", "Since it engaged.", 0, 0, 1e9, "integer"),
    Parameter("unmet", "share of demand", "Not met when it engaged.", 0.0, 0, 1),
    Parameter("calm", "decisions", "Since the overload was over.", 0, 0, 1e9, "integer"),
)


class Ladder:
    """The highest rung that may act; see the module for what engages and releases one."""

    name = "ladder"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    actuator: str | None = "rung"
    guard_defaults: Values = {"maximum": float(len(RUNGS))}

    def check(self, parameters: Values) -> None:
        """Parameters can't contradict each other."""

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` for a rung nobody knows."""
        for rung in observation["saturated"]:
            if rung not in RUNGS:
                raise BadInput(f"{where}.saturated.{rung}", f"is no rung; the rungs are {', '.join(RUNGS)}")

    def initial_state(self, parameters: Values) -> Json:
        """Nothing engaged."""
        return {"rung": 0, "decisions": 0, "unmet": 0.0, "calm": 0}

    def read_state(self, parameters: Values, document: Json) -> Json:
        """A state that was printed before, or None for the first. Raises `BadInput` naming `state.key`."""
        return self.initial_state(parameters) if document is None else read_values(STATE, document, "state")

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """The next rung up or down, or none where the one engaged is the right one."""
        cap = RUNGS.index(parameters["cap"]) + 1
        state = {**state, "rung": min(state["rung"], cap), "decisions": state["decisions"] + 1}
        if _overloaded(parameters, observation):
            return _climb(parameters, {**state, "calm": 0}, observation, cap)
        if _is_over(parameters, observation):
            return _descend({**state, "calm": state["calm"] + 1})
        state = {**state, "calm": 0}
        reason = f"The demand is met, but not by enough to let go: {engaged(state['rung'])}."
        return state, Decision(None, reason, {"rung": state["rung"]})


LAW: Law = Ladder()


def engaged(rung: int) -> str:
    """In words, what is engaged up to a rung."""
    return f"{', '.join(RUNGS[:rung])} engaged" if rung else "nothing engaged"


def _overloaded(parameters: Values, observation: Values) -> bool:
    late = observation["backlog_seconds"] > parameters["backlog_bound_seconds"]
    return bool(late or observation["demand_per_second"] > observation["capacity_per_second"])


def _is_over(parameters: Values, observation: Values) -> bool:
    fits = parameters["release_share"] * observation["capacity_per_second"]
    late = observation["backlog_seconds"] > parameters["backlog_bound_seconds"]
    return bool(observation["demand_per_second"] <= fits and not late)


def _unmet(observation: Values) -> float:
    """The share of the demand that is not met."""
    demand = observation["demand_per_second"]
    return max(0.0, 1 - observation["capacity_per_second"] / demand) if demand > 0 else 0.0


def _exhausted(parameters: Values, state: Json, observation: Values, rung: int) -> str | None:
    """Why a rung can do no more, or None while it can."""
    if observation["saturated"].get(RUNGS[rung - 1], False):
        return "saturated"
    if rung != state["rung"] or state["decisions"] < parameters["settling_decisions"]:
        return None
    gained = state["unmet"] - _unmet(observation)
    enough = parameters["effective_share"] * state["unmet"]
    return None if gained >= enough and gained > 0 else "ineffective"


def _climb(parameters: Values, state: Json, observation: Values, cap: int) -> tuple[Json, Decision]:
    rung, passed = max(1, state["rung"]), list[str]()
    while (why := _exhausted(parameters, state, observation, rung)) is not None and rung < cap:
        passed.append(f"{RUNGS[rung - 1]} is {why}")
        rung += 1
    unmet = _unmet(observation)
    terms = {"rung": rung, "unmet": round(unmet, 6), "backlog_seconds": observation["backlog_seconds"]}
    if rung >= THROTTLE:
        terms["closed_share"] = round(unmet, 6)
    if rung == state["rung"]:
        settling = state["decisions"] >= parameters["settling_decisions"]
        if why is None and settling:
            # It helps: its effect is measured anew from here.
            state = {**state, "decisions": 0, "unmet": unmet}
        capped = why is not None and rung == cap < len(RUNGS)
        words = f"{RUNGS[rung - 1]} is {why}; this queue goes no further" if capped else _still(rung, unmet)
        # Producers wait for so much of each interval: that has to be said for each.
        action = _action(rung, unmet) if rung >= THROTTLE else None
        raw = None if action is None else float(rung)
        return state, Decision(action, f"{words}.", terms, "cap" if capped else None, raw=raw)
    because = f"since {' and '.join(passed)}" if passed else "the demand is not met"
    reason = f"{RUNGS[rung - 1]} engages, {because}: {unmet:.0%} of the demand is not met."
    after = {"rung": rung, "decisions": 0, "unmet": unmet, "calm": 0}
    decision = Decision(_action(rung, unmet), reason, terms, raw=float(rung))
    return after, replace(decision, expected=_expected(parameters, observation))


def _expected(parameters: Values, observation: Values) -> Expected | None:
    """That what waits longer than it may is worked off."""
    late = observation["backlog_seconds"] - parameters["backlog_bound_seconds"]
    return Expected("wait_seconds", "down", round(late, 6), EFFECT_SECONDS) if late > 0 else None


def _action(rung: int, unmet: float) -> dict[str, Json]:
    """The rung; and from the throttling one on, the share of the time that producers are to wait."""
    return {"rung": rung, "closed_share": round(unmet, 6)} if rung >= THROTTLE else {"rung": rung}


def _still(rung: int, unmet: float) -> str:
    return f"{RUNGS[rung - 1]} is at work; {unmet:.0%} of the demand is not met yet"


def _descend(state: Json) -> tuple[Json, Decision]:
    rung = state["rung"]
    if rung == 0:
        return state, Decision(None, "The demand is met; nothing is engaged.", {"rung": 0})
    if state["calm"] < CALM_DECISIONS.get(rung, CALM_FOR_THE_REST):
        reason = f"The demand fits again; {RUNGS[rung - 1]} goes with one of the next decisions."
        return state, Decision(None, reason, {"rung": rung})
    left = rung - 1 if rung in CALM_DECISIONS else 0
    gone = RUNGS[rung - 1] if left else "what was engaged"
    reason = f"The demand fits again: {gone} goes, {engaged(left)}."
    after: dict[str, Any] = {"rung": left, "decisions": 0, "unmet": 0.0, "calm": state["calm"]}
    return after, Decision({"rung": left}, reason, {"rung": left}, raw=float(left))


def allows(rung: int, name: str) -> bool:
    """Whether a rung may act while the ladder has reached `rung`."""
    return RUNGS.index(name) < rung
