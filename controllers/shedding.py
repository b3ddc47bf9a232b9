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
passed. Where the bound is below the least processing time no table can keep it, and where the solver fails
there is none: the last table stays, and the decision says why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from controllers.application import Application, Floats, Pattern, arrange
from controllers.decision import Decision, Json
from controllers.design.needs import needs_of
from controllers.latency_bound import time_in_operator_seconds, utilisation_budget
from controllers.law import Values
from controllers.parameter import Parameter, read_object, read_values, refuse_unknown
from controllers.shedding_problem import Overload, Table
from controllers.shedding_program import SolverError, solve
from queues.errors import BadInput

ALL_SINKS = "sinks"
# How much more budget the price of the bound is asked for.
PRICE_STEP = 0.01

PARAMETERS = (
    Parameter(
        "perspective",
        "choice",
        "global: most reaches the sinks. local: most leaves the bottleneck.",
        "global",
        kind="choice",
        choices=("global", "local"),
    ),
    Parameter(
        "utilisation_budget",
        "s of work per s",
        "The bottleneck's utilisation may be this; not given, it follows from the latency bound.",
        None,
        0,
        1,
    ),
    Parameter("latency_bound_seconds", "s", "Mean time of an event in its operator.", 0.05, 1e-6, 86_400),
    Parameter(
        "service_cv2",
        "variance over mean²",
        "Variability of the service times, shed events included; an observation may bring a measured one.",
        1.0,
        0,
        1e6,
    ),
    Parameter(
        "never_shed",
        "type",
        "Types that are never shed, whatever it costs the others.",
        {},
        kind="map",
        items=(Parameter("protected", "flag", "True protects the type.", True, kind="flag"),),
    ),
    Parameter(
        "spare",
        "choice",
        "drop: what no match needs is dropped although it would fit (least load). admit: it comes as fits.",
        "drop",
        kind="choice",
        choices=("drop", "admit"),
    ),
    Parameter(
        "deviation_processing",
        "share",
        "Predicted time and processing times may leave what was computed by this.",
        0.1,
        0,
        10,
    ),
    Parameter("deviation_rates", "share", "Rates may leave what was computed by this.", 0.05, 0, 10),
)
RATE = Parameter("rate", "events/s", "Events of the type.", maximum=1e15)
PATTERN = (
    Parameter("operator", "name", "Where it runs.", kind="text", required=True),
    Parameter("name", "name", "The pattern.", kind="text", required=True),
    Parameter("expression", "pattern", "SEQ, AND, OR or a symbol, nested.", kind="text", required=True),
    Parameter("emits", "type", "What a match makes.", kind="text", required=True),
    Parameter("seconds", "s", "Processing time of one event.", maximum=86_400, required=True),
    Parameter("outputs", "events per match", "How many events a match makes.", 1.0, 0, 1e9),
    Parameter("correction", "share", "Measured output over that of the selectivity.", 1.0, 0, 1e3),
    Parameter("limit", "events/s", "The most it can emit; not given, it has no limit.", None, 0, 1e15),
)
OBSERVATION = (
    Parameter(
        "bottleneck", "operator", "Where to shed; not given, wherever it is needed.", None, kind="text"
    ),
    Parameter(
        "arrivals",
        "events/s",
        "operator → type → rate, of what comes from outside.",
        kind="map",
        required=True,
        items=(Parameter("types", "events/s", "Rate of each type.", kind="map", items=(RATE,)),),
    ),
    Parameter(
        "patterns", "rows", "All patterns of the application.", kind="rows", required=True, items=PATTERN
    ),
    Parameter(
        "sinks",
        "weight",
        "Types that sinks take, and what one event is worth.",
        kind="map",
        required=True,
        items=(Parameter("weight", "worth", "Of one event.", maximum=1e12),),
    ),
    Parameter("service_cv2", "variance over mean²", "As measured at the bottleneck.", None, 0, 1e6),
)
STATE = (
    Parameter(
        "shed",
        "share",
        "pattern → type → share dropped, in force.",
        {},
        kind="map",
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
        {},
        kind="map",
        items=(Parameter("time", "s", "In the operator.", 0.0, 0, 1e12),),
    ),
)
# Stands for the time in a queue without end, which JSON can't say.
ENDLESS = 1e12
STATE_KEYS = ("solved", "shed", "times")
# What a table is computed for, beside rates and times, which may leave it a little.
SAME_PATTERN = ("operator", "name", "expression", "emits", "outputs", "limit")


@dataclass(frozen=True)
class Sight:
    """Parameters and one observation, read: the application and what is asked of it."""

    application: Application
    parameters: Values
    observation: Values

    @property
    def arrivals(self) -> Mapping[str, Mapping[str, float]]:
        """Operator → type → events/s from outside."""
        found: Mapping[str, Mapping[str, float]] = self.observation["arrivals"]
        return found

    @property
    def protected(self) -> frozenset[str]:
        """The types never shed."""
        return frozenset(name for name, kept in self.parameters["never_shed"].items() if kept)

    @property
    def service_cv2(self) -> float:
        """Measured where it is, else the parameter."""
        measured = self.observation["service_cv2"]
        return float(self.parameters["service_cv2"] if measured is None else measured)

    @cached_property
    def outside(self) -> dict[str, Floats]:
        """The arrivals as the application's vectors."""
        return self.application.vectors(self.arrivals)

    def offered_per_second(self, operator: str, made: Floats) -> float:
        """All events/s that come to an operator: from outside, and what is emitted for its patterns."""
        places = [self.application.places[pattern.name] for pattern in self.application.at(operator)]
        inside = made[np.unique(np.concatenate(places))]
        return float(sum(self.arrivals.get(operator, {}).values()) + inside.sum())

    def budget(self, offered_per_second: float) -> float:
        """Utilisation an operator may reach."""
        given = self.parameters["utilisation_budget"]
        if given is not None:
            return float(given)
        return utilisation_budget(
            self.parameters["latency_bound_seconds"], offered_per_second, self.service_cv2
        )


@dataclass(frozen=True)
class Bottleneck:
    """One operator's tables, with the budget they keep to and what the operator is offered."""

    operator: str
    budget: float
    offered_per_second: float
    tables: Sequence[Table]

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
    actuator: str | None = None
    guard_defaults: Values = {}

    def check(self, parameters: Values) -> None:
        """Parameters can't contradict each other: a utilisation budget goes before the latency bound."""

    def check_observation(self, parameters: Values, observation: Values, where: str) -> None:
        """Raise `BadInput` when patterns, rates and sinks contradict each other."""
        patterns = application(observation, where)
        _check_names(patterns, observation, where)
        _check_rates(patterns, observation, where)

    def initial_state(self, parameters: Values) -> Json:
        """No table yet."""
        return {"solved": None, "shed": {}, "times": {}}

    def read_state(self, parameters: Values, document: Json) -> Json:
        """A state that was printed before, or None for the first. Raises `BadInput` naming `state.key`."""
        if document is None:
            return self.initial_state(parameters)
        given = read_object(document, "state")
        refuse_unknown(given, STATE_KEYS, "state")
        kept = read_values(STATE, {key: given[key] for key in ("shed", "times") if key in given}, "state")
        return {"solved": _read_solved(given.get("solved")), **kept}

    def decide(self, parameters: Values, state: Json, observation: Values) -> tuple[Json, Decision]:
        """A new table where one is called for, else nothing."""
        sight = Sight(application(observation, "observation"), parameters, observation)
        why = _trigger(sight, state)
        if why is None:
            return state, Decision(None, "The table stands: nothing it was computed for has changed enough.")
        try:
            found, made = relieve(sight)
        except InfeasibleError as error:
            return state, Decision(None, f"{error} The last table stays.", limited_by="infeasible")
        except SolverError as error:
            reason = f"The solver found no table ({error}). The last one stays."
            return state, Decision(None, reason, limited_by="solver")
        decision = _decision(sight, found, made, why)
        shed = decision.action["shed"] if decision.action else {}
        solved = {"parameters": dict(parameters), "observation": dict(observation)}
        times = {operator: min(time, ENDLESS) for operator, time, _ in _predicted(sight, shed)}
        return {"solved": solved, "shed": shed, "times": times}, decision


def application(observation: Values, where: str) -> Application:
    """The observed patterns, arranged. Raises `BadInput` naming the field."""
    rows = []
    for at, row in enumerate(observation["patterns"]):
        needs = needs_of(row["expression"], f"{where}.patterns[{at}].expression")
        if not needs.symbols:
            raise BadInput(
                f"{where}.patterns[{at}].expression", "needs no event at all; name one it must have"
            )
        given = {key: value for key, value in row.items() if key != "expression"}
        rows.append(Pattern(needs=needs, **given))
    return arrange(rows, f"{where}.patterns")


def _check_names(application: Application, observation: Values, where: str) -> None:
    bottleneck, emitted = observation["bottleneck"], application.emitters
    if bottleneck is not None and bottleneck not in application.operators:
        known = ", ".join(application.operators)
        raise BadInput(f"{where}.bottleneck", f"{bottleneck} has no patterns; operators with some: {known}")
    if ALL_SINKS in emitted:
        raise BadInput(f"{where}.patterns", f"no type may be called {ALL_SINKS}; it is the sum's name")
    for sink in observation["sinks"]:
        if sink not in emitted:
            raise BadInput(
                f"{where}.sinks.{sink}", f"is emitted by no pattern; emitted: {', '.join(emitted)}"
            )


def _check_rates(application: Application, observation: Values, where: str) -> None:
    """A type is made inside or comes from outside: with two rates nobody knows which is true."""
    for operator, types in observation["arrivals"].items():
        taken = {symbol for pattern in application.at(operator) for symbol in pattern.symbols}
        for symbol in types.keys() & taken & application.emitters.keys():
            makers = ", ".join(pattern.name for pattern in application.emitters[symbol])
            raise BadInput(
                f"{where}.arrivals.{operator}.{symbol}",
                f"contradicts {makers}, which emits {symbol}: give rates of types from outside only",
            )


def relieve(sight: Sight) -> tuple[list[Bottleneck], dict[str, float]]:
    """Tables for each bottleneck, upstream first, and type → events/s that are then emitted.

    Without a named bottleneck these are the operators whose offered work is over their budget. Raises
    `InfeasibleError` and `SolverError`.
    """
    application, named = sight.application, sight.observation["bottleneck"]
    admitted: dict[str, Floats] = {}
    made = application.emissions(sight.outside, admitted)
    found = []
    for operator in application.operators if named is None else [named]:
        offered = sight.offered_per_second(operator, made)
        overload = Overload(
            application,
            sight.arrivals,
            operator,
            sight.budget(offered),
            sight.observation["sinks"],
            sight.parameters["perspective"],
            sight.protected,
            admitted,
        )
        tables = solve(overload)
        if sight.parameters["spare"] == "admit":
            tables = filled(tables, overload.budget)
        sheds = any((table.admitted < table.offered).any() for table in tables)
        if sheds:
            _refuse_infeasible(sight, operator)
            admitted |= {table.pattern.name: table.admitted for table in tables}
            made = application.emissions(sight.outside, admitted)
        if sheds or named is not None:
            found.append(Bottleneck(operator, overload.budget, offered, tables))
    return found, {symbol: float(made[application.index[symbol]]) for symbol in application.emitters}


def filled(tables: Sequence[Table], budget: float) -> list[Table]:
    """The tables with what was dropped as surplus let through again, the same share of all, as the budget
    allows: windows lose less where more is to choose from (ERRATA E24)."""
    left = budget - sum(table.load for table in tables)
    surplus = sum(float(table.pattern.seconds * (table.offered - table.admitted).sum()) for table in tables)
    share = min(1.0, left / surplus) if surplus > 0 and left > 0 else 0.0
    return [
        replace(table, admitted=table.admitted + share * (table.offered - table.admitted)) for table in tables
    ]


def _refuse_infeasible(sight: Sight, operator: str) -> None:
    if sight.parameters["utilisation_budget"] is not None:
        return
    bound = sight.parameters["latency_bound_seconds"]
    takes = [pattern.seconds for pattern in sight.application.at(operator) if pattern.seconds > 0]
    if takes and bound < min(takes):
        raise InfeasibleError(
            f"The bound of {bound:g} s at {operator} is {min(takes) - bound:.3g} s below the "
            f"{min(takes):g} s that one event takes; no shedding keeps it. "
            f"Set latency_bound_seconds above {min(takes):g}."
        )


def _trigger(sight: Sight, state: Json) -> str | None:
    """Why a new table is called for, or None."""
    solved = state["solved"]
    if solved is None:
        return "first table"
    then, now = solved["observation"], sight.observation
    if solved["parameters"] != sight.parameters or _asked(then) != _asked(now):
        return "patterns, sinks or parameters are others"
    if _moved(_rates(then), _rates(now), sight.parameters["deviation_rates"]):
        return "the rates have changed"
    if _moved(_times(then), _times(now), sight.parameters["deviation_processing"]):
        return "the processing times have changed"
    return _off_bound(sight, state)


def _asked(observation: Values) -> Any:
    patterns = [[row[key] for key in SAME_PATTERN] for row in observation["patterns"]]
    return patterns, observation["sinks"], observation["bottleneck"]


def _rates(observation: Values) -> dict[str, float]:
    """Whatever update messages are about: rates from outside, and the measured corrections."""
    rates = {
        f"{operator}/{symbol}": float(rate)
        for operator, types in observation["arrivals"].items()
        for symbol, rate in types.items()
    }
    return rates | {row["name"]: float(row["correction"]) for row in observation["patterns"]}


def _times(observation: Values) -> dict[str, float]:
    return {row["name"]: float(row["seconds"]) for row in observation["patterns"]}


def _moved(then: Mapping[str, float], now: Mapping[str, float], deviation: float) -> bool:
    return any(
        abs(now.get(key, 0.0) - then.get(key, 0.0)) > deviation * then.get(key, 0.0)
        for key in then.keys() | now.keys()
    )


def _off_bound(sight: Sight, state: Json) -> str | None:
    """Whether the table in force now keeps an operator too busy, or sheds more than is needed."""
    deviation, shed = sight.parameters["deviation_processing"], state["shed"]
    for operator, time, bound in _predicted(sight, shed):
        then = state["times"].get(operator, bound)
        sheds = any(any(shed.get(each.name, {}).values()) for each in sight.application.at(operator))
        if min(time, ENDLESS) > (1 + deviation) * max(bound, then):
            return f"{operator} would exceed its bound"
        if sheds and time < (1 - deviation) * min(bound, then):
            return f"{operator} could do more within its bound"
    return None


def _predicted(sight: Sight, shed: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float, float]]:
    """Operator, mean time in it (s) under a table, and its bound; utilisations where a budget is given."""
    application, given = sight.application, sight.parameters["utilisation_budget"]
    named = sight.observation["bottleneck"]
    made, processed = _under(sight, shed)
    for operator in application.operators if named is None else [named]:
        offered = sight.offered_per_second(operator, made)
        work = sum(pattern.seconds * processed[pattern.name] for pattern in application.at(operator))
        if given is not None:
            yield operator, work, float(given)
        else:
            time = time_in_operator_seconds(work, offered, sight.service_cv2)
            yield operator, time, sight.parameters["latency_bound_seconds"]


def _under(sight: Sight, shed: Mapping[str, Mapping[str, float]]) -> tuple[Floats, dict[str, float]]:
    """Events/s of each emitted type, and events/s each pattern processes, under a table of shares."""
    application, admitted = sight.application, dict[str, Floats]()
    made = np.zeros(len(application.index))
    for pattern in application.patterns:
        dropped, offered = shed.get(pattern.name, {}), application.offered(pattern, sight.outside, made)
        kept = [1 - dropped.get(symbol, 0.0) for symbol in pattern.symbols]
        admitted[pattern.name] = offered * np.asarray(kept)
        made[application.index[pattern.emits]] += pattern.emission(admitted[pattern.name])
    return made, {name: float(rates.sum()) for name, rates in admitted.items()}


def _decision(sight: Sight, found: Sequence[Bottleneck], made: Mapping[str, float], why: str) -> Decision:
    shed = {table.pattern.name: table.shares() for each in found for table in each.tables}
    action = {
        "shed": shed,
        "expected": {**made, ALL_SINKS: worth(sight, made)},
        "utilisation": max((each.utilisation for each in found), default=0.0),
    }
    over = [each for each in found if each.utilisation > each.budget * (1 + 1e-9)]
    reason = " ".join([f"New table, since {why}:" if why != "first table" else "", _words(found)]).strip()
    return Decision(action, reason, _terms(sight, found), "never_shed" if over else None)


def worth(sight: Sight, made: Mapping[str, float]) -> float:
    """Weighted events/s that the sinks take."""
    return float(sum(weight * made[sink] for sink, weight in sight.observation["sinks"].items()))


def _words(found: Sequence[Bottleneck]) -> str:
    shedding = [each for each in found if any(any(table.shares().values()) for table in each.tables)]
    if not shedding:
        return "Every operator can do all it is offered; nothing is shed."
    return " ".join(
        f"{each.operator} is offered {_work(each):.0%} of its time and may use {each.budget:.1%}; "
        f"it sheds {1 - each.utilisation / _work(each):.0%} of its work."
        for each in shedding
    )


def _work(bottleneck: Bottleneck) -> float:
    """Seconds of work per second if nothing were shed."""
    return sum(float(table.pattern.seconds * table.offered.sum()) for table in bottleneck.tables)


def _terms(sight: Sight, found: Sequence[Bottleneck]) -> dict[str, Json]:
    """Per bottleneck: what it is offered, what it may use, what it uses, and the time to be expected."""
    return {
        each.operator: {
            "offered_per_second": round(each.offered_per_second, 6),
            "work_offered": round(_work(each), 6),
            "budget": round(each.budget, 6),
            "utilisation": round(each.utilisation, 6),
            "time_seconds": _finite(
                time_in_operator_seconds(each.utilisation, each.offered_per_second, sight.service_cv2)
            ),
        }
        for each in found
    }


def _finite(seconds: float) -> float | None:
    """JSON has no infinity: a queue without end has no time."""
    return round(seconds, 6) if seconds < ENDLESS else None


def _read_solved(document: Json) -> Json:
    """What the table in force was computed for. Raises `BadInput`."""
    if document is None:
        return None
    given = read_object(document, "state.solved")
    refuse_unknown(given, ("parameters", "observation"), "state.solved")
    return {
        "parameters": read_values(PARAMETERS, _given(given.get("parameters")), "state.solved.parameters"),
        "observation": read_values(OBSERVATION, _given(given.get("observation")), "state.solved.observation"),
    }


def _given(document: Json) -> Json:
    """Without the values that were not given, which a state keeps as null."""
    if isinstance(document, Mapping):
        return {key: _given(value) for key, value in document.items() if value is not None}
    return [_given(each) for each in document] if isinstance(document, list) else document
