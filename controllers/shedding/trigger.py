"""Triggers of a new shedding table, and the inputs that a table is remembered with (Röger, VIII and X-B)."""

from collections.abc import Iterator, Mapping
from typing import Any

from common.parameter import Parameter
from controllers.framework.decision import Json
from controllers.framework.law import Values
from controllers.patterns.application import Floats
from controllers.shedding.inputs import (
    OBSERVATION,
    PARAMETERS,
    SheddingInputs,
    compute_flows,
    compute_max_shed_rate,
    shed_per_second,
)

STATE = (
    Parameter(
        "solved",
        "inputs",
        "Inputs that the table in force was computed for; null: none.",
        kind="object",
        required=True,
        or_null=True,
        items=(
            Parameter(
                "parameters", "parameters", "Parameters at that time.", kind="object", required=True, items=PARAMETERS
            ),
            Parameter(
                "observation",
                "observation",
                "Observation at that time.",
                kind="object",
                required=True,
                items=OBSERVATION,
            ),
        ),
    ),
    Parameter(
        "shed",
        "share",
        "pattern → type → share dropped, in force.",
        kind="map",
        required=True,
        items=(
            Parameter(
                "types",
                "share",
                "Shares of one pattern.",
                kind="map",
                items=(Parameter("share", "share", "Share dropped.", 0.0, 0, 1),),
            ),
        ),
    ),
    Parameter(
        "times",
        "s",
        "operator → predicted time when the table was made.",
        kind="map",
        required=True,
        items=(Parameter("time", "s", "Time in the operator.", 0.0, 0, 1e12),),
    ),
)
# Represents the time in an unbounded queue, because JSON has no infinity.
ENDLESS = 1e12
# Inputs of a table besides rates and times, which may change a little.
SAME_PATTERN = ("operator", "name", "expression", "emits", "outputs", "limit")


def build_empty_state() -> dict[str, Json]:
    """Return a state without a table."""
    return {"solved": None, "shed": {}, "times": {}}


def build_next_state(inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]) -> dict[str, Json]:
    solved = {"parameters": dict(inputs.parameters), "observation": dict(inputs.observation)}
    times = {operator: min(time, ENDLESS) for operator, time, _ in _predict_operators(inputs, shed)}
    return {"solved": solved, "shed": shed, "times": times}


def trigger(inputs: SheddingInputs, state: Json) -> str | None:
    """Return why a new table is required, or None."""
    solved = state["solved"]
    if solved is None:
        return "there is no table yet"
    then, now = solved["observation"], inputs.observation
    if solved["parameters"] != inputs.parameters or _read_request(then) != _read_request(now):
        return "patterns, sinks, or parameters changed"
    if _has_moved(_collect_rates(then), _collect_rates(now), inputs.parameters["deviation_rates"]):
        return "the rates changed"
    if _has_moved(_collect_times(then), _collect_times(now), inputs.parameters["deviation_processing"]):
        return "the processing times changed"
    return _is_off_budget(inputs, state) or _is_off_bound(inputs, state)


def _read_request(observation: Values) -> Any:
    patterns = [[row[key] for key in SAME_PATTERN] for row in observation["patterns"]]
    return patterns, observation["sinks"], observation["bottleneck"], observation["permitted"]


def _collect_rates(observation: Values) -> dict[str, float]:
    """Return the values of update messages: rates from outside, and the measured corrections."""
    rates = {
        f"{operator}/{symbol}": float(rate)
        for operator, types in observation["arrivals"].items()
        for symbol, rate in types.items()
    }
    rates |= {row["name"]: float(row["correction"]) for row in observation["patterns"]}
    taken = {
        f"{row['name']} takes {symbol}": float(events)
        for row in observation["patterns"]
        for symbol, events in row["takes"].items()
    }
    return rates | taken


def _collect_times(observation: Values) -> dict[str, float]:
    return {row["name"]: float(row["seconds"]) for row in observation["patterns"]}


def _has_moved(then: Mapping[str, float], now: Mapping[str, float], deviation: float) -> bool:
    return any(
        abs(now.get(key, 0.0) - then.get(key, 0.0)) > deviation * then.get(key, 0.0) for key in then.keys() | now.keys()
    )


def _is_off_budget(inputs: SheddingInputs, state: Json) -> str | None:
    solved, deviation = state["solved"], inputs.parameters["deviation_rates"]
    then = compute_max_shed_rate(solved["parameters"], solved["observation"])
    now = inputs.most_shed_per_second
    if then is None and now is None:
        return None
    rate = shed_per_second(inputs, state["shed"])
    if now is not None and rate > (1 + deviation) * now:
        return "the error budget allows less"
    was_limited = then is not None and rate >= (1 - deviation) * then and rate > 0
    if was_limited and (now is None or now > (1 + deviation) * (then or 0.0)):
        return "the error budget allows more"
    return None


def _is_off_bound(inputs: SheddingInputs, state: Json) -> str | None:
    deviation, shed = inputs.parameters["deviation_processing"], state["shed"]
    for operator, time, bound in _predict_operators(inputs, shed):
        then = state["times"].get(operator, bound)
        sheds = any(any(shed.get(pattern.name, {}).values()) for pattern in inputs.application.get_patterns(operator))
        if min(time, ENDLESS) > (1 + deviation) * max(bound, then):
            return f"{operator} would exceed its bound with the current table"
        if sheds and time < (1 - deviation) * min(bound, then):
            return f"{operator} could process more within its bound"
    return None


def _predict_operators(
    inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, float, float]]:
    """Yield each operator, its mean time in s under a table, and its bound.

    If a utilization budget is given, the values are utilizations.
    """
    application, given = inputs.application, inputs.parameters["utilisation_budget"]
    named = inputs.observation["bottleneck"]
    made, processed = _compute_rates_under(inputs, shed)
    for operator in application.operators if named is None else [named]:
        offered = inputs.compute_offered_per_second(operator, made)
        work = sum(pattern.seconds * processed[pattern.name] for pattern in application.get_patterns(operator))
        if given is not None:
            yield operator, work, float(given)
        else:
            time = inputs.waiting.compute_time_seconds(work, offered)
            yield operator, time, inputs.parameters["latency_bound_seconds"]


def work_shed(inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]) -> dict[str, Json]:
    """Return the seconds of work per second of all operators, and the share that a table saves."""
    seconds = {pattern.name: pattern.seconds for pattern in inputs.application.patterns}
    offered, processed = (
        sum(seconds[name] * rate for name, rate in _compute_rates_under(inputs, table)[1].items())
        for table in ({}, shed)
    )
    share = 1 - processed / offered if offered > 0 else 0.0
    return {"work_offered": round(offered, 6), "work_shed": round(max(0.0, share), 6)}


def _compute_rates_under(
    inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]
) -> tuple[Floats, dict[str, float]]:
    """Return the events/s of each emitted type, and those that each pattern processes, under a table."""
    _, admitted = compute_flows(inputs, shed)
    made = inputs.application.compute_emissions(inputs.outside, admitted)
    return made, {name: float(rates.sum()) for name, rates in admitted.items()}
