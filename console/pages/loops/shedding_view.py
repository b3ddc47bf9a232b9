"""Additional parts of a shedding loop's page.

They show the table, its cost, the reason for it, and the effect of another bound or other weights.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import BadInput
from common.parameter import Parameter
from console.input.form_values import is_untouched, parse_number
from console.pages.queues.queues import LadderSteps, build_ladder
from controllers import catalog
from controllers.framework.decision import Decision
from controllers.framework.law import decide_next, start_state
from controllers.shedding.inputs import ALL_SINKS
from controllers.shedding.law import LAW, Shedding
from workers.control.ledger import ledger
from workers.documents.pipeline import ApplicationStatus, PatternStatus, RecallEstimate
from workers.models import Loop

BOUND, WEIGHT = "latency_bound_seconds", "weight-"
FINE_SECONDS, COARSE_SECONDS = 0.01, 1.0  # for a bound: the step that its price refers to
DIGITS = 4
WHOLE, NOTHING = 0.005, 0.995  # shed shares that count as nothing, and as all


@dataclass(frozen=True)
class Cell:
    """A cell for one pattern and type.

    share: dropped now; would: dropped with the requested values; None: the pattern takes none.
    """

    type: str
    share: float | None
    would: float | None


@dataclass(frozen=True, kw_only=True)
class PatternShares:
    """Shares that a pattern loses: a cell for each type that the application knows."""

    name: str
    operator: str
    sheddable: bool
    cells: list[Cell]


@dataclass(frozen=True, kw_only=True)
class ShedOutput:
    """Complex events/s of a type: expected from the table, measured, and expected from the requested table.

    weight: its value at the sinks; recall: the share of it that is found.
    """

    type: str
    weight: float | None
    expected: float | None
    measured: float
    would: float | None
    recall: RecallEstimate | None


@dataclass(frozen=True, kw_only=True)
class ShedTotal:
    """The totals of all sinks, weighted by value. recall: a share."""

    measured: float | None
    expected: float | None
    would: float | None
    recall: float | None


@dataclass(frozen=True)
class AskedNumber:
    """A number of the form: in force, and requested."""

    effective: float
    would: float


@dataclass(frozen=True, kw_only=True)
class ShownShedding:
    """The table in force, its cost, and its reason; and the table for the requested values.

    because, would_because: in sentences; changes: the requested parameters.
    """

    types: list[str]
    patterns: list[PatternShares]
    outputs: list[ShedOutput]
    total: ShedTotal
    because: list[str]
    would_because: list[str]
    changes: Mapping[str, Any]
    bound: AskedNumber
    weights: Mapping[str, AskedNumber]
    shed_share: float | None
    shed_events: int | None
    application: str | None
    ladders: list[LadderSteps | None]


def shed_view(
    loop: Loop, effective: Mapping[str, Any], row: ApplicationStatus | None, asked: Mapping[str, str]
) -> ShownShedding:
    """Build the view of a shedding loop.

    row: the application in the snapshot, or None. asked: requested values, as the form sends them. Raises `BadInput`
    that names the form's field.
    """
    law, observation = LAW, load_observation(loop)
    changes = read_changed_parameters(asked, effective, observation)
    made = _repeat_decision(law, (loop.state or {}).get("law") or {})
    would = (
        (_compute_decision(law, {**effective, **changes}, {**observation, "permitted": True}) if observation else None)
        if changes
        else None
    )
    patterns = row.patterns if row else {}
    sinks = (observation or {}).get("sinks") or {}
    weights = {name: effective["sink_weights"].get(name, worth) for name, worth in sinks.items()}
    return ShownShedding(
        types=sorted({name for pattern in patterns.values() for name in _list_event_types(pattern)}),
        patterns=[_build_heat_row(name, row, would) for name in patterns] if row else [],
        outputs=[*_iterate_outputs(patterns, made, would, weights)],
        total=_total(patterns, weights, made, would),
        because=[*_explain_decision(made, effective)],
        would_because=[*_explain_decision(would, {**effective, **changes})],
        changes=changes,
        bound=AskedNumber(effective[BOUND], changes.get(BOUND, effective[BOUND])),
        weights={
            name: AskedNumber(worth, changes.get("sink_weights", weights).get(name, worth))
            for name, worth in weights.items()
        },
        shed_share=row.shed_share if row else None,
        shed_events=row.shed_events if row else None,
        application=loop.target.get("application"),
        ladders=[build_ladder(queue) for queue in (row.queues if row else ())],
    )


def load_observation(loop: Loop) -> dict[str, Any] | None:
    """Return the loop's last observation in the law's form; None until it has observed something to shed."""
    entry = ledger.find_last_entry(loop)
    observation = dict(entry.observation or {}) if entry else {}
    if not observation.get("patterns"):
        return None
    return {key: value for key, value in observation.items() if key not in ledger.ABOUT_KEYS}


def _repeat_decision(law: Shedding, state: Mapping[str, Any]) -> Decision | None:
    """Repeat the decision that made the table in force; return None if there is none."""
    solved = state.get("solved")
    if not solved:
        return None
    return _compute_decision(law, solved["parameters"], solved["observation"])


def _compute_decision(law: Shedding, parameters: Mapping[str, Any], observation: Mapping[str, Any]) -> Decision | None:
    try:
        given = catalog.read_parameters(law, _drop_nulls(parameters))
        seen = catalog.read_observation(law, _drop_nulls(observation))
        catalog.check_observation(law, given, seen)
    except BadInput:  # recorded by a version with other fields
        return None
    _, decision = decide_next(law, given, start_state(law, given), seen)
    return decision if isinstance(decision, Decision) else None


def _drop_nulls(document: object) -> Any:
    """Return the document without null values, which mean "not given"."""
    if isinstance(document, Mapping):
        return {key: _drop_nulls(value) for key, value in document.items() if value is not None}
    return [_drop_nulls(item) for item in document] if isinstance(document, list) else document


def _list_event_types(pattern: PatternStatus) -> list[str]:
    return sorted({*pattern.types, *pattern.shed_per_second})


def _build_heat_row(name: str, row: ApplicationStatus, would: Decision | None) -> PatternShares:
    """Return one row of the heat map."""
    pattern, now = row.patterns[name], row.controls.shed.get(name, {})
    then = ((would.action or {}).get("shed", {}) if would else {}).get(name)
    types = {event_type for other in row.patterns.values() for event_type in _list_event_types(other)}
    own = set(_list_event_types(pattern))
    cells = [
        Cell(
            event_type,
            round(now.get(event_type, 0.0), DIGITS) if event_type in own else None,
            round(then.get(event_type, 0.0), DIGITS) if then is not None and event_type in own else None,
        )
        for event_type in sorted(types)
    ]
    return PatternShares(name=name, operator=pattern.operator, sheddable=pattern.sheddable, cells=cells)


def _iterate_outputs(
    patterns: Mapping[str, PatternStatus], made: Decision | None, would: Decision | None, weights: Mapping[str, float]
) -> Iterator[ShedOutput]:
    """Return the outputs of each emitted type."""
    for emitted in sorted({pattern.emits for pattern in patterns.values()}):
        ours = [pattern for pattern in patterns.values() if pattern.emits == emitted]
        yield ShedOutput(
            type=emitted,
            weight=weights.get(emitted),
            expected=_describe_expectation(made, emitted),
            measured=sum(pattern.out_per_second for pattern in ours),
            would=_describe_expectation(would, emitted),
            recall=ours[0].recall if len(ours) == 1 else None,
        )


def _describe_expectation(decision: Decision | None, emitted: str) -> float | None:
    expected: float | None = ((decision.action or {}).get("expected", {}) if decision else {}).get(emitted)
    return expected


def _total(
    patterns: Mapping[str, PatternStatus], weights: Mapping[str, float], made: Decision | None, would: Decision | None
) -> ShedTotal:
    """Return the weighted output of all sinks and its recall: measured output over potential output."""
    taken = [pattern for pattern in patterns.values() if weights.get(pattern.emits)]
    measured = sum(weights[pattern.emits] * pattern.out_per_second for pattern in taken)
    recall, estimates = None, [pattern.recall for pattern in taken if pattern.recall]
    if taken and len(estimates) == len(taken):
        whole = sum(
            weights[pattern.emits] * pattern.out_per_second / max(0.01, estimate.estimate)
            for pattern, estimate in zip(taken, estimates, strict=True)
        )
        recall = measured / whole if whole else None
    return ShedTotal(
        measured=measured if weights else None,
        expected=_describe_expectation(made, ALL_SINKS),
        would=_describe_expectation(would, ALL_SINKS),
        recall=recall,
    )


def _explain_decision(decision: Decision | None, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Return which budgets bind, who pays for them, and the benefit of a little more time."""
    if decision is None:
        return
    if decision.action is None:
        yield decision.reason
        return
    for operator, term in decision.terms.items():
        if isinstance(term, Mapping):
            yield from _describe_binding_budget(operator, term, parameters)
    told = {name: _describe_left(types) for name, types in decision.action["shed"].items()}
    for words in ("fully kept", "fully dropped"):
        if names := [name for name, rest in told.items() if rest == words]:
            yield f"{_format_names(names)} {'is' if len(names) == 1 else 'are'} {words}."
    for name, rest in told.items():
        if rest not in ("fully kept", "fully dropped"):
            yield f"{name} is {rest} and gets the remaining capacity."


def _describe_binding_budget(operator: str, term: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[str]:
    offered, budget = f"{100 * term['work_offered']:.0f} %", f"{100 * term['budget']:.0f} %"
    if term["work_offered"] <= term["budget"]:
        yield f"The offered load of {operator} is {offered}, within its limit of {budget}."
        return
    yield (
        f"{operator} is the bottleneck: its offered load is {offered}, and its limit is {budget} to "
        f"process events within {parameters[BOUND]:g} s."
    )
    worth = term.get("worth_per_second") or 0.0
    step = COARSE_SECONDS if parameters[BOUND] >= COARSE_SECONDS else FINE_SECONDS
    if worth * step >= 1e-4:
        length = "1 s" if step == COARSE_SECONDS else "10 ms"
        yield f"A latency bound {length} longer would restore {worth * step:.2g} alerts/s."
    price = term.get("worth_per_utilisation") or 0.0
    if price >= 1e-4:
        yield f"1 % more capacity for {operator} would restore {price / 100:.2g} alerts/s."


def _describe_left(types: Mapping[str, float]) -> str:
    most = max(types.values(), default=0.0)
    if most <= WHOLE:
        return "fully kept"
    return "fully dropped" if most >= NOTHING else f"reduced to {100 * (1 - most):.0f} %"


def _format_names(names: list[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def read_changed_parameters(
    asked: Mapping[str, str], effective: Mapping[str, Any], observation: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the law's parameters that the form changes. Raises `BadInput` by field."""
    parameters = {parameter.name: parameter for parameter in LAW.parameters}
    changes: dict[str, Any] = {}
    if (text := asked.get(BOUND, "").strip()) and not is_untouched(asked, BOUND):
        bound = _validate_parameter(parameters[BOUND], parse_number(text, BOUND), BOUND)
        if bound != effective[BOUND]:
            changes[BOUND] = bound
    sinks = (observation or {}).get("sinks") or {}
    weights = dict(effective["sink_weights"])
    for name, worth in sinks.items():
        field = WEIGHT + name
        if (text := asked.get(field, "").strip()) and not is_untouched(asked, field):
            value = float(parse_number(text, field))
            if value != weights.get(name, worth):
                weights[name] = value
                _validate_parameter(parameters["sink_weights"], weights, field)
    if weights != effective["sink_weights"]:
        changes["sink_weights"] = weights
    return changes


def _validate_parameter(parameter: Parameter, value: object, field: str) -> Any:
    """Return the value as the parameter takes it. Raises `BadInput` that names the form's field."""
    try:
        return parameter.check(value, "form")
    except BadInput as error:
        raise BadInput(field, error.message) from None
