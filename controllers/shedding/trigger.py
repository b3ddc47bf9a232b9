"""When a shedding table is computed anew, and what it is remembered for (Röger, VIII and X-B)."""

from collections.abc import Iterator, Mapping
from typing import Any

from controllers.framework.decision import Json
from controllers.framework.law import Values
from controllers.framework.parameter import Parameter
from controllers.patterns.application import Floats
from controllers.shedding.budget_cut import flows, shed_per_second
from controllers.shedding.inputs import OBSERVATION, PARAMETERS, SheddingInputs, most_shed_per_second

STATE = (
    Parameter(
        "solved",
        "inputs",
        "What the table in force was computed for; null: there is none.",
        kind="object",
        required=True,
        or_null=True,
        items=(
            Parameter("parameters", "parameters", "Then.", kind="object", required=True, items=PARAMETERS),
            Parameter("observation", "observation", "Then.", kind="object", required=True, items=OBSERVATION),
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
                "Of one pattern.",
                kind="map",
                items=(Parameter("share", "share", "Dropped.", 0.0, 0, 1),),
            ),
        ),
    ),
    Parameter(
        "times",
        "s",
        "operator → predicted time when the table was made.",
        kind="map",
        required=True,
        items=(Parameter("time", "s", "In the operator.", 0.0, 0, 1e12),),
    ),
)
# Stands for the time in a queue without end, which JSON can't say.
ENDLESS = 1e12
# What a table is computed for, beside rates and times, which may leave it a little.
SAME_PATTERN = ("operator", "name", "expression", "emits", "outputs", "limit")


def initial_state() -> dict[str, Json]:
    """No table yet."""
    return {"solved": None, "shed": {}, "times": {}}


def state_after(inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]) -> dict[str, Json]:
    """What a table was computed for, the table, and the times to be expected under it."""
    solved = {"parameters": dict(inputs.parameters), "observation": dict(inputs.observation)}
    times = {operator: min(time, ENDLESS) for operator, time, _ in _predicted(inputs, shed)}
    return {"solved": solved, "shed": shed, "times": times}


def trigger(inputs: SheddingInputs, state: Json) -> str | None:
    """Why a new table is called for, or None."""
    solved = state["solved"]
    if solved is None:
        return "there is no table yet"
    then, now = solved["observation"], inputs.observation
    if solved["parameters"] != inputs.parameters or _asked(then) != _asked(now):
        return "patterns, sinks or parameters changed"
    if _moved(_rates(then), _rates(now), inputs.parameters["deviation_rates"]):
        return "the rates changed"
    if _moved(_times(then), _times(now), inputs.parameters["deviation_processing"]):
        return "the processing times changed"
    return _off_budget(inputs, state) or _off_bound(inputs, state)


def _asked(observation: Values) -> Any:
    patterns = [[row[key] for key in SAME_PATTERN] for row in observation["patterns"]]
    return patterns, observation["sinks"], observation["bottleneck"], observation["permitted"]


def _rates(observation: Values) -> dict[str, float]:
    """Whatever update messages are about: rates from outside, and the measured corrections."""
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


def _times(observation: Values) -> dict[str, float]:
    return {row["name"]: float(row["seconds"]) for row in observation["patterns"]}


def _moved(then: Mapping[str, float], now: Mapping[str, float], deviation: float) -> bool:
    return any(
        abs(now.get(key, 0.0) - then.get(key, 0.0)) > deviation * then.get(key, 0.0)
        for key in then.keys() | now.keys()
    )


def _off_budget(inputs: SheddingInputs, state: Json) -> str | None:
    """Whether the table in force sheds more than error budgets allow now, or less than they would since."""
    solved, deviation = state["solved"], inputs.parameters["deviation_rates"]
    then = most_shed_per_second(solved["parameters"], solved["observation"])
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


def _off_bound(inputs: SheddingInputs, state: Json) -> str | None:
    """Whether the table in force now keeps an operator too busy, or sheds more than is needed."""
    deviation, shed = inputs.parameters["deviation_processing"], state["shed"]
    for operator, time, bound in _predicted(inputs, shed):
        then = state["times"].get(operator, bound)
        sheds = any(any(shed.get(each.name, {}).values()) for each in inputs.application.at(operator))
        if min(time, ENDLESS) > (1 + deviation) * max(bound, then):
            return f"{operator} would exceed its bound with the present table"
        if sheds and time < (1 - deviation) * min(bound, then):
            return f"{operator} could process more within its bound"
    return None


def _predicted(
    inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]
) -> Iterator[tuple[str, float, float]]:
    """Operator, mean time in it (s) under a table, and its bound; utilisations where a budget is given."""
    application, given = inputs.application, inputs.parameters["utilisation_budget"]
    named = inputs.observation["bottleneck"]
    made, processed = _under(inputs, shed)
    for operator in application.operators if named is None else [named]:
        offered = inputs.offered_per_second(operator, made)
        work = sum(pattern.seconds * processed[pattern.name] for pattern in application.at(operator))
        if given is not None:
            yield operator, work, float(given)
        else:
            time = inputs.waiting.time_seconds(work, offered)
            yield operator, time, inputs.parameters["latency_bound_seconds"]


def work_shed(inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]) -> dict[str, Json]:
    """{work_offered: seconds of work per second, of all operators; work_shed: the share a table saves}."""
    seconds = {pattern.name: pattern.seconds for pattern in inputs.application.patterns}
    offered, processed = (
        sum(seconds[name] * rate for name, rate in _under(inputs, table)[1].items()) for table in ({}, shed)
    )
    share = 1 - processed / offered if offered > 0 else 0.0
    return {"work_offered": round(offered, 6), "work_shed": round(max(0.0, share), 6)}


def _under(
    inputs: SheddingInputs, shed: Mapping[str, Mapping[str, float]]
) -> tuple[Floats, dict[str, float]]:
    """Events/s of each emitted type, and events/s each pattern processes, under a table of shares."""
    _, admitted = flows(inputs, shed)
    made = inputs.application.emissions(inputs.outside, admitted)
    return made, {name: float(rates.sum()) for name, rates in admitted.items()}
