"""The catalog of laws: finds every law by name, and checks names and documents that come from outside.

A law is a module that defines `LAW: Law = …`. Nothing else in the catalog has to know about it.
"""

from collections.abc import Mapping
from typing import Any

import controllers
from common.errors import BadInput
from common.parameter import Parameter, build, read_values
from controllers.framework import guard
from controllers.framework.discovery import import_modules, import_subpackages
from controllers.framework.law import Law, Remedy, Values, check_parameters, start_state

# Packages that support or test the laws. They define none, and importing them takes time.
WITHOUT_LAWS = ("design", "framework", "patterns", "baselines", "simulation")


def find_laws() -> dict[str, Law]:
    """Return the laws by name, in the order of their names. Raise ValueError if two laws have the same name."""
    laws: dict[str, Law] = {}
    for room in import_subpackages(controllers):
        if room.__name__.rpartition(".")[2] in WITHOUT_LAWS:
            continue
        for law in (module.LAW for module in import_modules(room) if hasattr(module, "LAW")):
            if law.name in laws:
                raise ValueError(f"Two laws have the name {law.name}")
            laws[law.name] = law
    return dict(sorted(laws.items()))


LAWS: Mapping[str, Law] = find_laws()


def get_law(name: str) -> Law:
    if name in LAWS:
        return LAWS[name]
    raise BadInput("law", f"{name} is unknown; the laws are {', '.join(LAWS)}")


def find_remedy_by_name(name: str) -> Remedy | None:
    """Return the law's place in the remedy ladder, or None if it is no remedy or no longer exists."""
    return LAWS[name].remedy if name in LAWS else None


def list_ranked_laws() -> tuple[str, ...]:
    """Return the laws of which only one may act on a target, highest priority first."""
    ranks = {name: law.rank for name, law in LAWS.items() if law.rank is not None}
    return tuple(sorted(ranks, key=lambda name: ranks[name]))


def read_parameters(of: Law, document: object, where: str = "parameters") -> dict[str, Any]:
    """Read all parameters of a law, given or by default, and check them one by one and together. Raise `BadInput`."""
    parameters = read_values(of.parameters, document, where)
    check_parameters(of, parameters)
    return parameters


def read_observation(of: Law, document: object, where: str = "observation") -> dict[str, Any]:
    """Read one observation and check it value by value; `Law.check_observation` checks the values together.

    Raise `BadInput` naming the field.
    """
    return read_values(of.observation, document, where)


def check_observation(of: Law, parameters: Values, observation: Values, where: str = "observation") -> None:
    of.check_observation(build(of.Parameters, parameters), build(of.Observation, observation), where)


def read_state(of: Law, parameters: Mapping[str, Any], document: object, where: str = "state") -> dict[str, Any]:
    """Read the state of a law and check it value by value and together; None gives the initial state.

    Raise `BadInput` naming the field.
    """
    if document is None:
        initial: dict[str, Any] = start_state(of, parameters)
        return initial
    state = read_values(of.state, document, where)
    if type(of).check_state is not Law.check_state:
        of.check_state(build(of.Parameters, parameters), build(of.State, state), where)
    return state


def get_parameter(of: Law, name: str) -> Parameter:
    """Return the declaration of `name`: a parameter of the law, `guard.NAME`, or the actuator. Raise `BadInput`."""
    known = {parameter_.name: parameter_ for parameter_ in of.parameters}
    known |= {f"guard.{setting.name}": setting for setting in guard.list_guard_settings(of)}
    if of.actuator is not None:
        known[of.actuator] = build_actuator_parameter(of)
    if name not in known:
        raise BadInput("name", f"{name} is unknown; the names for {of.name} are {', '.join(known)}, and mode")
    return known[name]


def build_actuator_parameter(of: Law) -> Parameter:
    """Declare what a person may set manually: the actuator within the guard's default range."""
    settings = guard.read_settings(of, None)
    return Parameter(
        str(of.actuator),
        "actuator's unit",
        "The value applied at each decision while the loop is in manual mode.",
        None,
        settings["minimum"],
        settings["maximum"],
        "integer" if of.counts else "number",
    )
