"""What to drop when nothing else helps: the loss that the sinks feel least, within a latency bound.

Each bottleneck, upstream first, gets the table that `shedding_program` finds best, for the budget that
`latency_bound` allows (or the one that is given). Which operators are bottlenecks follows from the rates that
their upstream offers, not from what an overloaded operator manages to count (Röger, VIII).

A table is computed anew when (VIII, and X-B for the thresholds)

    the bound would be exceeded      predicted time > (1 + deviation_processing) * bound
    shedding is no longer needed     predicted time < (1 - deviation_processing) * bound while types are shed,
                                     and the table was not already made for that little
    the input changed                a rate by deviation_rates, a pattern's seconds by deviation_processing

or when what it was computed for (parameters, patterns, sinks) is something else; never just because time
passed. While others have to act first (`permitted`, the ladder's word), nothing is shed. Where the bound is
below the least processing time no table can keep it, and where the solver fails there is none: the last table
stays, and the decision says why. Where error budgets pay for what is shed (`budgets`), the table sheds no
more than they allow, whatever becomes of the bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controllers.framework.decision import Decision, Expected, Json
from controllers.framework.law import Law, Values
from controllers.framework.parameter import Parameter
from controllers.framework.reason import because, no_action, number, percent
from controllers.patterns.application import Floats
from controllers.shedding.budget_cut import cut, flows
from controllers.shedding.inputs import (
    ALL_SINKS,
    OBSERVATION,
    PARAMETERS,
    SheddingInputs,
    application,
    check_names,
    check_rates,
)
from controllers.shedding.problem import Overload, Table
from controllers.shedding.program import SolverError, solve
from controllers.shedding.trigger import ENDLESS, STATE, initial_state, state_after, trigger, work_shed

# How much more budget the price of the bound is asked for.
PRICE_STEP = 0.01
WORTH_EXPECTING = 0.05  # of the work
EFFECT_SECONDS = 20.0  # what is shed is counted over ten of them


@dataclass(frozen=True)
class Bottleneck:
    """One operator's tables, with the budget they keep to and what the operator is offered."""

    overload: Overload
    offered_per_second: float
    tables: Sequence[Table]
    is_limited: bool = False  # by an error budget: the tables shed less than the budget of work asks for

    @property
    def operator(self) -> str:
        """Where it is."""
        return self.overload.operator

    @property
    def budget(self) -> float:
        """Seconds of work per second that it may use."""
        return self.overload.budget

    @property
    def utilisation(self) -> float:
        """Seconds of work per second under the tables."""
        return sum(table.load for table in self.tables)


class InfeasibleError(ValueError):
    """No table keeps the bound: one event alone takes longer."""


class Shedding:
    """The least loss that keeps the bound; see the module for when it is computed anew."""

    name = "shedding"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = None
    guard_defaults: Values = {}

    def check(self, parameters: Values) -> None:
        """Parameters can't contradict each other: a utilisation budget goes before the latency bound."""

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` when patterns, rates and sinks contradict each other."""
        patterns = application(parameters, observation, where)
        check_names(patterns, observation, where)
        check_rates(patterns, observation, where)

    def initial_state(self, parameters: Values) -> Json:
        """No table yet."""
        return initial_state()

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Nothing to raise: a table for what is no longer there is computed anew."""

    def corrected(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        """A table that is not put in force was made for nothing."""
        return after if action else before

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """A new table where one is called for, else nothing."""
        inputs = SheddingInputs(application(parameters, observation, "observation"), parameters, observation)
        if not observation["permitted"]:
            lifted = _lifted(inputs, state)
            return initial_state(), replace(lifted, expected=_expected(inputs, state, lifted))
        why = trigger(inputs, state)
        if why is None:
            reason = no_action("rates, times and bounds have not changed enough for a new table")
            return state, Decision(None, reason, work_shed(inputs, state["shed"]))
        try:
            found, made = _within_budgets(inputs, *shed_tables(inputs))
        except InfeasibleError as error:
            terms = work_shed(inputs, state["shed"])
            return state, Decision(None, no_action(str(error)), terms, limited_by="infeasible")
        except SolverError as error:
            reason = no_action(f"the solver found no table ({error}), so the last one stays")
            return state, Decision(None, reason, work_shed(inputs, state["shed"]), limited_by="solver")
        decision = _decision(inputs, found, made, why)
        decision = replace(decision, expected=_expected(inputs, state, decision))
        shed = decision.action["shed"] if decision.action else {}
        return state_after(inputs, shed), decision


LAW: Law = Shedding()


def shed_tables(inputs: SheddingInputs) -> tuple[list[Bottleneck], dict[str, float]]:
    """Tables for each bottleneck, upstream first, and type → events/s that are then emitted.

    Without a named bottleneck these are the operators whose offered load is over their budget. Raises
    `InfeasibleError` and `SolverError`.
    """
    application, named = inputs.application, inputs.observation["bottleneck"]
    admitted: dict[str, Floats] = {}
    made = application.emissions(inputs.outside, admitted)
    found = []
    for operator in application.operators if named is None else [named]:
        offered = inputs.offered_per_second(operator, made)
        overload = Overload(
            application,
            inputs.arrivals,
            operator,
            inputs.budget(offered),
            inputs.sinks,
            inputs.parameters["perspective"],
            inputs.protected,
            admitted,
        )
        tables = solve(overload)
        if inputs.parameters["spare"] == "admit":
            tables = filled(tables, overload.budget)
        sheds = any((table.admitted < table.offered).any() for table in tables)
        if sheds:
            _refuse_infeasible(inputs, operator)
            admitted |= {table.pattern.name: table.admitted for table in tables}
            made = application.emissions(inputs.outside, admitted)
        if sheds or named is not None:
            found.append(Bottleneck(overload, offered, tables))
    return found, {symbol: float(made[application.index[symbol]]) for symbol in application.emitters}


def _within_budgets(
    inputs: SheddingInputs, found: list[Bottleneck], made: dict[str, float]
) -> tuple[list[Bottleneck], dict[str, float]]:
    """The same where error budgets allow it, or what is left of it where they don't."""
    most = inputs.most_shed_per_second
    shares = {table.pattern.name: table.shares() for each in found for table in each.tables}
    if most is None or (allowed := cut(inputs, shares, most)) is shares:
        return found, made
    application, (offered, admitted) = inputs.application, flows(inputs, allowed)
    emitted = application.emissions(inputs.outside, admitted)
    limited = [
        replace(
            each,
            is_limited=True,
            tables=[
                replace(table, offered=offered[table.pattern.name], admitted=admitted[table.pattern.name])
                for table in each.tables
            ],
        )
        for each in found
    ]
    return limited, {symbol: float(emitted[application.index[symbol]]) for symbol in application.emitters}


def filled(tables: Sequence[Table], budget: float) -> list[Table]:
    """The tables with what was dropped as surplus let through again, the same share of all, as the budget
    allows: windows lose less where more is to choose from (ERRATA E24)."""
    left = budget - sum(table.load for table in tables)
    surplus = sum(float(table.pattern.seconds * (table.offered - table.admitted).sum()) for table in tables)
    share = min(1.0, left / surplus) if surplus > 0 and left > 0 else 0.0
    return [
        replace(table, admitted=table.admitted + share * (table.offered - table.admitted)) for table in tables
    ]


def _refuse_infeasible(inputs: SheddingInputs, operator: str) -> None:
    if inputs.parameters["utilisation_budget"] is not None:
        return
    bound = inputs.parameters["latency_bound_seconds"]
    takes = [pattern.seconds for pattern in inputs.application.at(operator) if pattern.seconds > 0]
    least = inputs.waiting.least_seconds(min(takes, default=0.0))
    if takes and bound < least:
        raise InfeasibleError(
            f"the bound of {bound:g} s at {operator} is {least - bound:.3g} s below the {least:g} s of one "
            f"event, so shedding can't keep it; set latency_bound_seconds above {least:g} s"
        )


def _lifted(inputs: SheddingInputs, state: Json) -> Decision:
    """Nothing is to be shed; what is, ends."""
    if not any(share for types in state["shed"].values() for share in types.values()):
        reason = no_action("the remedy ladder has not enabled shedding")
        return Decision(None, reason, work_shed(inputs, {}))
    made = inputs.application.emissions(inputs.outside, {})
    emitted = {
        symbol: float(made[inputs.application.index[symbol]]) for symbol in inputs.application.emitters
    }
    action = {"shed": {}, "expected": {**emitted, ALL_SINKS: worth(inputs, emitted)}, "utilisation": 0.0}
    reason = because("Stop shedding", "the remedy ladder no longer enables it")
    return Decision(action, reason, work_shed(inputs, {}))


def _decision(
    inputs: SheddingInputs, found: Sequence[Bottleneck], made: Mapping[str, float], why: str
) -> Decision:
    shed = {table.pattern.name: table.shares() for each in found for table in each.tables}
    action = {
        "shed": shed,
        "expected": {**made, ALL_SINKS: worth(inputs, made)},
        "utilisation": max((each.utilisation for each in found), default=0.0),
    }
    over = [each for each in found if each.utilisation > each.budget * (1 + 1e-9)]
    limit = "error budget" if any(each.is_limited for each in found) else None
    remarks = [*_loads(found), *_budget_words(inputs, limit)]
    reason = because(_what(found), why, remarks=remarks)
    terms = {**_terms(inputs, found), **work_shed(inputs, shed)}
    return Decision(action, reason, terms, limit or ("never_shed" if over else None))


def _budget_words(inputs: SheddingInputs, limit: str | None) -> list[str]:
    most = inputs.most_shed_per_second
    return [] if limit is None else [f"the error budget allows {number(most or 0.0)} events/s to be shed"]


def _expected(inputs: SheddingInputs, state: Json, decision: Decision) -> Expected | None:
    """That so much more, or less, is shed soon; a small change can't be distinguished from noise."""
    if decision.action is None:
        return None
    before = work_shed(inputs, state["shed"])["work_shed"]
    change = work_shed(inputs, decision.action["shed"])["work_shed"] - before
    if abs(change) < WORTH_EXPECTING:
        return None
    return Expected("shed_share", "up" if change > 0 else "down", round(abs(change), 6), EFFECT_SECONDS)


def worth(inputs: SheddingInputs, emitted: Mapping[str, float]) -> float:
    """Weighted events/s that the sinks take."""
    return float(sum(weight * emitted[sink] for sink, weight in inputs.sinks.items()))


def _what(found: Sequence[Bottleneck]) -> str:
    """The action in words: what each operator sheds of its work."""
    shares = {each.operator: 1 - each.utilisation / _work(each) for each in found if _sheds(each)}
    if not shares:
        return "Shed nothing"
    return f"Shed {', '.join(f'{percent(share)} of the work of {name}' for name, share in shares.items())}"


def _loads(found: Sequence[Bottleneck]) -> list[str]:
    """Offered load and budget of the operators that shed."""
    loads = [
        f"{each.operator}: offered load {percent(_work(each))} of its time, budget {percent(each.budget, 1)}"
        for each in found
        if _sheds(each)
    ]
    return loads or ["every operator can process its offered load"]


def _sheds(bottleneck: Bottleneck) -> bool:
    return any(any(table.shares().values()) for table in bottleneck.tables)


def _work(bottleneck: Bottleneck) -> float:
    """Seconds of work per second if nothing were shed."""
    return sum(float(table.pattern.seconds * table.offered.sum()) for table in bottleneck.tables)


def _terms(inputs: SheddingInputs, found: Sequence[Bottleneck]) -> dict[str, Json]:
    """Per bottleneck: what it is offered, what it may use, what it uses, and the time to be expected."""
    prices = {each.operator: _price(each) for each in found}
    return {
        each.operator: {
            "offered_per_second": round(each.offered_per_second, 6),
            "work_offered": round(_work(each), 6),
            "budget": round(each.budget, 6),
            "utilisation": round(each.utilisation, 6),
            "worth_per_utilisation": round(prices[each.operator], 6),
            "time_seconds": _finite(inputs.waiting.time_seconds(each.utilisation, each.offered_per_second)),
            "worth_per_second": round(prices[each.operator] * _budget_per_second(inputs, each), 6),
        }
        for each in found
    }


def _price(bottleneck: Bottleneck) -> float:
    """The shadow price of the budget: what one more second of work per second would bring the sinks.

    From one solution with a little more budget; nothing where nothing is shed for want of it.
    """
    overload, step = bottleneck.overload, PRICE_STEP * max(bottleneck.budget, PRICE_STEP)
    if bottleneck.utilisation < bottleneck.budget * (1 - 1e-9):
        return 0.0
    more = solve(replace(overload, budget=overload.budget + step))
    return (_sunk(overload, more) - _sunk(overload, bottleneck.tables)) / step


def _budget_per_second(inputs: SheddingInputs, bottleneck: Bottleneck) -> float:
    """How much budget a bound longer by one second would give, as far as its first part shows."""
    if inputs.parameters["utilisation_budget"] is not None:
        return 0.0
    bound = float(inputs.parameters["latency_bound_seconds"])
    longer = inputs.waiting.utilisation_budget(bound * (1 + PRICE_STEP), bottleneck.offered_per_second)
    return (longer - bottleneck.budget) / (bound * PRICE_STEP)


def _sunk(overload: Overload, tables: Sequence[Table]) -> float:
    """Weighted events/s that the sinks take under tables."""
    application = overload.application
    admitted = {**(overload.admitted or {}), **{table.pattern.name: table.admitted for table in tables}}
    made = application.emissions(application.vectors(overload.arrivals), admitted)
    return float(sum(weight * made[application.index[sink]] for sink, weight in overload.weights.items()))


def _finite(seconds: float) -> float | None:
    """JSON has no infinity: a queue without end has no time."""
    return round(seconds, 6) if seconds < ENDLESS else None
