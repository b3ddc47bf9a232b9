"""Inputs of the shedding law: its parameters, an observation, and the application that they describe.

A table may shed no more than an error budget allows: then all its shares are reduced by one factor. Shed events are
counted as the pipeline counts them: in events/s, once for each pattern that loses them. The factor is found by
bisection, not by division: if less is shed upstream, more arrives downstream, so the shed rate is not proportional to
the factor. The resulting tables always keep to the allowed rate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import msgspec
import numpy as np

from common.errors import BadInput
from common.parameter import value
from controllers.patterns.application import ArrangedPatterns, Floats, OperatorPattern, arrange
from controllers.patterns.selectivity import Needs, needs_of
from controllers.shedding.budgets import BUDGET_SECONDS, Budgets, BudgetSeconds, compute_allowed_per_second
from controllers.shedding.latency_bound import WaitingTimeModel

ALL_SINKS = "sinks"
HALVINGS = 30
Shares = Mapping[str, Mapping[str, float]]
Takes = dict[str, Annotated[float, value("events", "Events of the type.", 1e-9, 1e15)]]
Rate = Annotated[float, value("events/s", "Arrival rate of the type.", maximum=1e15)]


class SheddingParameters(msgspec.Struct, frozen=True, kw_only=True):
    perspective: Annotated[
        Literal["global", "local"],
        value("choice", "global: maximize the output at the sinks. local: maximize the output of the bottleneck."),
    ] = "global"
    utilisation_budget: Annotated[
        float | None,
        value(
            "s of work per s", "Maximum utilization of the bottleneck. Default: follows from the latency bound.", 0, 1
        ),
    ] = None
    latency_bound_seconds: Annotated[
        float, value("s", "Maximum mean time of an event in its operator.", 1e-6, 86_400)
    ] = 0.05
    service_cv2: Annotated[
        float,
        value(
            "variance over mean²",
            "Variability of the service times, shed events included, or of the fixed cost of a batch. A measured "
            "value in the observation replaces it.",
            0,
            1e6,
        ),
    ] = 1.0
    never_shed: Annotated[
        dict[str, Annotated[bool, value("flag", "True: protects the type.")]],
        value("type", "Types that are never shed, even if Weir then has to shed more of other types."),
    ] = {}
    needs: Annotated[
        Literal["expression", "measured"],
        value(
            "choice",
            "expression: events that a match needs; all others are surplus. measured: arrivals per match, where an "
            "event serves only its own key, and the surplus that was measured within the keys.",
        ),
    ] = "expression"
    sink_weights: Annotated[
        dict[str, Annotated[float, value("weight", "Weight of an event.")]],
        value("weight", "Type → weight of an event at its sinks; replaces the observed weight."),
    ] = {}
    spare: Annotated[
        Literal["drop", "admit"],
        value(
            "choice",
            "drop: events that no match needs are dropped. admit: these events pass as far as the budget allows.",
        ),
    ] = "drop"
    deviation_processing: Annotated[
        float, value("share", "Change of the predicted time or the processing times that requires a new table.", 0, 10)
    ] = 0.1
    deviation_rates: Annotated[float, value("share", "Change of the rates that requires a new table.", 0, 10)] = 0.05
    budget_seconds: BudgetSeconds = BUDGET_SECONDS


class ReducedTakes(msgspec.Struct, frozen=True, kw_only=True):
    takes: Annotated[Takes, value("events per match", "Type → arrivals per match.")]


class PatternRow(msgspec.Struct, frozen=True, kw_only=True):
    operator: Annotated[str, value("name", "Operator that runs the pattern.")]
    name: Annotated[str, value("name", "Name of the pattern.")]
    expression: Annotated[str, value("pattern", "SEQ, AND, OR, or a symbol, nested.")]
    emits: Annotated[str, value("type", "Type that a match emits.")]
    seconds: Annotated[float, value("s", "Processing time of an event.", maximum=86_400)]
    outputs: Annotated[float, value("events per match", "Number of events that a match emits.", 0, 1e9)] = 1.0
    correction: Annotated[
        float, value("share", "Measured output divided by the output that the selectivity predicts.", 0, 1e3)
    ] = 1.0
    limit: Annotated[float | None, value("events/s", "Maximum output. Default: no limit.", 0, 1e15)] = None
    takes: Annotated[Takes, value("events per match", "Type → measured arrivals per match; empty if not known.")] = {}
    reduced: Annotated[
        tuple[ReducedTakes, ...], value("rows", "The same without surplus: fewer events per match, and fewer matches.")
    ] = ()


class SheddingObservation(msgspec.Struct, frozen=True, kw_only=True):
    bottleneck: Annotated[
        str | None, value("operator", "Operator that sheds. Default: every operator that needs it.")
    ] = None
    arrivals: Annotated[
        dict[str, Annotated[dict[str, Rate], value("events/s", "Arrival rate of each type.")]],
        value("events/s", "operator → type → rate, for arrivals from outside."),
    ]
    patterns: Annotated[tuple[PatternRow, ...], value("rows", "Patterns of the application.")]
    sinks: Annotated[
        dict[str, Annotated[float, value("weight", "Weight of an event.")]],
        value("weight", "Types that sinks receive, and the weight of an event."),
    ]
    service_cv2: Annotated[
        float | None,
        value(
            "variance over mean²",
            "Measured variability at the bottleneck; of the fixed cost if it works in batches.",
            0,
            1e6,
        ),
    ] = None
    batch_seconds: Annotated[
        float | None,
        value("s", "Fixed cost of a batch, for operators that work in batches. Default: event by event.", 0, 86_400),
    ] = None
    rows_per_second: Annotated[
        float | None,
        value("rows/s", "Rows that would be due in batches. Default: the rows of a batch are not limited.", 0, 1e15),
    ] = None
    latency_seconds: Annotated[float | None, value("s", "Current p95 latency of events; only recorded.")] = None
    elsewhere_seconds: Annotated[
        float, value("s", "Part of the bound that is spent outside the operators.", 0, 86_400)
    ] = 0.0
    permitted: Annotated[bool, value("flag", "False: other remedies come first, and nothing is shed.")] = True
    protected: Annotated[
        dict[str, Annotated[bool, value("flag", "True: protects the type.")]],
        value("type", "Types that are not shed now, because they come from queues that are not overloaded."),
    ] = {}
    budgets: Budgets = ()


@dataclass(frozen=True)
class SheddingInputs:
    """Parameters and an observation, and the application that they describe."""

    application: ArrangedPatterns
    parameters: SheddingParameters
    observation: SheddingObservation

    @classmethod
    def arrange(
        cls, parameters: SheddingParameters, observation: SheddingObservation, where: str = "observation"
    ) -> "SheddingInputs":
        """Arrange the observed patterns. Raise `BadInput` naming the field."""
        rows = []
        for at, row in enumerate(observation.patterns):
            needs, correction = needs_of(row.expression, f"{where}.patterns[{at}].expression"), row.correction
            if parameters.needs == "measured" and row.takes:
                # The events taken per match already determine the number of matches. The keys are divided among the
                # alternatives, because each alternative keeps all events of one type.
                ways = tuple(Needs(takes) for takes in (row.takes, *(each.takes for each in row.reduced)))
                needs, correction = (Needs({}, (ways,)) if row.reduced else ways[0]), 1.0
            if not needs.symbols:
                raise BadInput(f"{where}.patterns[{at}].expression", "must require at least one event")
            rows.append(
                OperatorPattern(
                    row.name, row.operator, needs, row.emits, row.seconds, row.outputs, correction, row.limit
                )
            )
        return cls(arrange(rows, f"{where}.patterns"), parameters, observation)

    def check(self, where: str) -> None:
        """Raise `BadInput` if patterns, rates, and sinks contradict each other."""
        bottleneck, emitted = self.observation.bottleneck, self.application.emitters
        if bottleneck is not None and bottleneck not in self.application.operators:
            known = ", ".join(self.application.operators)
            raise BadInput(f"{where}.bottleneck", f"{bottleneck} has no patterns; operators with patterns: {known}")
        if ALL_SINKS in emitted:
            raise BadInput(f"{where}.patterns", f"no type may be named {ALL_SINKS}, which is reserved for the sum")
        for sink in self.observation.sinks:
            if sink not in emitted:
                raise BadInput(f"{where}.sinks.{sink}", f"is not emitted by any pattern; emitted: {', '.join(emitted)}")
        # The rate of an emitted type and a rate from outside may differ.
        for operator, types in self.observation.arrivals.items():
            taken = {symbol for pattern in self.application.get_patterns(operator) for symbol in pattern.symbols}
            for symbol in (name for name in types if name in taken and name in emitted):
                makers = ", ".join(pattern.name for pattern in emitted[symbol])
                raise BadInput(
                    f"{where}.arrivals.{operator}.{symbol}",
                    f"contradicts {makers}, which emits {symbol}; give rates only for types that arrive from outside",
                )

    @property
    def protected(self) -> frozenset[str]:
        """Return the types that are not shed, whatever the symbols in brackets after a type's name."""
        declared = (*self.parameters.never_shed.items(), *self.observation.protected.items())
        kept = {name for name, is_kept in declared if is_kept}
        symbols = {symbol for pattern in self.application.patterns for symbol in pattern.symbols}
        return frozenset(kept | {symbol for symbol in symbols if symbol.partition("[")[0] in kept})

    @property
    def waiting(self) -> WaitingTimeModel:
        """Return the model of the time that events spend in an operator."""
        observation, measured = self.observation, self.observation.service_cv2
        variability = self.parameters.service_cv2 if measured is None else measured
        # Batches whose rows are limited have no queue that varies with the work of single events.
        operators = () if observation.rows_per_second else observation.arrivals
        longest = max(map(self._compute_event_seconds, operators), default=0.0)
        return WaitingTimeModel(variability, observation.batch_seconds, observation.elsewhere_seconds, longest)

    def _compute_event_seconds(self, operator: str) -> float:
        """Return the mean time that the operator's patterns take for an event from outside."""
        rates, patterns = self.observation.arrivals[operator], self.application.get_patterns(operator)
        work = sum(pattern.seconds * sum(rates.get(symbol, 0.0) for symbol in pattern.symbols) for pattern in patterns)
        return work / max(sum(rates.values()), 1e-9)

    @property
    def sinks(self) -> dict[str, float]:
        """Return type → worth of an event at its sinks."""
        weights = self.parameters.sink_weights
        return {name: weights.get(name, worth) for name, worth in self.observation.sinks.items()}

    @property
    def most_shed_per_second(self) -> float | None:
        return compute_max_shed_rate(self.parameters, self.observation)

    @cached_property
    def outside(self) -> dict[str, Floats]:
        """Return the arrivals as the application's vectors."""
        return self.application.build_arrival_vectors(self.observation.arrivals)

    def compute_offered_per_second(self, operator: str, emitted: Floats) -> float:
        """Return the events/s that arrive at an operator, from outside and from patterns."""
        places = [self.application.places[pattern.name] for pattern in self.application.get_patterns(operator)]
        inside = emitted[np.unique(np.concatenate(places))]
        return float(sum(self.observation.arrivals.get(operator, {}).values()) + inside.sum())

    def compute_budget(self, offered_per_second: float) -> float:
        """Return the utilization that an operator may reach."""
        if self.parameters.utilisation_budget is not None:
            return self.parameters.utilisation_budget
        return self.waiting.compute_utilisation_budget(self.parameters.latency_bound_seconds, offered_per_second)

    def compute_batch_rows(self, utilisation: float) -> float | None:
        """Return the maximum rows of a batch under a table with this utilization; None if they are not limited."""
        rows, parameters = self.observation.rows_per_second, self.parameters
        work = self.waiting.compute_batch_work(parameters.latency_bound_seconds)
        if not rows or work is None or utilisation <= 0 or parameters.utilisation_budget is not None:
            return None
        return rows * work / utilisation

    def compute_flows(self, shed: Shares) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """Return the offered and the admitted events/s of each pattern's types under a table of shares."""
        application, made = self.application, self.application.compute_emissions(self.outside, {}, of=[])
        offered, admitted = dict[str, Floats](), dict[str, Floats]()
        for pattern in application.patterns:
            dropped, rates = shed.get(pattern.name, {}), application.compute_offered(pattern, self.outside, made)
            offered[pattern.name] = rates
            admitted[pattern.name] = rates * [1 - dropped.get(symbol, 0.0) for symbol in pattern.symbols]
            made[application.index[pattern.emits]] += pattern.compute_emission(admitted[pattern.name])
        return offered, admitted

    def compute_shed_rate(self, shed: Shares) -> float:
        """Return the events/s that patterns lose under a table, counted once for each pattern."""
        offered, admitted = self.compute_flows(shed)
        return float(sum((offered[name] - admitted[name]).sum() for name in offered))

    def cut(self, shed: Shares, most_per_second: float) -> Shares:
        """Return the table, or the largest fraction of it that sheds no more than this."""
        if self.compute_shed_rate(shed) <= most_per_second:
            return shed

        def scale(factor: float) -> Shares:
            return {name: {symbol: factor * share for symbol, share in types.items()} for name, types in shed.items()}

        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            if self.compute_shed_rate(scale(middle)) <= most_per_second:
                low = middle
            else:
                high = middle
        return scale(low)


def compute_max_shed_rate(parameters: SheddingParameters, observation: SheddingObservation) -> float | None:
    """Return the events/s that error budgets allow to shed; None if no budget limits it."""
    return compute_allowed_per_second(observation.budgets, "shed", parameters.budget_seconds)
