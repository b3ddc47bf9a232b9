"""What stands between a law and the plant: it may hold, average, slow, limit or delay a decision.

A guard decorates a law, and like a law it is pure: time comes in, its state is JSON. In this order:

1. stale hold: on a measurement that is older than `stale_seconds` or known to be invalid the law is not
   asked, nor where there is nothing to decide (idle);
2. oscillation: when among the last `oscillation_window` values the law reversed `oscillation_turns`
   times, by `oscillation_swing` or more each time, the mean of those values is used instead;
3. slew: at most `slew_up` above and `slew_down` below the value of the decision before;
4. direction: of "up only" no value below the one before, of "down only" none above it;
5. range: minimum ≤ value ≤ maximum;
6. cost cap: no more than `cost_cap` of money in an hour (`controllers.framework.cost_cap`), where a unit of
   the actuator has a price; `minimum` stands before it;
7. cool-down: no action until `cooldown_seconds` after the last one.

2 to 6 concern laws whose action is one number (`Law.actuator`); the others are held or cooled down only. A
guard never makes an action out of none: where a law does nothing, nothing is done. Of a value that lasts
(`Lasting`), setting what is in force is no action that cools down, nor one that has to wait. Where the law
observes what is in force (`Permanent`), slew and direction count from there, and setting it again is nothing.

Whoever decides next has to know what was done: the guard's own state is of what is applied, and so is the
law's (`controllers.framework.law.Supposing`), whether the guard changed a proposal, dropped it, or nobody
applies it, as in advise. Terms named like the actuator are of what is applied, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controllers.framework import cost_cap
from controllers.framework.decision import Decision, Json
from controllers.framework.law import Lasting, Law, Values, continued, corrected, observed_in_force
from controllers.framework.parameter import Parameter, clipped, read_object, read_values
from controllers.framework.reason import NO_ACTION, because, no_action
from queues.errors import BadInput

STALE_SECONDS = 3.0
COST_CAP, COOL_DOWN = "guard cost cap", "guard cool-down"
PARAMETERS = (
    Parameter("minimum", "actuator's unit", "No value below this is applied.", 0.0, -1e9, 1e9),
    Parameter("maximum", "actuator's unit", "No value above this is applied.", 1e6, -1e9, 1e9),
    Parameter(
        "slew_up", "actuator's unit per decision", "The most a value may rise at once.", 1e6, 1e-6, 1e9
    ),
    Parameter(
        "slew_down", "actuator's unit per decision", "The most a value may fall at once.", 1e6, 1e-6, 1e9
    ),
    Parameter("cooldown_seconds", "s", "The least time between two actions.", 0.0, 0.0, 86_400.0),
    Parameter(
        "stale_seconds", "s", "No action on a measurement older than this.", STALE_SECONDS, 0.1, 3_600.0
    ),
    Parameter(
        "oscillation_window",
        "decisions",
        "How many decisions the detector of oscillations covers.",
        12,
        3,
        100,
        "integer",
    ),
    Parameter(
        "oscillation_turns",
        "reversals",
        "This many reversals in the window are an oscillation; 0 never.",
        0,
        0,
        100,
        "integer",
    ),
    Parameter("oscillation_swing", "actuator's unit", "Smaller swings than this don't count.", 5.0, 0.0, 1e9),
    Parameter(
        "cost_cap",
        "money per h",
        "The most that the actuator may cost in an hour, at the plant's price of a worker-hour: workers that "
        "are started, processes. 0: no cap. Without that price, or while it is not known how long a worker "
        "runs, nothing is capped.",
        0.0,
        0.0,
        1e9,
    ),
    Parameter(
        "direction",
        "choice",
        "The direction in which the value may change.",
        "both",
        kind="choice",
        choices=("both", "up only", "down only"),
    ),
)
OF_ANY_LAW = ("cooldown_seconds", "stale_seconds")
# What `limited_by` says when the guard did it.
UNASKED = ("stale measurement", "nothing to decide")  # the law was not asked
LIMITS = (
    *UNASKED,
    "oscillation",
    "guard slew",
    "guard direction",
    "guard minimum",
    "guard maximum",
    COST_CAP,
    COOL_DOWN,
)
STATE = (
    Parameter("value", "actuator's unit", "Applied last; null: none.", None, -1e12, 1e12),
    Parameter("acted_at_seconds", "s since 1970", "Of the last action; null: none.", None, -1e12, 1e12),
    Parameter(
        "recent", "actuator's unit", "What was asked for lately.", [], -1e12, 1e12, "numbers", most=100
    ),
    Parameter(
        "spent", "money", "In each 5 min of the last 65.", [], 0.0, 1e12, "numbers", most=cost_cap.SLOTS
    ),
    Parameter(
        "spent_slot", "5 min since 1970", "The newest of them; null: none.", None, -1e12, 1e12, "integer"
    ),
)


@dataclass(frozen=True)
class Measured:
    """How good the observation is: its age (None: unknown), and why it can't be used, if so. idle: why it is
    valid and yet says nothing (too little load, for example); nobody need act on that. unit_cost: money for
    one unit of the actuator, or for an hour of one that stays; None: it has no price.
    """

    age_seconds: float | None
    invalid: str | None = None
    idle: str | None = None
    unit_cost: float | None = None


@dataclass(frozen=True)
class _Actuator:
    """What a law sets. lasts: it stays as it was set; observed: what is in force now, where that is seen."""

    name: str | None
    lasts: bool
    observed: float | None

    @classmethod
    def of(cls, law: Law, parameters: Values, observation: Values) -> "_Actuator":
        observed = observed_in_force(law, parameters, observation)
        return cls(law.actuator, observed is not None or isinstance(law, Lasting), observed)


@dataclass(frozen=True)
class Guarded:
    """A decision after the guard, and the states that come of it. `value` is the actuator's (None for laws
    without one)."""

    state: Json
    guard_state: Json
    decision: Decision
    value: float | None
    asked: bool = True  # False: a stale hold, in which the law was not asked and its state stands


def settings_of(law: Law) -> tuple[Parameter, ...]:
    """What can be set of the guard of a law: of one whose action is no number, when it is held and cools."""
    if law.actuator is not None:
        return PARAMETERS
    return tuple(each for each in PARAMETERS if each.name in OF_ANY_LAW)


def initial_state() -> dict[str, Json]:
    """No value yet, no action yet."""
    return {"value": None, "acted_at_seconds": None, "recent": [], "spent": [], "spent_slot": None}


def read_settings(law: Law, document: Any, where: str = "guard") -> dict[str, Any]:
    """The guard's settings for a law: given, else the law's own defaults, else the general ones.

    Raises `BadInput` naming the field.
    """
    given = read_object({} if document is None else document, where)
    settings = read_values(PARAMETERS, {**law.guard_defaults, **given}, where)
    if settings["minimum"] > settings["maximum"]:
        raise BadInput(
            f"{where}.minimum",
            f"takes at most maximum ({settings['maximum']:g}), not {settings['minimum']:g}",
        )
    return settings


def read_state(document: Any, where: str = "guard.state") -> Json:
    """A guard's state from outside, checked; None gives the initial one. Raises `BadInput`."""
    return initial_state() if document is None else read_values(STATE, document, where)


def decide(
    law: Law,
    parameters: Values,
    state: Json,
    observation: Values,
    *,
    settings: Values,
    guard_state: Json,
    now_seconds: float,
    measured: Measured,
    manual: Values | None = None,
    applies: bool = True,
) -> Guarded:
    """Ask the law (or, in manual, take the person's action) and guard what it answers.

    A person's action passes the same guard: no hand moves the plant on a stale measurement or out of range.
    applies: False for advice, and for what failed; the states are then those after nothing was done.
    """
    if (held := _stale(settings, measured)) is not None:
        return Guarded(state, guard_state, held, None, asked=False)
    actuator = _Actuator.of(law, parameters, observation)
    if actuator.observed is not None:
        guard_state = {**guard_state, "value": actuator.observed}
    if manual is None:
        after, proposed = continued(law, parameters, state, observation)
    else:
        after, proposed = state, by_hand(law, manual)
    decision, recent = _limit(actuator, settings, guard_state, proposed)
    decision, purse = _cap(actuator, settings, guard_state, now_seconds, decision, measured.unit_cost)
    decision = _cool_down(actuator, settings, guard_state, now_seconds, _changed(actuator, decision))
    done = decision if applies or decision.action is None else replace(decision, action=None, terms={})
    if manual is None and done.action != proposed.action:
        after = corrected(law, parameters, state, after, done.action)
    acts = done.action is not None and not _keeps(actuator, guard_state, done.action)
    next_state = {
        "value": _value(actuator, done, guard_state["value"]),
        "acted_at_seconds": now_seconds if acts else guard_state["acted_at_seconds"],
        "recent": recent,
        **_spent(actuator, settings, guard_state, done, purse, measured.unit_cost),
    }
    value = _value(actuator, decision, guard_state["value"])
    return Guarded(after, clipped(STATE, next_state), decision, value)


def by_hand(law: Law, manual: Values) -> Decision:
    """The decision a person took in the law's place; without a value there is nothing to do."""
    if not manual:
        return Decision(None, no_action(f"manual mode, and no value is set for {law.actuator}"), raw=0.0)
    value = float(next(iter(manual.values())))
    words = ", ".join(f"{name} to {value:g}" for name, value in manual.items())
    reason = because(f"Set {words}", "manual mode, set by a person")
    return Decision(dict(manual), reason, {**manual, "manual": dict(manual)}, raw=value)


def _stale(settings: Values, measured: Measured) -> Decision | None:
    limit, age = settings["stale_seconds"], measured.age_seconds
    terms = {"age_seconds": age, "stale_seconds": limit}
    if measured.invalid is not None:
        why = measured.invalid
    elif age is None:
        why = "the age of the measurement is unknown"
    elif age > limit:
        why = f"the measurement is {age:.1f} s old, limit {limit:g} s"
    elif measured.idle is not None:
        return Decision(None, no_action(measured.idle), terms, "nothing to decide")
    else:
        return None
    return Decision(None, no_action(why), terms, "stale measurement")


def _value(actuator: _Actuator, decision: Decision, before: float | None) -> float | None:
    """The number that is applied: nothing done is 0, or what stays, as the law says it in its terms."""
    if actuator.name is None:
        return None
    if decision.action is not None:
        return float(decision.action[actuator.name])
    if not actuator.lasts:
        return 0.0
    stays = decision.terms.get(actuator.name, before)
    return None if stays is None else float(stays)


def _keeps(actuator: _Actuator, guard_state: Json, action: Values) -> bool:
    """Whether an action only sets once more what is in force."""
    return actuator.lasts and action.get(str(actuator.name)) == guard_state["value"]


def _limit(
    actuator: _Actuator, settings: Values, guard_state: Json, decision: Decision
) -> tuple[Decision, list[float]]:
    """Calm, slew and range for a law with one number to apply, and the numbers it asked for lately."""
    recent = list(guard_state["recent"])
    if actuator.name is None or decision.raw is None:
        return decision, recent
    recent = [*recent, decision.raw][-int(settings["oscillation_window"]) :]
    if decision.action is None:
        return decision, recent
    value, limited_by = _calm(settings, recent, decision.raw)
    value, limited_by = _slew(settings, guard_state["value"], value, limited_by)
    value, limited_by = _one_way(settings, guard_state["value"], value, limited_by)
    # The range is last, since it is the one that must hold whatever came before.
    value, limited_by = _range(settings, value, limited_by)
    # Slowed and then lifted back by the range is not limited: what was asked for is what is done.
    if limited_by is None or value == decision.raw:
        return decision, recent
    return _rewrite(actuator, guard_state, decision, value, limited_by), recent


def _range(settings: Values, value: float, limited_by: str | None) -> tuple[float, str | None]:
    if value > settings["maximum"]:
        return float(settings["maximum"]), "guard maximum"
    if value < settings["minimum"]:
        return float(settings["minimum"]), "guard minimum"
    return value, limited_by


def _slew(
    settings: Values, before: float | None, value: float, limited_by: str | None
) -> tuple[float, str | None]:
    if before is None:
        return value, limited_by
    slowed = min(max(value, before - settings["slew_down"]), before + settings["slew_up"])
    return (value, limited_by) if slowed == value else (slowed, "guard slew")


def _one_way(
    settings: Values, before: float | None, value: float, limited_by: str | None
) -> tuple[float, str | None]:
    direction = settings["direction"]
    if before is None or direction == "both":
        return value, limited_by
    allowed = max(value, before) if direction == "up only" else min(value, before)
    return (value, limited_by) if allowed == value else (allowed, "guard direction")


def _calm(settings: Values, recent: Sequence[float], value: float) -> tuple[float, str | None]:
    needed = settings["oscillation_turns"]
    if not needed or reversals(recent, settings["oscillation_swing"]) < needed:
        return value, None
    return sum(recent) / len(recent), "oscillation"


def reversals(values: Sequence[float], swing: float) -> int:
    """How often a series reversed its direction, counting only swings of at least `swing`."""
    count, heading, edge = 0, 0, values[0] if values else 0.0
    for value in values:
        if heading * (value - edge) >= 0 and heading:
            edge = value  # it goes on in the same direction: the edge moves along
        elif abs(value - edge) >= swing and value != edge:
            count += heading != 0
            heading, edge = (1 if value > edge else -1), value
    return count


Purse = tuple[list[float], int]  # money by slots, and the newest's number


def _cap(
    actuator: _Actuator,
    settings: Values,
    guard_state: Json,
    now_seconds: float,
    decision: Decision,
    unit_cost: float | None,
) -> tuple[Decision, Purse | None]:
    """No more than the cap leaves; None where there is no cap, or no price."""
    cap = settings["cost_cap"]
    if actuator.name is None or not cap or unit_cost is None:
        return decision, None
    purse = ([], 0) if actuator.lasts else cost_cap.spent_until(guard_state, now_seconds)
    if decision.action is None:
        return decision, purse
    value = float(decision.action[actuator.name])
    left = max(cost_cap.most(cap, unit_cost, purse[0]), float(settings["minimum"]))
    if value <= left or decision.raw is None:
        return decision, purse
    words = _cap_words(cap, unit_cost, purse[0])
    return _rewrite(actuator, guard_state, decision, left, COST_CAP, words), purse


def _cap_words(cap: float, unit_cost: float, spent: Sequence[float]) -> str:
    before = f"{sum(spent):.4g} spent, " if spent else ""
    return f"limited by the {COST_CAP} of {cap:g} per h ({before}{unit_cost:.4g} for each)"


def _spent(
    actuator: _Actuator,
    settings: Values,
    guard_state: Json,
    decision: Decision,
    purse: Purse | None,
    unit_cost: float | None,
) -> Json:
    """What was spent lately. Where no price is known for a time it stands: it counts for its hour."""
    if actuator.name is None or actuator.lasts or not settings["cost_cap"]:
        return {"spent": [], "spent_slot": None}
    if purse is None or unit_cost is None:
        return {"spent": guard_state.get("spent") or [], "spent_slot": guard_state.get("spent_slot")}
    value = float(decision.action[str(actuator.name)]) if decision.action else 0.0
    return {"spent": cost_cap.with_spent(purse[0], max(0.0, value) * unit_cost), "spent_slot": purse[1]}


def _rewrite(
    actuator: _Actuator, guard_state: Json, decision: Decision, value: float, limited_by: str, words: str = ""
) -> Decision:
    """The decision with the guard's number in action and terms. A whole number stays whole, towards zero; 0
    is nothing to do, but for a value that lasts."""
    name, asked = str(actuator.name), decision.action or {}
    number: float | int = int(value) if isinstance(asked.get(name), int) else value
    acts = bool(number) or actuator.lasts
    action: Mapping[str, Any] | None = {**asked, name: number} if acts else None
    set_to = f"Set {name} to {number:g}" if action else NO_ACTION
    why = words or _limit_words(limited_by)
    reason = f"{because(set_to, why)} Proposed by the law: {decision.reason}"
    terms = _terms_of(actuator, decision.terms, number)
    decision = replace(decision, action=action, reason=reason, terms=terms, limited_by=limited_by)
    in_force = (guard_state["value"] or 0.0) if actuator.lasts else 0.0
    return _scaled(decision, number, in_force, is_observed=actuator.observed is not None)


def _terms_of(actuator: _Actuator, terms: Mapping[str, Json], value: float | None) -> Mapping[str, Json]:
    """The terms with what is applied where the law had said what it proposed."""
    name = str(actuator.name)
    if value is None or name not in terms:
        return terms
    return {**terms, name: int(value) if isinstance(terms[name], int) else value}


def _limit_words(limited_by: str) -> str:
    if limited_by == "oscillation":
        return "the law oscillates, so its recent values are averaged (guard)"
    return f"limited by the {limited_by}"


def _scaled(decision: Decision, number: float, in_force: float, is_observed: bool) -> Decision:
    """Expect in proportion to what is really applied, and nothing of nothing. Of a value that lasts it is the
    change that has an effect, unless the law compares with something that was before, and not with what it
    sees in force.
    """
    if decision.expected is None:
        return decision
    before = in_force if is_observed or decision.expected.before is None else 0.0
    asked = (decision.raw or 0.0) - before
    if not asked:
        return decision
    share = min(1.0, (number - before) / asked)
    if decision.action is None or share <= 0.0:
        return replace(decision, expected=None)
    return replace(decision, expected=replace(decision.expected, amount=decision.expected.amount * share))


def _changed(actuator: _Actuator, decision: Decision) -> Decision:
    """Without an action that sets what is seen in force."""
    action = decision.action
    if actuator.observed is None or action is None or action[str(actuator.name)] != actuator.observed:
        return decision
    why = decision.reason.partition(": ")[2]
    return replace(decision, action=None, reason=f"{NO_ACTION}: {why}", expected=None)


def _cool_down(
    actuator: _Actuator, settings: Values, guard_state: Json, now_seconds: float, decision: Decision
) -> Decision:
    acted = guard_state["acted_at_seconds"]
    if decision.action is None or acted is None or _keeps(actuator, guard_state, decision.action):
        return decision
    # A clock set back must not cool down for as long as it was set back.
    left = settings["cooldown_seconds"] - abs(now_seconds - acted)
    if left <= 0:
        return decision
    reason = f"{no_action(f'cool-down ends in {left:.1f} s')} Proposed by the law: {decision.reason}"
    terms = _terms_of(actuator, decision.terms, guard_state["value"])
    return replace(decision, action=None, reason=reason, terms=terms, limited_by=COOL_DOWN, expected=None)
