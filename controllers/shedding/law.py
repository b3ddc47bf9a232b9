"""The shedding law: the least loss at the sinks within a latency bound.

Each bottleneck, upstream first, gets the table that `program` finds optimal for the budget that
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

Operators that work in batches get two tables. The second one is for batches with too many rows, which would exceed the
bound (`latency_bound`). The pipeline interpolates between both by the rows of each batch, so it reacts to a queue at
once, and not only when the next decision is due.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controllers.framework.decision import Decision, Expectation, Json
from controllers.framework.law import Law, Values
from controllers.framework.reason import format_no_action, format_number, format_percent, format_reason
from controllers.patterns.application import Floats
from controllers.shedding.inputs import ALL_SINKS, Shares, SheddingInputs, SheddingObservation, SheddingParameters
from controllers.shedding.latency_bound import REDUCED_FACTOR
from controllers.shedding.problem import Overload, Table
from controllers.shedding.program import SolverError, solve
from controllers.shedding.trigger import ENDLESS, SheddingState, build_next_state, find_trigger, work_shed

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

    @property
    def work(self) -> float:
        """Return the seconds of work per second without shedding."""
        return sum(float(table.pattern.seconds * table.offered.sum()) for table in self.tables)

    @property
    def is_shedding(self) -> bool:
        return any(any(table.compute_shares().values()) for table in self.tables)


class InfeasibleError(ValueError):
    """No table keeps the bound, because one event alone takes longer."""


class Shedding(Law[SheddingParameters, SheddingObservation, SheddingState]):
    """The least loss that keeps the bound; see the module for when a table is computed anew."""

    name = "shedding"
    Parameters, Observation, State = SheddingParameters, SheddingObservation, SheddingState

    def check_observation(self, parameters: SheddingParameters, observation: SheddingObservation, where: str) -> None:
        SheddingInputs.arrange(parameters, observation, where).check(where)

    def correct(
        self, parameters: SheddingParameters, before: SheddingState, after: SheddingState, action: Values | None
    ) -> SheddingState:
        """Return the previous state if the new table is not put in force."""
        return after if action else before

    def decide(
        self, parameters: SheddingParameters, state: SheddingState, observation: SheddingObservation
    ) -> tuple[SheddingState, Decision]:
        """Return a new table if one is required, else no action."""
        inputs = SheddingInputs.arrange(parameters, observation)
        before = work_shed(inputs, state.shed)
        if not observation.permitted:
            if not any(share for types in state.shed.values() for share in types.values()):
                reason = format_no_action("the remedy ladder has not enabled shedding")
                return SheddingState(), Decision(None, reason, work_shed(inputs, {}))
            made = inputs.application.compute_emissions(inputs.outside, {})
            action = {"shed": {}, "expected": compute_expected_output(inputs, made), "utilisation": 0.0}
            reason = format_reason("Stop shedding", "the remedy ladder no longer enables it")
            lifted = Decision(action, reason, work_shed(inputs, {}))
            return SheddingState(), replace(lifted, expected=_build_expectation(before, lifted.terms))
        why = find_trigger(inputs, state)
        if why is None:
            reason = format_no_action("rates, times, and bounds have not changed enough for a new table")
            return state, Decision(None, reason, before)
        try:
            bottlenecks, made = _apply_error_budgets(inputs, *shed_tables(inputs))
        except InfeasibleError as error:
            return state, Decision(None, format_no_action(str(error)), before, limited_by="infeasible")
        except SolverError as error:
            reason = format_no_action(f"the solver found no table ({error}), so the last table stays")
            return state, Decision(None, reason, before, limited_by="solver")
        shed = {table.pattern.name: table.compute_shares() for bottleneck in bottlenecks for table in bottleneck.tables}
        action = {
            "shed": shed,
            "expected": compute_expected_output(inputs, made),
            "utilisation": max((bottleneck.utilisation for bottleneck in bottlenecks), default=0.0),
            **_limit_batches(inputs, bottlenecks),
        }
        limited_by = (
            "never_shed"
            if any(bottleneck.utilisation > bottleneck.budget * (1 + 1e-9) for bottleneck in bottlenecks)
            else None
        )
        remarks = [
            f"{bottleneck.operator}: offered load {format_percent(bottleneck.work)}, "
            f"limit {format_percent(bottleneck.budget, 1)}"
            for bottleneck in bottlenecks
            if bottleneck.is_shedding
        ] or ["every operator can process its offered load"]
        if any(bottleneck.is_limited for bottleneck in bottlenecks):
            limited_by = "error budget"
            most = format_number(inputs.most_shed_per_second or 0.0)
            remarks.append(f"the error budget allows {most} events/s to be shed")
        shares = {
            bottleneck.operator: 1 - bottleneck.utilisation / bottleneck.work
            for bottleneck in bottlenecks
            if bottleneck.is_shedding
        }
        of_work = ", ".join(f"{format_percent(share)} of the work of {name}" for name, share in shares.items())
        reason = format_reason(f"Shed {of_work or 'nothing'}", why, remarks=remarks)
        after = work_shed(inputs, shed)
        terms = {**{bottleneck.operator: _build_terms(inputs, bottleneck) for bottleneck in bottlenecks}, **after}
        decision = Decision(action, reason, terms, limited_by, expected=_build_expectation(before, after))
        return build_next_state(inputs, shed), decision


LAW = Shedding()


def shed_tables(inputs: SheddingInputs, budget_share: float = 1.0) -> tuple[list[Bottleneck], Floats]:
    """Return the tables of each bottleneck, upstream first, and a vector of events/s that are then emitted.

    Without a named bottleneck, these are the operators whose offered load exceeds their budget. budget_share: part of
    the budget that they may use. Raise `InfeasibleError` and `SolverError`.
    """
    application, named = inputs.application, inputs.observation.bottleneck
    admitted: dict[str, Floats] = {}
    made = application.compute_emissions(inputs.outside, admitted)
    bottlenecks = []
    for operator in application.operators if named is None else [named]:
        offered = inputs.compute_offered_per_second(operator, made)
        overload = Overload(
            application,
            inputs.observation.arrivals,
            operator,
            budget_share * inputs.compute_budget(offered),
            inputs.sinks,
            inputs.parameters.perspective,
            inputs.protected,
            admitted,
        )
        tables = solve(overload)
        if inputs.parameters.spare == "admit":
            tables = restore_surplus(tables, overload.budget)
        sheds = any((table.admitted < table.offered).any() for table in tables)
        if sheds:
            _refuse_infeasible(inputs, operator)
            admitted |= {table.pattern.name: table.admitted for table in tables}
            made = application.compute_emissions(inputs.outside, admitted)
        if sheds or named is not None:
            bottlenecks.append(Bottleneck(overload, offered, tables))
    return bottlenecks, made


def _limit_batches(inputs: SheddingInputs, bottlenecks: Sequence[Bottleneck]) -> dict[str, Json]:
    """Return the rows of a batch up to which the tables apply, and the tables for `REDUCED_FACTOR` times as many rows.

    Each batch has the same budget, so these are the tables for so many times the load. Return {} without a limit.
    """
    utilisation = max((bottleneck.utilisation for bottleneck in bottlenecks if bottleneck.is_shedding), default=0.0)
    rows, most = inputs.compute_batch_rows(utilisation), inputs.most_shed_per_second
    if rows is None:
        return {}
    try:
        reduced, _ = shed_tables(inputs, 1 / REDUCED_FACTOR)
    except (InfeasibleError, SolverError):
        return {}
    shares: Shares = {
        table.pattern.name: table.compute_shares() for bottleneck in reduced for table in bottleneck.tables
    }
    return {"rows": round(rows, 1), "reduced": shares if most is None else inputs.cut(shares, most)}


def _apply_error_budgets(
    inputs: SheddingInputs, found: list[Bottleneck], made: Floats
) -> tuple[list[Bottleneck], Floats]:
    """Return the same tables if error budgets allow them, else what they allow."""
    most = inputs.most_shed_per_second
    shares = {table.pattern.name: table.compute_shares() for bottleneck in found for table in bottleneck.tables}
    if most is None or (allowed := inputs.cut(shares, most)) is shares:
        return found, made
    offered, admitted = inputs.compute_flows(allowed)
    limited = [
        replace(
            bottleneck,
            is_limited=True,
            tables=[
                replace(table, offered=offered[table.pattern.name], admitted=admitted[table.pattern.name])
                for table in bottleneck.tables
            ],
        )
        for bottleneck in found
    ]
    return limited, inputs.application.compute_emissions(inputs.outside, admitted)


def restore_surplus(tables: Sequence[Table], budget: float) -> list[Table]:
    """Return the tables with surplus events admitted again, the same share of each type, within the budget.

    Windows lose less if there are more events to choose from (ERRATA E24).
    """
    left = budget - sum(table.load for table in tables)
    surplus = sum(float(table.pattern.seconds * (table.offered - table.admitted).sum()) for table in tables)
    share = min(1.0, left / surplus) if surplus > 0 and left > 0 else 0.0
    return [replace(table, admitted=table.admitted + share * (table.offered - table.admitted)) for table in tables]


def _refuse_infeasible(inputs: SheddingInputs, operator: str) -> None:
    if inputs.parameters.utilisation_budget is not None:
        return
    bound = inputs.parameters.latency_bound_seconds
    takes = [pattern.seconds for pattern in inputs.application.get_patterns(operator) if pattern.seconds > 0]
    least = inputs.waiting.compute_minimum_seconds(min(takes, default=0.0))
    if takes and bound < least:
        raise InfeasibleError(
            f"the latency bound of {bound:g} s at {operator} is {least - bound:.3g} s below the {least:g} s "
            f"that an event takes, so shedding can't meet it; set latency_bound_seconds above {least:g} s"
        )


def compute_expected_output(inputs: SheddingInputs, made: Floats) -> dict[str, float]:
    """Return type → events/s, and the weighted events/s that the sinks take, of a vector of emitted events."""
    application = inputs.application
    emitted = {symbol: float(made[application.index[symbol]]) for symbol in application.emitters}
    return {**emitted, ALL_SINKS: float(sum(weight * emitted[sink] for sink, weight in inputs.sinks.items()))}


def _build_expectation(before: Mapping[str, Json], after: Mapping[str, Json]) -> Expectation | None:
    """Return the expected change of the shed share, or None if it is within the noise."""
    change = after["work_shed"] - before["work_shed"]
    if abs(change) < WORTH_EXPECTING:
        return None
    return Expectation("shed_share", "up" if change > 0 else "down", round(abs(change), 6), EFFECT_SECONDS)


def _build_terms(inputs: SheddingInputs, bottleneck: Bottleneck) -> dict[str, Json]:
    """Return the offered load, budget, utilization, and expected time of a bottleneck.

    The shadow price of the budget is the gain at the sinks per additional second of work per second. It comes from one
    solution with a slightly larger budget, and is 0 if the budget is not used up. The additional budget per second of a
    longer bound is extrapolated from a small increase.
    """
    overload, budget, price, per_second = bottleneck.overload, bottleneck.budget, 0.0, 0.0
    if bottleneck.utilisation >= budget * (1 - 1e-9):
        step = PRICE_STEP * max(budget, PRICE_STEP)
        more = solve(replace(overload, budget=budget + step))
        price = (_compute_value(overload, more) - _compute_value(overload, bottleneck.tables)) / step
    if inputs.parameters.utilisation_budget is None:
        bound = inputs.parameters.latency_bound_seconds
        longer = inputs.waiting.compute_utilisation_budget(bound * (1 + PRICE_STEP), bottleneck.offered_per_second)
        per_second = (longer - budget) / (bound * PRICE_STEP)
    seconds = inputs.waiting.compute_time_seconds(bottleneck.utilisation, bottleneck.offered_per_second)
    return {
        "offered_per_second": round(bottleneck.offered_per_second, 6),
        "work_offered": round(bottleneck.work, 6),
        "budget": round(budget, 6),
        "utilisation": round(bottleneck.utilisation, 6),
        "worth_per_utilisation": round(price, 6),
        # JSON has no infinity, the time of an unbounded queue.
        "time_seconds": round(seconds, 6) if seconds < ENDLESS else None,
        "worth_per_second": round(price * per_second, 6),
    }


def _compute_value(overload: Overload, tables: Sequence[Table]) -> float:
    """Return the weighted events/s that the sinks take under tables."""
    application = overload.application
    admitted = {**(overload.admitted or {}), **{table.pattern.name: table.admitted for table in tables}}
    made = application.compute_emissions(application.build_arrival_vectors(overload.arrivals), admitted)
    return float(sum(weight * made[application.index[sink]] for sink, weight in overload.weights.items()))
