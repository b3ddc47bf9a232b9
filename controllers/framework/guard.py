"""The guard between a law and the plant: it holds, averages, slows, limits, or delays a decision.

A guard decorates a law, and like a law it is pure: time is an argument, its state is JSON. In this order:

1. stale hold: the law is not asked on a measurement that is older than `stale_seconds` or known to be
   invalid, or when there is nothing to decide (idle);
2. oscillation: if the law reversed `oscillation_turns` times among the last `oscillation_window` values, by
   `oscillation_swing` or more each time, the mean of those values is used instead;
3. slew: at most `slew_up` above and `slew_down` below the previous value;
4. direction: "up only" allows no value below the previous one, "down only" none above it;
5. range: minimum ≤ value ≤ maximum;
6. cost cap: at most `cost_cap` of money per hour (`controllers.framework.cost_cap`), if a unit of the
actuator
   has a price; `minimum` takes precedence;
7. cool-down: no action until `cooldown_seconds` after the last one.

Steps 2 to 6 apply to laws whose action is one number (`Law.actuator`); others are only held or cooled down. A guard
never creates an action: if the law does nothing, nothing is done. For a latched value (`Law.lasting`), setting the
value in force neither cools down nor waits. If the law observes the value in force (`Law.read_value_in_force`), slew
and direction count from there, and setting it again is no action.

The next decision has to know what was done. So the state of the guard and that of the law
(`Law.correct`) follow the applied value, whether the guard changed a proposal, dropped it, or
nobody applies it (advise mode). Terms named like the actuator show the applied value, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter, build, clip_values, read_object, read_values
from controllers.framework import cost_cap
from controllers.framework.decision import Decision, Json
from controllers.framework.law import Law, Values, write_state
from controllers.framework.reason import NO_ACTION, format_no_action, format_reason

STALE_SECONDS = 3.0
COST_CAP, COOL_DOWN = "guard cost cap", "guard cool-down"
PARAMETERS = (
    Parameter("minimum", "actuator's unit", "Minimum value to apply.", 0.0, -1e9, 1e9),
    Parameter("maximum", "actuator's unit", "Maximum value to apply.", 1e6, -1e9, 1e9),
    Parameter("slew_up", "actuator's unit per decision", "Maximum increase per decision.", 1e6, 1e-6, 1e9),
    Parameter("slew_down", "actuator's unit per decision", "Maximum decrease per decision.", 1e6, 1e-6, 1e9),
    Parameter("cooldown_seconds", "s", "Minimum time between two actions.", 0.0, 0.0, 86_400.0),
    Parameter(
        "stale_seconds",
        "s",
        "Maximum age of a measurement; older measurements hold the loop.",
        STALE_SECONDS,
        0.1,
        3_600.0,
    ),
    Parameter(
        "oscillation_window",
        "decisions",
        "Number of decisions that the oscillation detector covers.",
        12,
        3,
        100,
        "integer",
    ),
    Parameter(
        "oscillation_turns",
        "reversals",
        "Reversals within the window that count as an oscillation; 0: never.",
        0,
        0,
        100,
        "integer",
    ),
    Parameter("oscillation_swing", "actuator's unit", "Minimum size of a swing that counts.", 5.0, 0.0, 1e9),
    Parameter(
        "cost_cap",
        "money per h",
        "Maximum cost per hour of started workers or processes, at the plant's price of a worker-hour. "
        "0: no cap. No cap applies without that price or while the duration of a worker is "
        "unknown.",
        0.0,
        0.0,
        1e9,
    ),
    Parameter(
        "direction",
        "choice",
        "Allowed direction of change.",
        "both",
        kind="choice",
        choices=("both", "up only", "down only"),
    ),
)
OF_ANY_LAW = ("cooldown_seconds", "stale_seconds")
# Values of `limited_by` for the guard.
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
    Parameter("value", "actuator's unit", "Last applied value; null: none.", None, -1e12, 1e12),
    Parameter("acted_at_seconds", "s since 1970", "Time of the last action; null: none.", None, -1e12, 1e12),
    Parameter("recent", "actuator's unit", "Recently requested values.", [], -1e12, 1e12, "numbers", most=100),
    Parameter(
        "spent", "money", "Spending per 5 min over the last 65 min.", [], 0.0, 1e12, "numbers", most=cost_cap.SLOTS
    ),
    Parameter("spent_slot", "5 min since 1970", "Newest 5 min slot; null: none.", None, -1e12, 1e12, "integer"),
)


@dataclass(frozen=True)
class ObservationQuality:
    """Quality of the observation: its age (None: unknown), and why it can't be used.

    `idle` explains why a valid observation means nothing (for example too little load); nobody has to act on it.
    `unit_cost` is the money for one unit of the actuator, or for an hour of a lasting one; None: no price.
    """

    age_seconds: float | None
    invalid: str | None = None
    idle: str | None = None
    unit_cost: float | None = None


@dataclass(frozen=True)
class _Actuator:
    """The actuator of a law. `lasts`: it keeps its value; `observed`: the value in force, if known."""

    name: str | None
    lasts: bool
    observed: float | None


@dataclass(frozen=True)
class GuardedDecision:
    """A decision after the guard, and the resulting states.

    `value` is that of the actuator (None for laws without one).
    """

    state: Json
    guard_state: Json
    decision: Decision
    value: float | None
    asked: bool = True  # False: a stale hold; the law was not asked and its state is unchanged


def list_guard_settings(law: Law) -> tuple[Parameter, ...]:
    """Return the guard settings of a law; if its action is no number, only hold and cool-down."""
    if law.actuator is not None:
        return PARAMETERS
    return tuple(setting for setting in PARAMETERS if setting.name in OF_ANY_LAW)


def build_initial_state() -> dict[str, Json]:
    """Return a state without a value or an action."""
    return {"value": None, "acted_at_seconds": None, "recent": [], "spent": [], "spent_slot": None}


def read_settings(law: Law, document: Any, where: str = "guard") -> dict[str, Any]:
    """Return the guard's settings for a law: given, the law's own defaults, or the general ones.

    Raise `BadInput` naming the field.
    """
    given = read_object({} if document is None else document, where)
    settings = read_values(PARAMETERS, {**law.guard_defaults, **given}, where)
    if settings["minimum"] > settings["maximum"]:
        raise BadInput(
            f"{where}.minimum", f"must be at most maximum ({settings['maximum']:g}), not {settings['minimum']:g}"
        )
    return settings


def read_state(document: Any, where: str = "guard.state") -> Json:
    """Check a guard state from outside; None gives the initial one. Raise `BadInput`."""
    return build_initial_state() if document is None else read_values(STATE, document, where)


def decide(
    law: Law,
    parameters: Values,
    state: Json,
    observation: Values,
    *,
    settings: Values,
    guard_state: Json,
    now_seconds: float,
    measured: ObservationQuality,
    manual: Values | None = None,
    applies: bool = True,
) -> GuardedDecision:
    """Ask the law (or, in manual mode, take the person's action) and guard the answer.

    A person's action passes the same guard: nobody acts on a stale measurement or outside the range. `applies` is False
    for advice and after a failure; then the states are those after nothing was done.
    """
    if (held := _check_measurement(settings, measured)) is not None:
        return GuardedDecision(state, guard_state, held, None, asked=False)
    given, seen, before = build(law.Parameters, parameters), build(law.Observation, observation), None
    observed = law.read_value_in_force(given, seen)
    actuator = _Actuator(law.actuator, observed is not None or law.lasting, observed)
    if observed is not None:
        guard_state = {**guard_state, "value": observed}
    if manual is None:
        before = build(law.State, state)
        after, proposed = law.decide(given, before, seen)
    else:
        after, proposed = state, decide_manually(law, manual)
    decision, recent = _limit(actuator, settings, guard_state, proposed)
    decision, purse = _cap(actuator, settings, guard_state, now_seconds, decision, measured.unit_cost)
    decision = _apply_cool_down(actuator, settings, guard_state, now_seconds, _drop_unchanged(actuator, decision))
    done = decision if applies or decision.action is None else replace(decision, action=None, terms={})
    if manual is None and done.action != proposed.action:
        after = law.correct(given, before, after, done.action)
    acts = done.action is not None and not _keeps(actuator, guard_state, done.action)
    next_state = {
        "value": _compute_applied_value(actuator, done, guard_state["value"]),
        "acted_at_seconds": now_seconds if acts else guard_state["acted_at_seconds"],
        "recent": recent,
        **_record_spending(actuator, settings, guard_state, done, purse, measured.unit_cost),
    }
    value = _compute_applied_value(actuator, decision, guard_state["value"])
    next_law_state = state if manual is not None else write_state(law, after)
    return GuardedDecision(next_law_state, clip_values(STATE, next_state), decision, value)


def decide_manually(law: Law, manual: Values) -> Decision:
    """Return the decision of a person in place of the law; without a value there is nothing to do."""
    if not manual:
        return Decision(None, format_no_action(f"manual mode, and no value is set for {law.actuator}"), raw=0.0)
    value = float(next(iter(manual.values())))
    words = ", ".join(f"{name} to {value:g}" for name, value in manual.items())
    reason = format_reason(f"Set {words}", "manual mode, set by a user")
    return Decision(dict(manual), reason, {**manual, "manual": dict(manual)}, raw=value)


def _check_measurement(settings: Values, measured: ObservationQuality) -> Decision | None:
    limit, age = settings["stale_seconds"], measured.age_seconds
    terms = {"age_seconds": age, "stale_seconds": limit}
    if measured.invalid is not None:
        why = measured.invalid
    elif age is None:
        why = "the age of the measurement is unknown"
    elif age > limit:
        why = f"the measurement is {age:.1f} s old, limit {limit:g} s"
    elif measured.idle is not None:
        return Decision(None, format_no_action(measured.idle), terms, "nothing to decide")
    else:
        return None
    return Decision(None, format_no_action(why), terms, "stale measurement")


def _compute_applied_value(actuator: _Actuator, decision: Decision, before: float | None) -> float | None:
    """Return the applied number: 0 for no action, or the latched value as the law states it in its terms."""
    if actuator.name is None:
        return None
    if decision.action is not None:
        return float(decision.action[actuator.name])
    if not actuator.lasts:
        return 0.0
    stays = decision.terms.get(actuator.name, before)
    return None if stays is None else float(stays)


def _keeps(actuator: _Actuator, guard_state: Json, action: Values) -> bool:
    """Return whether an action only repeats the value in force."""
    return actuator.lasts and action.get(str(actuator.name)) == guard_state["value"]


def _limit(
    actuator: _Actuator, settings: Values, guard_state: Json, decision: Decision
) -> tuple[Decision, list[float]]:
    """Apply averaging, slew, and range to a single number, and return the recently requested values."""
    recent = list(guard_state["recent"])
    if actuator.name is None or decision.raw is None:
        return decision, recent
    recent = [*recent, decision.raw][-int(settings["oscillation_window"]) :]
    if decision.action is None:
        return decision, recent
    value, limited_by = _calm(settings, recent, decision.raw)
    value, limited_by = _limit_slew(settings, guard_state["value"], value, limited_by)
    value, limited_by = _limit_direction(settings, guard_state["value"], value, limited_by)
    # The range comes last, because it has to hold in every case.
    value, limited_by = _range(settings, value, limited_by)
    # A value that was slowed and then raised by the range is not limited: the request is what is applied.
    if limited_by is None or value == decision.raw:
        return decision, recent
    return _rewrite(actuator, guard_state, decision, value, limited_by), recent


def _range(settings: Values, value: float, limited_by: str | None) -> tuple[float, str | None]:
    if value > settings["maximum"]:
        return float(settings["maximum"]), "guard maximum"
    if value < settings["minimum"]:
        return float(settings["minimum"]), "guard minimum"
    return value, limited_by


def _limit_slew(
    settings: Values, before: float | None, value: float, limited_by: str | None
) -> tuple[float, str | None]:
    if before is None:
        return value, limited_by
    slowed = min(max(value, before - settings["slew_down"]), before + settings["slew_up"])
    return (value, limited_by) if slowed == value else (slowed, "guard slew")


def _limit_direction(
    settings: Values, before: float | None, value: float, limited_by: str | None
) -> tuple[float, str | None]:
    direction = settings["direction"]
    if before is None or direction == "both":
        return value, limited_by
    allowed = max(value, before) if direction == "up only" else min(value, before)
    return (value, limited_by) if allowed == value else (allowed, "guard direction")


def _calm(settings: Values, recent: Sequence[float], value: float) -> tuple[float, str | None]:
    needed = settings["oscillation_turns"]
    if not needed or count_reversals(recent, settings["oscillation_swing"]) < needed:
        return value, None
    return sum(recent) / len(recent), "oscillation"


def count_reversals(values: Sequence[float], swing: float) -> int:
    """Return how often a series reversed its direction, counting only swings of at least `swing`."""
    count, heading, edge = 0, 0, values[0] if values else 0.0
    for value in values:
        if heading * (value - edge) >= 0 and heading:
            edge = value  # the direction is unchanged: the extreme moves along
        elif abs(value - edge) >= swing and value != edge:
            count += heading != 0
            heading, edge = (1 if value > edge else -1), value
    return count


Purse = tuple[list[float], int]  # money by slots, and the newest slot's number


def _cap(
    actuator: _Actuator,
    settings: Values,
    guard_state: Json,
    now_seconds: float,
    decision: Decision,
    unit_cost: float | None,
) -> tuple[Decision, Purse | None]:
    """Limit the value to the cap; return None without a cap or a price."""
    cap = settings["cost_cap"]
    if actuator.name is None or not cap or unit_cost is None:
        return decision, None
    purse = ([], 0) if actuator.lasts else cost_cap.roll_forward(guard_state, now_seconds)
    if decision.action is None:
        return decision, purse
    value = float(decision.action[actuator.name])
    left = max(cost_cap.compute_allowed_units(cap, unit_cost, purse[0]), float(settings["minimum"]))
    if value <= left or decision.raw is None:
        return decision, purse
    words = _cap_words(cap, unit_cost, purse[0])
    return _rewrite(actuator, guard_state, decision, left, COST_CAP, words), purse


def _cap_words(cap: float, unit_cost: float, spent: Sequence[float]) -> str:
    before = f"{sum(spent):.4g} spent, " if spent else ""
    return f"limited by the {COST_CAP} of {cap:g} per h ({before}{unit_cost:.4g} per unit)"


def _record_spending(
    actuator: _Actuator,
    settings: Values,
    guard_state: Json,
    decision: Decision,
    purse: Purse | None,
    unit_cost: float | None,
) -> Json:
    """Record the recent spending. While the price is unknown, earlier spending still counts for its hour."""
    if actuator.name is None or actuator.lasts or not settings["cost_cap"]:
        return {"spent": [], "spent_slot": None}
    if purse is None or unit_cost is None:
        return {"spent": guard_state.get("spent") or [], "spent_slot": guard_state.get("spent_slot")}
    value = float(decision.action[str(actuator.name)]) if decision.action else 0.0
    return {"spent": cost_cap.add_spent(purse[0], max(0.0, value) * unit_cost), "spent_slot": purse[1]}


def _rewrite(
    actuator: _Actuator, guard_state: Json, decision: Decision, value: float, limited_by: str, words: str = ""
) -> Decision:
    """Return the decision with the guard's number in action and terms.

    A whole number stays whole, rounded towards zero; 0 means no action, except for a latched value.
    """
    name, asked = str(actuator.name), decision.action or {}
    number: float | int = int(value) if isinstance(asked.get(name), int) else value
    acts = bool(number) or actuator.lasts
    action: Mapping[str, Any] | None = {**asked, name: number} if acts else None
    set_to = f"Set {name} to {number:g}" if action else NO_ACTION
    why = words or _limit_words(limited_by)
    reason = f"{format_reason(set_to, why)} Proposed by the law: {decision.reason}"
    terms = _update_terms(actuator, decision.terms, number)
    decision = replace(decision, action=action, reason=reason, terms=terms, limited_by=limited_by)
    in_force = (guard_state["value"] or 0.0) if actuator.lasts else 0.0
    return _scale_decision(decision, number, in_force, is_observed=actuator.observed is not None)


def _update_terms(actuator: _Actuator, terms: Mapping[str, Json], value: float | None) -> Mapping[str, Json]:
    """Return the terms with the applied value in place of the proposed one."""
    name = str(actuator.name)
    if value is None or name not in terms:
        return terms
    return {**terms, name: int(value) if isinstance(terms[name], int) else value}


def _limit_words(limited_by: str) -> str:
    if limited_by == "oscillation":
        return "the law oscillates, so its recent values are averaged (guard)"
    return f"limited by the {limited_by}"


def _scale_decision(decision: Decision, number: float, in_force: float, is_observed: bool) -> Decision:
    """Scale the expected effect to the applied value; nothing applied means nothing expected.

    For a latched value the change has the effect, unless the law compares with an earlier value instead of the one in
    force.
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


def _drop_unchanged(actuator: _Actuator, decision: Decision) -> Decision:
    """Drop an action that repeats the value observed in force."""
    action = decision.action
    if actuator.observed is None or action is None or action[str(actuator.name)] != actuator.observed:
        return decision
    why = decision.reason.partition(": ")[2]
    return replace(decision, action=None, reason=f"{NO_ACTION}: {why}", expected=None)


def _apply_cool_down(
    actuator: _Actuator, settings: Values, guard_state: Json, now_seconds: float, decision: Decision
) -> Decision:
    acted = guard_state["acted_at_seconds"]
    if decision.action is None or acted is None or _keeps(actuator, guard_state, decision.action):
        return decision
    # A clock that was set back must not extend the cool-down.
    left = settings["cooldown_seconds"] - abs(now_seconds - acted)
    if left <= 0:
        return decision
    reason = f"{format_no_action(f'cool-down ends in {left:.1f} s')} Proposed by the law: {decision.reason}"
    terms = _update_terms(actuator, decision.terms, guard_state["value"])
    return replace(decision, action=None, reason=reason, terms=terms, limited_by=COOL_DOWN, expected=None)
