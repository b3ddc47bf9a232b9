"""The shedding law: the least loss at the sinks within a latency bound.

Each bottleneck, upstream first, gets the table that `shedding_program` finds optimal for the budget that
`latency_bound` allows (or the given one). The bottlenecks follow from the rates that their upstream offers, not from
the rates that an overloaded operator counts (Röger, VIII).

A table is computed anew if (VIII, and X-B for the thresholds)

    the bound would be exceeded      predicted time > (1 + deviation_processing) * bound
    shedding is no longer needed     predicted time < (1 - deviation_processing) * bound while types are shed,
                                     and the table was not already made for that little
    the input changed                a rate by deviation_rates, a pattern's seconds by deviation_processing

or if its other inputs (parameters, patterns, sinks) changed; never only because time passed. While other remedies come
first (`permitted`, set by the ladder), nothing is shed. If the bound is below the minimum processing time, no table can
keep it, and if the solver fails, there is none: the last table stays, and the decision gives the reason. If error
budgets pay for shedding (`budgets`), the table sheds no more than they allow, even if the bound is exceeded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.parameter import Parameter
from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, UntypedLaw, Values
from controllers.framework.reason import format_no_action, format_number, format_percent, format_reason
from controllers.patterns.application import Floats
from controllers.shedding.inputs import (
    ALL_SINKS,
    OBSERVATION,
    PARAMETERS,
    SheddingInputs,
    build_application,
    check_names,
    check_rates,
    compute_flows,
    cut,
)
from controllers.shedding.problem import Overload, Table
from controllers.shedding.program import SolverError, solve
from controllers.shedding.trigger import ENDLESS, STATE, build_empty_state, build_next_state, trigger, work_shed

# Relative increase of the budget for the price of the bound.
PRICE_STEP = 0.01
WORTH_EXPECTING = 0.05  # of the work
EFFECT_SECONDS = 20.0  # Shed events are counted over ten seconds.


@dataclass(frozen=True)
class Bottleneck:
    """An operator's tables, their budget, and the operator's offered load."""

    overload: Overload
    offered_per_second: float
    tables: Sequence[Table]
    is_limited: bool = False  # by an error budget: the tables shed less than the budget of work requires

    @property
    def operator(self) -> str:
        return self.overload.operator

    @property
    def budget(self) -> float:
        """Return the budget, in seconds of work per second."""
        return self.overload.budget

    @property
    def utilisation(self) -> float:
        """Return the seconds of work per second under the tables."""
        return sum(table.load for table in self.tables)


class InfeasibleError(ValueError):
    """No table keeps the bound, because one event alone takes longer."""


class Shedding(UntypedLaw):
    """The least loss that keeps the bound; see the module for when a table is computed anew."""

    name = "shedding"
    parameters: Sequence[Parameter] = PARAMETERS
    observation: Sequence[Parameter] = OBSERVATION
    state: Sequence[Parameter] = STATE
    actuator: str | None = None
    guard_defaults: Values = {}

    def check(self, parameters: Values) -> None:
        """Accept all parameters: a utilization budget takes precedence over the latency bound."""

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` if patterns, rates, and sinks contradict each other."""
        patterns = build_application(parameters, observation, where)
        check_names(patterns, observation, where)
        check_rates(patterns, observation, where)

    def build_initial_state(self, parameters: Values) -> Json:
        """Return a state without a table."""
        return build_empty_state()

    def check_state(self, parameters: Values, state: Values, where: str) -> None:
        """Accept any state: a table for something that no longer exists is computed anew."""

    def correct_state(self, parameters: Values, before: Json, after: Json, action: Values | None) -> Json:
        return after if action else before

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """Return a new table if one is required, else no action."""
        inputs = SheddingInputs(build_application(parameters, observation, "observation"), parameters, observation)
        if not observation["permitted"]:
            lifted = _lift_shedding(inputs, state)
            return build_empty_state(), replace(lifted, expected=_build_expectation(inputs, state, lifted))
        why = trigger(inputs, state)
        if why is None:
            reason = format_no_action("rates, times, and bounds have not changed enough for a new table")
            return state, Decision(None, reason, work_shed(inputs, state["shed"]))
        try:
            tables, made = _apply_budgets(inputs, *shed_tables(inputs))
        except InfeasibleError as error:
            terms = work_shed(inputs, state["shed"])
            return state, Decision(None, format_no_action(str(error)), terms, limited_by="infeasible")
        except SolverError as error:
            reason = format_no_action(f"the solver found no table ({error}), so the last table stays")
            return state, Decision(None, reason, work_shed(inputs, state["shed"]), limited_by="solver")
        decision = _build_decision(inputs, tables, made, why)
        decision = replace(decision, expected=_build_expectation(inputs, state, decision))
        shed = decision.action["shed"] if decision.action else {}
        return build_next_state(inputs, shed), decision


LAW: Law = Shedding()


def shed_tables(inputs: SheddingInputs) -> tuple[list[Bottleneck], dict[str, float]]:
    """Return the tables of each bottleneck, upstream first, and type → events/s that are then emitted.

    Without a named bottleneck, these are the operators whose offered load exceeds their budget. Raise `InfeasibleError`
    and `SolverError`.
    """
    application, named = inputs.application, inputs.observation["bottleneck"]
    admitted: dict[str, Floats] = {}
    made = application.compute_emissions(inputs.outside, admitted)
    bottlenecks = []
    for operator in application.operators if named is None else [named]:
        offered = inputs.compute_offered_per_second(operator, made)
        overload = Overload(
            application,
            inputs.arrivals,
            operator,
            inputs.compute_budget(offered),
            inputs.sinks,
            inputs.parameters["perspective"],
            inputs.protected,
            admitted,
        )
        tables = solve(overload)
        if inputs.parameters["spare"] == "admit":
            tables = restore_surplus(tables, overload.budget)
        sheds = any((table.admitted < table.offered).any() for table in tables)
        if sheds:
            _refuse_infeasible(inputs, operator)
            admitted |= {table.pattern.name: table.admitted for table in tables}
            made = application.compute_emissions(inputs.outside, admitted)
        if sheds or named is not None:
            bottlenecks.append(Bottleneck(overload, offered, tables))
    return bottlenecks, {symbol: float(made[application.index[symbol]]) for symbol in application.emitters}


def _apply_budgets(
    inputs: SheddingInputs, found: list[Bottleneck], made: dict[str, float]
) -> tuple[list[Bottleneck], dict[str, float]]:
    most = inputs.most_shed_per_second
    shares = {table.pattern.name: table.compute_shares() for made_table in found for table in made_table.tables}
    if most is None or (allowed := cut(inputs, shares, most)) is shares:
        return found, made
    application, (offered, admitted) = inputs.application, compute_flows(inputs, allowed)
    emitted = application.compute_emissions(inputs.outside, admitted)
    limited = [
        replace(
            made_table,
            is_limited=True,
            tables=[
                replace(table, offered=offered[table.pattern.name], admitted=admitted[table.pattern.name])
                for table in made_table.tables
            ],
        )
        for made_table in found
    ]
    return limited, {symbol: float(emitted[application.index[symbol]]) for symbol in application.emitters}


def restore_surplus(tables: Sequence[Table], budget: float) -> list[Table]:
    """Return the tables with surplus events admitted again, the same share of each type, within the budget.

    Windows lose less if there are more events to choose from (ERRATA E24).
    """
    left = budget - sum(table.load for table in tables)
    surplus = sum(float(table.pattern.seconds * (table.offered - table.admitted).sum()) for table in tables)
    share = min(1.0, left / surplus) if surplus > 0 and left > 0 else 0.0
    return [replace(table, admitted=table.admitted + share * (table.offered - table.admitted)) for table in tables]


def _refuse_infeasible(inputs: SheddingInputs, operator: str) -> None:
    if inputs.parameters["utilisation_budget"] is not None:
        return
    bound = inputs.parameters["latency_bound_seconds"]
    takes = [pattern.seconds for pattern in inputs.application.get_patterns(operator) if pattern.seconds > 0]
    least = inputs.waiting.compute_minimum_seconds(min(takes, default=0.0))
    if takes and bound < least:
        raise InfeasibleError(
            f"the latency bound of {bound:g} s at {operator} is {least - bound:.3g} s below the {least:g} s "
            f"that an event takes, so shedding can't meet it; set latency_bound_seconds above {least:g} s"
        )


def _lift_shedding(inputs: SheddingInputs, state: Json) -> Decision:
    if not any(share for types in state["shed"].values() for share in types.values()):
        reason = format_no_action("the remedy ladder has not enabled shedding")
        return Decision(None, reason, work_shed(inputs, {}))
    made = inputs.application.compute_emissions(inputs.outside, {})
    emitted = {symbol: float(made[inputs.application.index[symbol]]) for symbol in inputs.application.emitters}
    action = {"shed": {}, "expected": {**emitted, ALL_SINKS: compute_sink_value(inputs, emitted)}, "utilisation": 0.0}
    reason = format_reason("Stop shedding", "the remedy ladder no longer enables it")
    return Decision(action, reason, work_shed(inputs, {}))


def _build_decision(
    inputs: SheddingInputs, found: Sequence[Bottleneck], made: Mapping[str, float], why: str
) -> Decision:
    shed = {table.pattern.name: table.compute_shares() for made_table in found for table in made_table.tables}
    action = {
        "shed": shed,
        "expected": {**made, ALL_SINKS: compute_sink_value(inputs, made)},
        "utilisation": max((made_table.utilisation for made_table in found), default=0.0),
    }
    over = [made_table for made_table in found if made_table.utilisation > made_table.budget * (1 + 1e-9)]
    limit = "error budget" if any(made_table.is_limited for made_table in found) else None
    remarks = [*_describe_loads(found), *_budget_words(inputs, limit)]
    reason = format_reason(_describe_action(found), why, remarks=remarks)
    terms = {**_build_terms(inputs, found), **work_shed(inputs, shed)}
    return Decision(action, reason, terms, limit or ("never_shed" if over else None))


def _budget_words(inputs: SheddingInputs, limit: str | None) -> list[str]:
    most = inputs.most_shed_per_second
    return [] if limit is None else [f"the error budget allows {format_number(most or 0.0)} events/s to be shed"]


def _build_expectation(inputs: SheddingInputs, state: Json, decision: Decision) -> Expectation | None:
    """Return the expected change of the shed share, or None if it is within the noise."""
    if decision.action is None:
        return None
    before = work_shed(inputs, state["shed"])["work_shed"]
    change = work_shed(inputs, decision.action["shed"])["work_shed"] - before
    if abs(change) < WORTH_EXPECTING:
        return None
    return Expectation("shed_share", "up" if change > 0 else "down", round(abs(change), 6), EFFECT_SECONDS)


def compute_sink_value(inputs: SheddingInputs, emitted: Mapping[str, float]) -> float:
    """Return the weighted events/s that the sinks take."""
    return float(sum(weight * emitted[sink] for sink, weight in inputs.sinks.items()))


def _describe_action(found: Sequence[Bottleneck]) -> str:
    """Return the action in words: the share of its work that each operator sheds."""
    shares = {table.operator: 1 - table.utilisation / _work(table) for table in found if _is_shedding(table)}
    if not shares:
        return "Shed nothing"
    return f"Shed {', '.join(f'{format_percent(share)} of the work of {name}' for name, share in shares.items())}"


def _describe_loads(found: Sequence[Bottleneck]) -> list[str]:
    loads = [
        f"{table.operator}: offered load {format_percent(_work(table))}, limit {format_percent(table.budget, 1)}"
        for table in found
        if _is_shedding(table)
    ]
    return loads or ["every operator can process its offered load"]


def _is_shedding(bottleneck: Bottleneck) -> bool:
    return any(any(table.compute_shares().values()) for table in bottleneck.tables)


def _work(bottleneck: Bottleneck) -> float:
    """Return the seconds of work per second without shedding."""
    return sum(float(table.pattern.seconds * table.offered.sum()) for table in bottleneck.tables)


def _build_terms(inputs: SheddingInputs, found: Sequence[Bottleneck]) -> dict[str, Json]:
    prices = {table.operator: _price(table) for table in found}
    return {
        table.operator: {
            "offered_per_second": round(table.offered_per_second, 6),
            "work_offered": round(_work(table), 6),
            "budget": round(table.budget, 6),
            "utilisation": round(table.utilisation, 6),
            "worth_per_utilisation": round(prices[table.operator], 6),
            "time_seconds": _finite(inputs.waiting.compute_time_seconds(table.utilisation, table.offered_per_second)),
            "worth_per_second": round(prices[table.operator] * _estimate_budget_per_second(inputs, table), 6),
        }
        for table in found
    }


def _price(bottleneck: Bottleneck) -> float:
    """Return the shadow price of the budget: the gain at the sinks per additional second of work per second.

    It comes from one solution with a slightly larger budget, and is 0 if the budget is not used up.
    """
    overload, step = bottleneck.overload, PRICE_STEP * max(bottleneck.budget, PRICE_STEP)
    if bottleneck.utilisation < bottleneck.budget * (1 - 1e-9):
        return 0.0
    more = solve(replace(overload, budget=overload.budget + step))
    return (
        _compute_value_under_tables(overload, more) - _compute_value_under_tables(overload, bottleneck.tables)
    ) / step


def _estimate_budget_per_second(inputs: SheddingInputs, bottleneck: Bottleneck) -> float:
    if inputs.parameters["utilisation_budget"] is not None:
        return 0.0
    bound = float(inputs.parameters["latency_bound_seconds"])
    longer = inputs.waiting.compute_utilisation_budget(bound * (1 + PRICE_STEP), bottleneck.offered_per_second)
    return (longer - bottleneck.budget) / (bound * PRICE_STEP)


def _compute_value_under_tables(overload: Overload, tables: Sequence[Table]) -> float:
    """Return the weighted events/s that the sinks take under tables."""
    application = overload.application
    admitted = {**(overload.admitted or {}), **{table.pattern.name: table.admitted for table in tables}}
    made = application.compute_emissions(application.build_arrival_vectors(overload.arrivals), admitted)
    return float(sum(weight * made[application.index[sink]] for sink, weight in overload.weights.items()))


def _finite(seconds: float) -> float | None:
    """Return None for the infinite time of an unbounded queue, because JSON has no infinity."""
    return round(seconds, 6) if seconds < ENDLESS else None
