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


def answer(name: str, document: object) -> dict[str, Json]:
    """Decide on each observation in turn. Raise `BadInput` naming the field before any decision is made."""
    law = catalog.get_law(name)
    request = read_object(document, "document")
    refuse_unknown(request, KEYS, "")
    if request.get("law", name) != name:
        raise BadInput("law", f"must be {name}, the requested law, not {request['law']!r}")
    if request.get("guard") is not None:
        guarded = decide_once(law, request)
        return {
            "law": name,
            "decisions": [guarded.decision.to_json()],
            "state": guarded.state,
            "guard": {"state": guarded.guard_state, "value": guarded.value},
        }
    if request.get("manual") is not None:
        raise BadInput("manual", "requires guard, because the guard limits manual values; add guard or remove manual")
    parameters, state, observations = _read_run(law, request)
    decisions = []
    for observation in observations:
        state, decision = decide_next(law, parameters, state, observation)
        decisions.append(decision.to_json())
    return {"law": name, "decisions": decisions, "state": state}


def decide_once(law: Law, document: object, *, applies: bool = True) -> GuardedDecision:
    """Pass the decision of a document that has one observation through the guard in its recorded state.

    applies: whether the decision is carried out; the next states depend on it. Raise `BadInput` naming the field.
    """
    request = read_object(document, "document")
    refuse_unknown(request, KEYS, "")
    parameters, state, observations = _read_run(law, request)
    if len(observations) != 1:
        raise BadInput(
            "observations", "must have exactly one entry with guard, because the guard applies to one instant"
        )
    manual = read_manual(law, request.get("manual"))
    given = read_object(request["guard"], "guard")
    refuse_unknown(given, GUARD_KEYS, "guard")
    for key in ("unfit", "idle"):
        if given.get(key) is not None and not isinstance(given[key], str):
            raise BadInput(f"guard.{key}", "must be null, or a sentence that says why the measurement can't be used")
    numbers = {key: given[key] for key in ("now_seconds", "age_seconds", "unit_cost") if given.get(key) is not None}
    read = read_values((SECONDS, AGE, UNIT_COST), numbers, "guard")
    return guard.decide(
        law,
        parameters,
        state,
        observations[0],
        settings=guard.read_settings(law, given.get("settings"), "guard.settings"),
        guard_state=guard.read_state(given.get("state")),
        now_seconds=read["now_seconds"],
        measured=ObservationQuality(
            read["age_seconds"] if "age_seconds" in numbers else None,
            given.get("unfit"),
            given.get("idle"),
            read["unit_cost"],
        ),
        manual=manual,
        applies=applies,
    )


def read_manual(law: Law, document: object) -> Values | None:
    """Return what a person set: {} if nothing, None if the law decides. Raise `BadInput`."""
    if document is None:
        return None
    given = read_object(document, "manual")
    refuse_unknown(given, () if law.actuator is None else (law.actuator,), "manual")
    return {key: catalog.build_actuator_parameter(law).check(value, "manual") for key, value in given.items()}


def _read_run(law: Law, request: Mapping[str, Any]) -> tuple[Values, Json, list[Values]]:
    """Return the parameters, the state, and the observations of a document."""
    parameters = catalog.read_parameters(law, request.get("parameters"))
    state = catalog.read_state(law, parameters, request.get("state"))
    given = request.get("observations")
    if "observation" in request:
        if "observations" in request:
            raise BadInput("observation", "can't be combined with observations; provide only one of them")
        documents = {"observation": request["observation"]}
    elif isinstance(given, list) and given:
        documents = {f"observations[{index}]": observation for index, observation in enumerate(given)}
    else:
        raise BadInput("observations", "must be a list of one or more observations")
    observations: list[Values] = []
    for where, document in documents.items():
        observation = catalog.read_observation(law, document, where)
        catalog.check_observation(law, parameters, observation, where)
        observations.append(observation)
    return parameters, state, observations
