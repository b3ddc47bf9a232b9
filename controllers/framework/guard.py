"""The guard between a law and the plant: it holds, averages, slows, limits, or delays a decision.

A guard decorates a law, and like a law it is pure: time is an argument, its state is JSON. In this order:

1. stale hold: the law is not asked on a measurement that is older than `stale_seconds` or known to be
   invalid, or when there is nothing to decide (idle);
2. oscillation: if the law reversed `oscillation_turns` times among the last `oscillation_window` values, by
   `oscillation_swing` or more each time, the mean of those values is used instead;
3. slew: at most `slew_up` above and `slew_down` below the previous value;
4. direction: "up only" allows no value below the previous one, "down only" none above it;
5. range: minimum ≤ value ≤ maximum;
6. cost cap: at most `cost_cap` of money per hour, if a unit of the actuator has a price; `minimum` takes precedence;
7. cool-down: no action until `cooldown_seconds` after the last one.

Steps 2 to 6 apply to laws whose action is one number (`Law.actuator`); others are only held or cooled down. A guard
never creates an action: if the law does nothing, nothing is done. For a latched value (`Law.lasting`), setting the
value in force neither cools down nor waits. If the law observes the value in force (`Law.read_value_in_force`), slew
and direction count from there, and setting it again is no action.

The next decision has to know what was done. So the state of the guard and that of the law
(`Law.correct`) follow the applied value, whether the guard changed a proposal, dropped it, or
nobody applies it (advise mode). Terms named like the actuator show the applied value, too.

Immediate costs of an actuator (a worker that is started) are added up in slots of five minutes. The newest thirteen
slots hold everything that was spent in the last hour: spent + value · unit cost ≤ cap. Lasting costs (processes) need
no memory: value · unit cost per hour ≤ cap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec

from common.errors import BadInput
from common.parameter import Parameter, build, clip_values, list_parameters, read_object, read_values, value
from common.stored_document import convert_to_plain
from controllers.framework.decision import Decision, Json
from controllers.framework.law import Law, Values, write_state
from controllers.framework.reason import NO_ACTION, format_no_action, format_reason

STALE_SECONDS = 3.0
SLOT_SECONDS, SLOTS = 300.0, 13
COST_CAP, COOL_DOWN = "guard cost cap", "guard cool-down"
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


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True):
    minimum: Annotated[float, value("actuator's unit", "Minimum value to apply.", -1e9, 1e9)] = 0.0
    maximum: Annotated[float, value("actuator's unit", "Maximum value to apply.", -1e9, 1e9)] = 1e6
    slew_up: Annotated[float, value("actuator's unit per decision", "Maximum increase per decision.", 1e-6, 1e9)] = 1e6
    slew_down: Annotated[float, value("actuator's unit per decision", "Maximum decrease per decision.", 1e-6, 1e9)] = (
        1e6
    )
    cooldown_seconds: Annotated[float, value("s", "Minimum time between two actions.", 0.0, 86_400.0)] = 0.0
    stale_seconds: Annotated[
        float, value("s", "Maximum age of a measurement; older measurements hold the loop.", 0.1, 3_600.0)
    ] = STALE_SECONDS
    oscillation_window: Annotated[
        int, value("decisions", "Number of decisions that the oscillation detector covers.", 3, 100)
    ] = 12
    oscillation_turns: Annotated[
        int, value("reversals", "Reversals within the window that count as an oscillation; 0: never.", 0, 100)
    ] = 0
    oscillation_swing: Annotated[float, value("actuator's unit", "Minimum size of a swing that counts.", 0.0, 1e9)] = (
        5.0
    )
    cost_cap: Annotated[
        float,
        value(
            "money per h",
            "Maximum cost per hour of started workers or processes, at the plant's price of a worker-hour. 0: no cap. "
            "No cap applies without that price or while the duration of a worker is unknown.",
            0.0,
            1e9,
        ),
    ] = 0.0
    direction: Annotated[Literal["both", "up only", "down only"], value("choice", "Allowed direction of change.")] = (
        "both"
    )


APPLIED_VALUE = value("actuator's unit", "Last applied value; null: none.", -1e12, 1e12)


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    acted_at_seconds: Annotated[
        float | None, value("s since 1970", "Time of the last action; null: none.", -1e12, 1e12)
    ] = None
    recent: Annotated[
        tuple[float, ...], value("actuator's unit", "Recently requested values.", -1e12, 1e12, most=100)
    ] = ()
    spent: Annotated[
        tuple[float, ...], value("money", "Spending per 5 min over the last 65 min.", 0.0, 1e12, most=SLOTS)
    ] = ()
    spent_slot: Annotated[int | None, value("5 min since 1970", "Newest 5 min slot; null: none.", -1e12, 1e12)] = None
    value: Annotated[float | None, APPLIED_VALUE] = None  # last, because its name hides the function


PARAMETERS, STATE = list_parameters(GuardSettings), list_parameters(GuardState)


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


def read_settings(law: Law, document: object, where: str = "guard") -> dict[str, Any]:
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


def read_state(document: object, where: str = "guard.state") -> Json:
    """Check a guard state from outside; None gives the initial one. Raise `BadInput`."""
    return read_values(STATE, document, where)


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
    limits = build(GuardSettings, settings)
    if (held := _check_measurement(limits, measured)) is not None:
        return GuardedDecision(state, guard_state, held, None, asked=False)
    given, seen, before = build(law.Parameters, parameters), build(law.Observation, observation), None
    observed = law.read_value_in_force(given, seen)
    known = build(GuardState, guard_state)
    if observed is not None:
        known = msgspec.structs.replace(known, value=observed)
    lasts = observed is not None or law.lasting
    passage = _Passage(law.actuator, lasts, observed, limits, known, now_seconds, measured.unit_cost)
    if manual is None:
        before = build(law.State, state)
        after, proposed = law.decide(given, before, seen)
    else:
        after, proposed = state, decide_manually(law, manual)
    decision = passage.apply_cool_down(passage.drop_unchanged(passage.cap(passage.limit(proposed))))
    done = decision if applies or decision.action is None else replace(decision, action=None, terms={})
    if manual is None and done.action != proposed.action:
        after = law.correct(given, before, after, done.action)
    next_law_state = state if manual is not None else write_state(law, after)
    next_state = clip_values(STATE, convert_to_plain(passage.build_next_state(proposed, done)))
    return GuardedDecision(next_law_state, next_state, decision, passage.compute_applied_value(decision))


def decide_manually(law: Law, manual: Values) -> Decision:
    """Return the decision of a person in place of the law; without a value there is nothing to do."""
    if not manual:
        return Decision(None, format_no_action(f"manual mode, and no value is set for {law.actuator}"), raw=0.0)
    value = float(next(iter(manual.values())))
    words = ", ".join(f"{name} to {value:g}" for name, value in manual.items())
    reason = format_reason(f"Set {words}", "manual mode, set by a user")
    return Decision(dict(manual), reason, {**manual, "manual": dict(manual)}, raw=value)


def _check_measurement(settings: GuardSettings, measured: ObservationQuality) -> Decision | None:
    limit, age = settings.stale_seconds, measured.age_seconds
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


@dataclass(frozen=True)
class _Passage:
    """The guard of one decision, with its state before.

    name: the actuator, or None. lasts: it keeps its value; observed: the value in force, if known.
    """

    name: str | None
    lasts: bool
    observed: float | None
    settings: GuardSettings
    before: GuardState
    now_seconds: float
    unit_cost: float | None

    def limit(self, decision: Decision) -> Decision:
        """Apply averaging, slew, direction, and range to a single number."""
        if self.name is None or decision.raw is None or decision.action is None:
            return decision
        settings, before, value, limited_by = self.settings, self.before.value, decision.raw, None
        recent = self._list_recent(decision)
        turns = settings.oscillation_turns
        if turns and count_reversals(recent, settings.oscillation_swing) >= turns:
            value, limited_by = sum(recent) / len(recent), "oscillation"
        if before is not None:
            slowed = min(max(value, before - settings.slew_down), before + settings.slew_up)
            if slowed != value:
                value, limited_by = slowed, "guard slew"
            if settings.direction != "both":
                allowed = max(value, before) if settings.direction == "up only" else min(value, before)
                if allowed != value:
                    value, limited_by = allowed, "guard direction"
        # The range comes last, because it has to hold in every case.
        if value > settings.maximum:
            value, limited_by = settings.maximum, "guard maximum"
        elif value < settings.minimum:
            value, limited_by = settings.minimum, "guard minimum"
        # A value that was slowed and then raised by the range is not limited: the request is what is applied.
        if limited_by is None or value == decision.raw:
            return decision
        oscillates = "the law oscillates, so its recent values are averaged (guard)"
        why = oscillates if limited_by == "oscillation" else f"limited by the {limited_by}"
        return self._rewrite(decision, value, limited_by, why)

    def cap(self, decision: Decision) -> Decision:
        cap, cost = self.settings.cost_cap, self.unit_cost
        if self.name is None or not cap or cost is None or decision.action is None or decision.raw is None:
            return decision
        spent = sum(self._roll_spending()[0])
        allowed = max(0.0, cap - spent) / cost if cost > 0 else float("inf")
        left = max(allowed, self.settings.minimum)
        if float(decision.action[self.name]) <= left:
            return decision
        before = f"{spent:.4g} spent, " if spent else ""
        why = f"limited by the {COST_CAP} of {cap:g} per h ({before}{cost:.4g} per unit)"
        return self._rewrite(decision, left, COST_CAP, why)

    def drop_unchanged(self, decision: Decision) -> Decision:
        """Drop an action that repeats the value observed in force."""
        action = decision.action
        if self.observed is None or action is None or action[str(self.name)] != self.observed:
            return decision
        why = decision.reason.partition(": ")[2]
        return replace(decision, action=None, reason=f"{NO_ACTION}: {why}", expected=None)

    def apply_cool_down(self, decision: Decision) -> Decision:
        acted = self.before.acted_at_seconds
        if decision.action is None or acted is None or self._keeps(decision.action):
            return decision
        # A clock that was set back must not extend the cool-down.
        left = self.settings.cooldown_seconds - abs(self.now_seconds - acted)
        if left <= 0:
            return decision
        reason = f"{format_no_action(f'cool-down ends in {left:.1f} s')} Proposed by the law: {decision.reason}"
        terms = self._update_terms(decision.terms, self.before.value)
        return replace(decision, action=None, reason=reason, terms=terms, limited_by=COOL_DOWN, expected=None)

    def compute_applied_value(self, decision: Decision) -> float | None:
        """Return the applied number: 0 for no action, or the latched value as the law states it in its terms."""
        if self.name is None:
            return None
        if decision.action is not None:
            return float(decision.action[self.name])
        if not self.lasts:
            return 0.0
        stays = decision.terms.get(self.name, self.before.value)
        return None if stays is None else float(stays)

    def build_next_state(self, proposed: Decision, done: Decision) -> GuardState:
        acts = done.action is not None and not self._keeps(done.action)
        spent, slot = self._record_spending(done)
        return GuardState(
            value=self.compute_applied_value(done),
            acted_at_seconds=self.now_seconds if acts else self.before.acted_at_seconds,
            recent=self._list_recent(proposed),
            spent=spent,
            spent_slot=slot,
        )

    def _list_recent(self, decision: Decision) -> tuple[float, ...]:
        if self.name is None or decision.raw is None:
            return self.before.recent
        return (*self.before.recent, decision.raw)[-self.settings.oscillation_window :]

    def _keeps(self, action: Values) -> bool:
        """Return whether an action only repeats the value in force."""
        return self.lasts and action.get(str(self.name)) == self.before.value

    def _roll_spending(self) -> tuple[tuple[float, ...], int]:
        """Return the money in each slot, newest last, and the number of the newest; a lasting value spends nothing.

        After a clock was set back, spending counts for an hour from then; if it was further ahead, nothing is known.
        """
        if self.lasts:
            return (), 0
        slot, before, kept = int(self.now_seconds // SLOT_SECONDS), self.before.spent_slot, self.before.spent
        if before is None or not kept or before - slot >= SLOTS:
            return (0.0,) * SLOTS, slot
        passed = min(max(0, slot - before), SLOTS)
        return (*kept, *((0.0,) * passed))[-SLOTS:], slot

    def _record_spending(self, done: Decision) -> tuple[tuple[float, ...], int | None]:
        """Record the recent spending. While the price is unknown, earlier spending still counts for its hour."""
        if self.name is None or self.lasts or not self.settings.cost_cap:
            return (), None
        if self.unit_cost is None:
            return self.before.spent, self.before.spent_slot
        spent, slot = self._roll_spending()
        value = float(done.action[self.name]) if done.action else 0.0
        return (*spent[:-1], spent[-1] + max(0.0, value) * self.unit_cost), slot

    def _update_terms(self, terms: Mapping[str, Json], value: float | None) -> Mapping[str, Json]:
        """Return the terms with the applied value in place of the proposed one."""
        name = str(self.name)
        if value is None or name not in terms:
            return terms
        return {**terms, name: int(value) if isinstance(terms[name], int) else value}

    def _rewrite(self, decision: Decision, value: float, limited_by: str, why: str) -> Decision:
        """Return the decision with the guard's number in action and terms.

        A whole number stays whole, rounded towards zero; 0 means no action, except for a latched value. The expected
        effect is scaled to the applied value; nothing applied means nothing expected. For a latched value the change
        has the effect, unless the law compares with an earlier value instead of the one in force.
        """
        name, asked, expected = str(self.name), decision.action or {}, decision.expected
        number: float | int = int(value) if isinstance(asked.get(name), int) else value
        action = {**asked, name: number} if number or self.lasts else None
        if expected is not None:
            compares = self.observed is not None or expected.before is None
            before = (self.before.value or 0.0) if self.lasts and compares else 0.0
            requested = (decision.raw or 0.0) - before
            share = min(1.0, (number - before) / requested) if requested else 1.0
            if requested and (action is None or share <= 0.0):
                expected = None
            elif requested:
                expected = replace(expected, amount=expected.amount * share)
        set_to = f"Set {name} to {number:g}" if action else NO_ACTION
        return replace(
            decision,
            action=action,
            reason=f"{format_reason(set_to, why)} Proposed by the law: {decision.reason}",
            terms=self._update_terms(decision.terms, number),
            limited_by=limited_by,
            expected=expected,
        )


def count_reversals(values: Sequence[float], swing: float) -> int:
    """Return how often a series reversed its direction, counting only swings of at least `swing`."""
    count, heading, edge = 0, 0, values[0] if values else 0.0
    for sample in values:
        if heading * (sample - edge) >= 0 and heading:
            edge = sample  # the direction is unchanged: the extreme moves along
        elif abs(sample - edge) >= swing and sample != edge:
            count += heading != 0
            heading, edge = (1 if sample > edge else -1), sample
    return count
