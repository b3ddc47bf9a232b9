"""Triggers of a new shedding table, and the inputs that a table is remembered with (Röger, VIII and X-B)."""

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec

from common.parameter import value
from controllers.framework.decision import Json
from controllers.patterns.application import Floats
from controllers.shedding.inputs import (
    Shares,
    SheddingInputs,
    SheddingObservation,
    SheddingParameters,
    compute_max_shed_rate,
)

# Represents the time in an unbounded queue, because JSON has no infinity.
ENDLESS = 1e12


class SolvedInputs(msgspec.Struct, frozen=True, kw_only=True):
    parameters: Annotated[SheddingParameters, value("parameters", "Parameters at that time.")]
    observation: Annotated[SheddingObservation, value("observation", "Observation at that time.")]


class SheddingState(msgspec.Struct, frozen=True, kw_only=True):
    solved: Annotated[
        SolvedInputs | None,
        value("inputs", "Inputs that the table in force was computed for; null: none.", required=True, or_null=True),
    ] = None
    shed: Annotated[
        dict[
            str,
            Annotated[
                dict[str, Annotated[float, value("share", "Share dropped.", 0, 1)]],
                value("share", "Shares of one pattern."),
            ],
        ],
        value("share", "pattern → type → share dropped, in force.", required=True),
    ] = {}
    times: Annotated[
        dict[str, Annotated[float, value("s", "Time in the operator.")]],
        value("s", "operator → predicted time when the table was made.", required=True),
    ] = {}


def build_next_state(inputs: SheddingInputs, shed: Shares) -> SheddingState:
    """Return the inputs of a table, the table, and the expected times under it."""
    return SheddingState(
        solved=SolvedInputs(parameters=inputs.parameters, observation=inputs.observation),
        shed={name: dict(types) for name, types in shed.items()},
        times={operator: min(time, ENDLESS) for operator, time, _ in _predict_operators(inputs, shed)},
    )


def find_trigger(inputs: SheddingInputs, state: SheddingState) -> str | None:
    """Return why a new table is required, or None."""
    solved, parameters = state.solved, inputs.parameters
    if solved is None:
        return "there is no table yet"
    then, now = solved.observation, inputs.observation
    if solved.parameters != parameters or _read_request(then) != _read_request(now):
        return "patterns, sinks, or parameters changed"
    if _has_moved(_collect_rates(then), _collect_rates(now), parameters.deviation_rates):
        return "the rates changed"
    before, after = ({row.name: row.seconds for row in observation.patterns} for observation in (then, now))
    if _has_moved(before, after, parameters.deviation_processing):
        return "the processing times changed"
    return _is_off_budget(inputs, solved, state.shed) or _is_off_bound(inputs, state)


def _read_request(observation: SheddingObservation) -> tuple[object, ...]:
    """Return the inputs of a table besides rates and times, which may change a little."""
    rows = [(row.operator, row.name, row.expression, row.emits, row.outputs, row.limit) for row in observation.patterns]
    return rows, observation.sinks, observation.bottleneck, observation.permitted, observation.protected


def _collect_rates(observation: SheddingObservation) -> dict[str, float]:
    """Return the values of update messages: rates from outside, and the measured corrections."""
    rates = {
        f"{operator}/{symbol}": rate
        for operator, types in observation.arrivals.items()
        for symbol, rate in types.items()
    }
    rates["rows"] = observation.rows_per_second or 0.0
    for row in observation.patterns:
        rates[row.name] = row.correction
        for place, takes in enumerate((row.takes, *(each.takes for each in row.reduced))):
            rates |= {f"{row.name} takes {symbol} ({place})": events for symbol, events in takes.items()}
    return rates


def _has_moved(then: Mapping[str, float], now: Mapping[str, float], deviation: float) -> bool:
    return any(
        abs(now.get(key, 0.0) - then.get(key, 0.0)) > deviation * then.get(key, 0.0) for key in then.keys() | now.keys()
    )


def _is_off_budget(inputs: SheddingInputs, solved: SolvedInputs, shed: Shares) -> str | None:
    """Return whether error budgets now allow less than the table in force sheds, or more than they did."""
    deviation = inputs.parameters.deviation_rates
    then, now = compute_max_shed_rate(solved.parameters, solved.observation), inputs.most_shed_per_second
    if then is None and now is None:
        return None
    rate = inputs.compute_shed_rate(shed)
    if now is not None and rate > (1 + deviation) * now:
        return "the error budget allows less"
    was_limited = then is not None and rate >= (1 - deviation) * then and rate > 0
    if was_limited and (now is None or now > (1 + deviation) * (then or 0.0)):
        return "the error budget allows more"
    return None


def _is_off_bound(inputs: SheddingInputs, state: SheddingState) -> str | None:
    """Return whether the table in force makes an operator too busy, or sheds more than needed."""
    deviation, shed = inputs.parameters.deviation_processing, state.shed
    for operator, time, bound in _predict_operators(inputs, shed):
        then = state.times.get(operator, bound)
        sheds = any(any(shed.get(pattern.name, {}).values()) for pattern in inputs.application.get_patterns(operator))
        if min(time, ENDLESS) > (1 + deviation) * max(bound, then):
            return f"{operator} would exceed its bound with the current table"
        if sheds and time < (1 - deviation) * min(bound, then):
            return f"{operator} could process more within its bound"
    return None


def _predict_operators(inputs: SheddingInputs, shed: Shares) -> Iterator[tuple[str, float, float]]:
    """Yield each operator, its mean time in s under a table, and its bound.

    If a utilization budget is given, the values are utilizations.
    """
    application, given, named = inputs.application, inputs.parameters.utilisation_budget, inputs.observation.bottleneck
    made, processed = _compute_rates_under(inputs, shed)
    for operator in application.operators if named is None else [named]:
        offered = inputs.compute_offered_per_second(operator, made)
        work = sum(pattern.seconds * processed[pattern.name] for pattern in application.get_patterns(operator))
        if given is not None:
            yield operator, work, given
        else:
            time = inputs.waiting.compute_time_seconds(work, offered)
            yield operator, time, inputs.parameters.latency_bound_seconds


def work_shed(inputs: SheddingInputs, shed: Shares) -> dict[str, Json]:
    """Return the seconds of work per second of all operators, and the share that a table saves."""
    seconds = {pattern.name: pattern.seconds for pattern in inputs.application.patterns}
    offered, processed = (
        sum(seconds[name] * rate for name, rate in _compute_rates_under(inputs, table)[1].items())
        for table in ({}, shed)
    )
    share = 1 - processed / offered if offered > 0 else 0.0
    return {"work_offered": round(offered, 6), "work_shed": round(max(0.0, share), 6)}


def _compute_rates_under(inputs: SheddingInputs, shed: Shares) -> tuple[Floats, dict[str, float]]:
    """Return the events/s of each emitted type, and those that each pattern processes, under a table."""
    _, admitted = inputs.compute_flows(shed)
    made = inputs.application.compute_emissions(inputs.outside, admitted)
    return made, {name: float(rates.sum()) for name, rates in admitted.items()}
