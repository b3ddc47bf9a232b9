"""Inputs of the shedding law: its parameters, an observation, and the application that they describe.

Tables that shed no more than an error budget allows: all shares are reduced by one factor.

Shed events are counted as the pipeline counts them: in events/s, once for each pattern that loses them. The factor is
found by bisection, not by division: if less is shed upstream, more arrives downstream, so the shed rate is not
proportional to the factor. The resulting tables always keep to the allowed rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.errors import BadInput
from common.parameter import Parameter
from controllers.framework.law import Values
from controllers.patterns.application import ArrangedPatterns, Floats, OperatorPattern, arrange
from controllers.patterns.selectivity import Needs, needs_of
from controllers.shedding.budgets import BUDGET_SECONDS, BUDGETS, compute_allowed_per_second
from controllers.shedding.latency_bound import WaitingTimeModel

ALL_SINKS = "sinks"

PARAMETERS = (
    Parameter(
        "perspective",
        "choice",
        "global: maximize the output at the sinks. local: maximize the output of the bottleneck.",
        "global",
        kind="choice",
        choices=("global", "local"),
    ),
    Parameter(
        "utilisation_budget",
        "s of work per s",
        "Maximum utilization of the bottleneck. Default: follows from the latency bound.",
        None,
        0,
        1,
    ),
    Parameter("latency_bound_seconds", "s", "Maximum mean time of an event in its operator.", 0.05, 1e-6, 86_400),
    Parameter(
        "service_cv2",
        "variance over mean²",
        "Variability of the service times, shed events included, or of the fixed cost of a batch. A measured "
        "value in the observation replaces it.",
        1.0,
        0,
        1e6,
    ),
    Parameter(
        "never_shed",
        "type",
        "Types that are never shed, even if Weir then has to shed more of other types.",
        {},
        kind="map",
        items=(Parameter("protected", "flag", "True: protects the type.", True, kind="flag"),),
    ),
    Parameter(
        "needs",
        "choice",
        "expression: events that a match needs; the surplus is dropped first. measured: arrivals per match, "
        "where an event serves only its own key and nothing is surplus.",
        "expression",
        kind="choice",
        choices=("expression", "measured"),
    ),
    Parameter(
        "sink_weights",
        "weight",
        "Type → weight of an event at its sinks; replaces the observed weight.",
        {},
        kind="map",
        items=(Parameter("weight", "weight", "Weight of an event.", 1.0, 0, 1e12),),
    ),
    Parameter(
        "spare",
        "choice",
        "drop: events that no match needs are dropped. admit: these events pass as far as the budget allows.",
        "drop",
        kind="choice",
        choices=("drop", "admit"),
    ),
    Parameter(
        "deviation_processing",
        "share",
        "Change of the predicted time or the processing times that requires a new table.",
        0.1,
        0,
        10,
    ),
    Parameter("deviation_rates", "share", "Change of the rates that requires a new table.", 0.05, 0, 10),
    BUDGET_SECONDS,
)
RATE = Parameter("rate", "events/s", "Arrival rate of the type.", maximum=1e15)
PATTERN = (
    Parameter("operator", "name", "Operator that runs the pattern.", kind="text", required=True),
    Parameter("name", "name", "Name of the pattern.", kind="text", required=True),
    Parameter("expression", "pattern", "SEQ, AND, OR, or a symbol, nested.", kind="text", required=True),
    Parameter("emits", "type", "Type that a match emits.", kind="text", required=True),
    Parameter("seconds", "s", "Processing time of an event.", maximum=86_400, required=True),
    Parameter("outputs", "events per match", "Number of events that a match emits.", 1.0, 0, 1e9),
    Parameter(
        "correction", "share", "Measured output divided by the output that the selectivity predicts.", 1.0, 0, 1e3
    ),
    Parameter("limit", "events/s", "Maximum output. Default: no limit.", None, 0, 1e15),
    Parameter(
        "takes",
        "events per match",
        "Type → measured arrivals per match; empty if not known.",
        {},
        kind="map",
        items=(Parameter("events", "events", "Events of the type.", None, 1e-9, 1e15),),
    ),
)
OBSERVATION = (
    Parameter(
        "bottleneck", "operator", "Operator that sheds. Default: every operator that needs it.", None, kind="text"
    ),
    Parameter(
        "arrivals",
        "events/s",
        "operator → type → rate, for arrivals from outside.",
        kind="map",
        required=True,
        items=(Parameter("types", "events/s", "Arrival rate of each type.", kind="map", items=(RATE,)),),
    ),
    Parameter("patterns", "rows", "Patterns of the application.", kind="rows", required=True, items=PATTERN),
    Parameter(
        "sinks",
        "weight",
        "Types that sinks receive, and the weight of an event.",
        kind="map",
        required=True,
        items=(Parameter("weight", "weight", "Weight of an event.", maximum=1e12),),
    ),
    Parameter(
        "service_cv2",
        "variance over mean²",
        "Measured variability at the bottleneck; of the fixed cost if it works in batches.",
        None,
        0,
        1e6,
    ),
    Parameter(
        "batch_seconds",
        "s",
        "Fixed cost of a batch, for operators that work in batches. Default: event by event.",
        None,
        0,
        86_400,
    ),
    Parameter("latency_seconds", "s", "Current p95 latency of events; only recorded.", None, 0, 1e12),
    Parameter("elsewhere_seconds", "s", "Part of the bound that is spent outside the operators.", 0.0, 0, 86_400),
    Parameter("permitted", "flag", "False: other remedies come first, and nothing is shed.", True, kind="flag"),
    BUDGETS,
)


@dataclass(frozen=True)
class SheddingInputs:
    application: ArrangedPatterns
    parameters: Values
    observation: Values

    @property
    def arrivals(self) -> Mapping[str, Mapping[str, float]]:
        """Return operator → type → events/s from outside."""
        arrivals: Mapping[str, Mapping[str, float]] = self.observation["arrivals"]
        return arrivals

    @property
    def protected(self) -> frozenset[str]:
        return frozenset(name for name, kept in self.parameters["never_shed"].items() if kept)

    @property
    def service_cv2(self) -> float:
        measured = self.observation["service_cv2"]
        return float(self.parameters["service_cv2"] if measured is None else measured)

    @property
    def waiting(self) -> WaitingTimeModel:
        observation = self.observation
        return WaitingTimeModel(self.service_cv2, observation["batch_seconds"], observation["elsewhere_seconds"])

    @property
    def sinks(self) -> Mapping[str, float]:
        weights = self.parameters["sink_weights"]
        return {name: float(weights.get(name, worth)) for name, worth in self.observation["sinks"].items()}

    @property
    def most_shed_per_second(self) -> float | None:
        """Return the events/s that error budgets allow to shed; None if no budget limits it."""
        return compute_max_shed_rate(self.parameters, self.observation)

    @cached_property
    def outside(self) -> dict[str, Floats]:
        """Return the arrivals as the application's vectors."""
        return self.application.build_arrival_vectors(self.arrivals)

    def compute_offered_per_second(self, operator: str, emitted: Floats) -> float:
        """Return the events/s that arrive at an operator, from outside and from patterns."""
        places = [self.application.places[pattern.name] for pattern in self.application.get_patterns(operator)]
        inside = emitted[np.unique(np.concatenate(places))]
        return float(sum(self.arrivals.get(operator, {}).values()) + inside.sum())

    def compute_budget(self, offered_per_second: float) -> float:
        given = self.parameters["utilisation_budget"]
        if given is not None:
            return float(given)
        return self.waiting.compute_utilisation_budget(self.parameters["latency_bound_seconds"], offered_per_second)


def compute_max_shed_rate(parameters: Values, observation: Values) -> float | None:
    """Return the events/s that error budgets allow to shed; None if no budget limits it."""
    return compute_allowed_per_second(observation.get("budgets", ()), "shed", parameters["budget_seconds"])


def build_application(parameters: Values, observation: Values, where: str) -> ArrangedPatterns:
    """Return the observed patterns, arranged. Raise `BadInput` naming the field."""
    measured = parameters["needs"] == "measured"
    rows = []
    for at, row in enumerate(observation["patterns"]):
        needs = needs_of(row["expression"], f"{where}.patterns[{at}].expression")
        if measured and row["takes"]:
            # The events taken per match already determine the number of matches.
            needs, row = Needs(row["takes"]), {**row, "correction": 1.0}
        if not needs.symbols:
            raise BadInput(f"{where}.patterns[{at}].expression", "must require at least one event")
        given = {key: value for key, value in row.items() if key not in ("expression", "takes")}
        rows.append(OperatorPattern(needs=needs, **given))
    return arrange(rows, f"{where}.patterns")


def check_names(application: ArrangedPatterns, observation: Values, where: str) -> None:
    bottleneck, emitted = observation["bottleneck"], application.emitters
    if bottleneck is not None and bottleneck not in application.operators:
        known = ", ".join(application.operators)
        raise BadInput(f"{where}.bottleneck", f"{bottleneck} has no patterns; operators with patterns: {known}")
    if ALL_SINKS in emitted:
        raise BadInput(f"{where}.patterns", f"no type may be named {ALL_SINKS}, which is reserved for the sum")
    for sink in observation["sinks"]:
        if sink not in emitted:
            raise BadInput(f"{where}.sinks.{sink}", f"is not emitted by any pattern; emitted: {', '.join(emitted)}")


def check_rates(application: ArrangedPatterns, observation: Values, where: str) -> None:
    """Raise `BadInput` if a type is emitted and also has a rate from outside, because both may differ."""
    for operator, types in observation["arrivals"].items():
        taken = {symbol for pattern in application.get_patterns(operator) for symbol in pattern.symbols}
        for symbol in (
            event_type for event_type in types if event_type in taken and event_type in application.emitters
        ):
            makers = ", ".join(pattern.name for pattern in application.emitters[symbol])
            raise BadInput(
                f"{where}.arrivals.{operator}.{symbol}",
                f"contradicts {makers}, which emits {symbol}; give rates only for types that arrive from outside",
            )


HALVINGS = 30
Shares = Mapping[str, Mapping[str, float]]


def compute_flows(inputs: SheddingInputs, shed: Shares) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the offered and the admitted events/s of each pattern's types under a table of shares."""
    application, made = inputs.application, inputs.application.compute_emissions(inputs.outside, {}, of=[])
    offered, admitted = dict[str, Floats](), dict[str, Floats]()
    for pattern in application.patterns:
        dropped, rates = (shed.get(pattern.name, {}), application.compute_offered(pattern, inputs.outside, made))
        offered[pattern.name] = rates
        admitted[pattern.name] = rates * [1 - dropped.get(symbol, 0.0) for symbol in pattern.symbols]
        made[application.index[pattern.emits]] += pattern.compute_emission(admitted[pattern.name])
    return offered, admitted


def shed_per_second(inputs: SheddingInputs, shed: Shares) -> float:
    """Return the events/s that patterns lose under a table, counted once for each pattern."""
    offered, admitted = compute_flows(inputs, shed)
    return float(sum((offered[name] - admitted[name]).sum() for name in offered))


def cut(inputs: SheddingInputs, shed: Shares, most_per_second: float) -> Shares:
    if shed_per_second(inputs, shed) <= most_per_second:
        return shed
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if shed_per_second(inputs, _scale_shares(shed, middle)) <= most_per_second:
            low = middle
        else:
            high = middle
    return _scale_shares(shed, low)


def _scale_shares(shed: Shares, factor: float) -> dict[str, dict[str, float]]:
    return {pattern: {symbol: factor * share for symbol, share in types.items()} for pattern, types in shed.items()}
