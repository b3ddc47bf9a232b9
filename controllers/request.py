"""Decisions on a document: what `manage.py decide` does, and the replay of a ledger entry.

The document is {"law", "parameters", "state", "observations": [{...}]}. An exported ledger entry has one "observation"
instead; the "guard" that it passed, {"settings", "state", "now_seconds", "age_seconds", "unfit", "idle", "unit_cost"};
and, if a person had taken over, "manual": {actuator: value}.
"""

from collections.abc import Mapping
from typing import Any

from common.checks import refuse_unknown
from common.errors import BadInput
from common.parameter import Parameter, read_object, read_values
from controllers import catalog
from controllers.framework import guard
from controllers.framework.decision import Json
from controllers.framework.guard import GuardedDecision, ObservationQuality
from controllers.framework.law import Law, Values, decide_next

KEYS = ("law", "parameters", "state", "observations", "observation", "guard", "manual")
GUARD_KEYS = ("settings", "state", "now_seconds", "age_seconds", "unfit", "idle", "unit_cost")
UNIT_COST = Parameter("unit_cost", "money", "Cost of one unit of the actuator; null: no price.", None, 0.0, 1e9)
SECONDS = Parameter("now_seconds", "s since 1970", "Time of the decision.", 0.0, -1e12, 1e12)
AGE = Parameter("age_seconds", "s", "Age of the measurement.", 0.0, -1e9, 1e9)


def answer(name: str, document: Any) -> dict[str, Json]:
    """Decide on each observation in turn. Raise `BadInput` naming the field before any decision is made."""
    law = catalog.get_law(name)
    request = read_object(document, "document")
    refuse_unknown(request, KEYS, "")
    if request.get("law", name) != name:
        raise BadInput("law", f"must be {name}, the requested law, not {request['law']!r}")
    if request.get("guard") is not None:
        return _parse_guarded_request(law, request)
    if request.get("manual") is not None:
        raise BadInput("manual", "requires guard, because the guard limits manual values; add guard or remove manual")
    parameters = catalog.read_parameters(law, request.get("parameters"))
    state = catalog.read_state(law, parameters, request.get("state"))
    return _decide_without_guard(law, parameters, state, _read_observations(law, parameters, request))


def read_manual(law: Law, document: Any) -> Values | None:
    """Return what a person set: {} if nothing, None if the law decides. Raise `BadInput`."""
    if document is None:
        return None
    given = read_object(document, "manual")
    refuse_unknown(given, () if law.actuator is None else (law.actuator,), "manual")
    return {key: catalog.build_actuator_parameter(law).check(value, "manual") for key, value in given.items()}


def _read_observations(law: Law, parameters: Values, request: Mapping[str, Any]) -> list[Values]:
    if "observation" in request:
        if "observations" in request:
            raise BadInput("observation", "can't be combined with observations; provide only one of them")
        return [_read_observation(law, parameters, request["observation"], "observation")]
    given = request.get("observations")
    if not isinstance(given, list) or not given:
        raise BadInput("observations", "must be a list of one or more observations")
    return [_read_observation(law, parameters, each, f"observations[{index}]") for index, each in enumerate(given)]


def _read_observation(law: Law, parameters: Values, document: Any, where: str) -> Values:
    observation = catalog.read_observation(law, document, where)
    catalog.check_observation(law, parameters, observation, where)
    return observation


def _decide_without_guard(law: Law, parameters: Values, state: Json, observations: list[Values]) -> dict[str, Json]:
    decisions = []
    for observation in observations:
        state, decision = decide_next(law, parameters, state, observation)
        decisions.append(decision.to_json())
    return {"law": law.name, "decisions": decisions, "state": state}


def decide_once(law: Law, document: Any, *, applies: bool = True) -> GuardedDecision:
    """Return the decision of a document that has one observation and a guard.

    applies: whether the decision is carried out; the next states depend on it. Raise `BadInput` naming the field.
    """
    request = read_object(document, "document")
    refuse_unknown(request, KEYS, "")
    parameters = catalog.read_parameters(law, request.get("parameters"))
    state = catalog.read_state(law, parameters, request.get("state"))
    observations = _read_observations(law, parameters, request)
    if len(observations) != 1:
        raise BadInput(
            "observations", "must have exactly one entry with guard, because the guard applies to one instant"
        )
    manual = read_manual(law, request.get("manual"))
    return _decide_through_guard(law, parameters, state, observations[0], request["guard"], manual, applies)


def _parse_guarded_request(law: Law, request: Mapping[str, Any]) -> dict[str, Json]:
    guarded = decide_once(law, request)
    return {
        "law": law.name,
        "decisions": [guarded.decision.to_json()],
        "state": guarded.state,
        "guard": {"state": guarded.guard_state, "value": guarded.value},
    }


def _decide_through_guard(
    law: Law, parameters: Values, state: Json, observation: Values, document: Any, manual: Values | None, applies: bool
) -> GuardedDecision:
    """Pass one decision through the guard in its recorded state. Raise `BadInput` naming `guard.key`."""
    given = read_object(document, "guard")
    refuse_unknown(given, GUARD_KEYS, "guard")
    for key in ("unfit", "idle"):
        if given.get(key) is not None and not isinstance(given[key], str):
            raise BadInput(f"guard.{key}", "must be null, or a sentence that says why the measurement can't be used")
    times = {key: given[key] for key in ("now_seconds", "age_seconds") if given.get(key) is not None}
    read = read_values((SECONDS, AGE), times, "guard")
    return guard.decide(
        law,
        parameters,
        state,
        observation,
        settings=guard.read_settings(law, given.get("settings"), "guard.settings"),
        guard_state=guard.read_state(given.get("state")),
        now_seconds=read["now_seconds"],
        measured=ObservationQuality(
            read["age_seconds"] if given.get("age_seconds") is not None else None,
            given.get("unfit"),
            given.get("idle"),
            read_values((UNIT_COST,), {"unit_cost": given.get("unit_cost")}, "guard")["unit_cost"],
        ),
        manual=manual,
        applies=applies,
    )
