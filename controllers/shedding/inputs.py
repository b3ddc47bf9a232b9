"""What the shedding law reads: its parameters, one observation, and the application they describe."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controllers.framework.law import Values
from controllers.framework.parameter import Parameter
from controllers.patterns.application import ArrangedPatterns, Floats, OperatorPattern, arrange
from controllers.patterns.needs import Needs, needs_of
from controllers.shedding.budgets import BUDGET_SECONDS, BUDGETS, allowed_per_second
from controllers.shedding.latency_bound import Waiting
from queues.errors import BadInput

ALL_SINKS = "sinks"

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
        "Variability of the service times, shed events included, or of the fixed cost of a batch; an "
        "observation may bring a measured one.",
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
        "needs",
        "choice",
        "expression: what a match needs; the rest is surplus, dropped first. measured: what comes for each "
        "match, where an event serves its own key only and nothing is surplus.",
        "expression",
        kind="choice",
        choices=("expression", "measured"),
    ),
    Parameter(
        "sink_weights",
        "weight",
        "Type → what one event is worth at its sinks, in place of what is observed.",
        {},
        kind="map",
        items=(Parameter("weight", "worth", "Of one event.", 1.0, 0, 1e12),),
    ),
    Parameter(
        "spare",
        "choice",
        "drop: events that no match needs are dropped. admit: they pass as far as the budget allows.",
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
    BUDGET_SECONDS,
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
    Parameter(
        "takes",
        "events per match",
        "Type → how many come for each match, as measured; empty where that is not known.",
        {},
        kind="map",
        items=(Parameter("events", "events", "Of the type.", None, 1e-9, 1e15),),
    ),
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
    Parameter(
        "service_cv2",
        "variance over mean²",
        "As measured at the bottleneck; where it works in batches, of their fixed cost.",
        None,
        0,
        1e6,
    ),
    Parameter(
        "batch_seconds",
        "s",
        "Fixed cost of a batch, of operators that work in batches; not given, event by event.",
        None,
        0,
        86_400,
    ),
    Parameter("latency_seconds", "s", "What nearly all events take now; for the record.", None, 0, 1e12),
    Parameter("elsewhere_seconds", "s", "Of the bound, what passes outside the operators.", 0.0, 0, 86_400),
    Parameter(
        "permitted", "flag", "False: others have to act first, and nothing is shed.", True, kind="flag"
    ),
    BUDGETS,
)


@dataclass(frozen=True)
class SheddingInputs:
    """Parameters and one observation, read: the application and what is asked of it."""

    application: ArrangedPatterns
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

    @property
    def waiting(self) -> Waiting:
        """How long events take in an operator."""
        found = self.observation
        return Waiting(self.service_cv2, found["batch_seconds"], found["elsewhere_seconds"])

    @property
    def sinks(self) -> Mapping[str, float]:
        """Type → worth of one event at its sinks."""
        weights = self.parameters["sink_weights"]
        return {name: float(weights.get(name, worth)) for name, worth in self.observation["sinks"].items()}

    @property
    def most_shed_per_second(self) -> float | None:
        """What error budgets allow, events/s; None where none limits it."""
        return most_shed_per_second(self.parameters, self.observation)

    @cached_property
    def outside(self) -> dict[str, Floats]:
        """The arrivals as the application's vectors."""
        return self.application.vectors(self.arrivals)

    def offered_per_second(self, operator: str, emitted: Floats) -> float:
        """All events/s that come to an operator: from outside, and what is emitted for its patterns."""
        places = [self.application.places[pattern.name] for pattern in self.application.at(operator)]
        inside = emitted[np.unique(np.concatenate(places))]
        return float(sum(self.arrivals.get(operator, {}).values()) + inside.sum())

    def budget(self, offered_per_second: float) -> float:
        """Utilisation an operator may reach."""
        given = self.parameters["utilisation_budget"]
        if given is not None:
            return float(given)
        return self.waiting.utilisation_budget(self.parameters["latency_bound_seconds"], offered_per_second)


def most_shed_per_second(parameters: Values, observation: Values) -> float | None:
    """What error budgets allow, events/s; None where none limits it."""
    return allowed_per_second(observation.get("budgets", ()), "shed", parameters["budget_seconds"])


def application(parameters: Values, observation: Values, where: str) -> ArrangedPatterns:
    """The observed patterns, arranged. Raises `BadInput` naming the field."""
    measured = parameters["needs"] == "measured"
    rows = []
    for at, row in enumerate(observation["patterns"]):
        needs = needs_of(row["expression"], f"{where}.patterns[{at}].expression")
        if measured and row["takes"]:
            # What it takes per match says already how many matches come of it.
            needs, row = Needs(row["takes"]), {**row, "correction": 1.0}
        if not needs.symbols:
            raise BadInput(
                f"{where}.patterns[{at}].expression", "needs no event at all; name one it must have"
            )
        given = {key: value for key, value in row.items() if key not in ("expression", "takes")}
        rows.append(OperatorPattern(needs=needs, **given))
    return arrange(rows, f"{where}.patterns")


def check_names(application: ArrangedPatterns, observation: Values, where: str) -> None:
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


def check_rates(application: ArrangedPatterns, observation: Values, where: str) -> None:
    """A type is made inside or comes from outside: with two rates nobody knows which is true."""
    for operator, types in observation["arrivals"].items():
        taken = {symbol for pattern in application.at(operator) for symbol in pattern.symbols}
        for symbol in (each for each in types if each in taken and each in application.emitters):
            makers = ", ".join(pattern.name for pattern in application.emitters[symbol])
            raise BadInput(
                f"{where}.arrivals.{operator}.{symbol}",
                f"contradicts {makers}, which emits {symbol}: give rates of types from outside only",
            )
