"""Every law by its name, found in the rooms; the place where a name or a document from outside is checked.

A law is a module of a room that says `LAW: Law = …`. Nothing else here has to know of it.
"""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import controllers
from controllers.framework import guard
from controllers.framework.discovery import modules_of, rooms_of
from controllers.framework.law import Counting, Law, Ranked, Remedy, remedy_of
from controllers.framework.parameter import Parameter, read_values
from queues.errors import BadInput

# Rooms that serve the laws or try them: they hold none, and importing them takes time.
WITHOUT_LAWS = ("design", "framework", "patterns", "rivals", "simulation")


def find_laws() -> dict[str, Law]:
    """Name → law, in the order of the names. Raises ValueError where two have the same name."""
    found: dict[str, Law] = {}
    for law in _laws():
        if law.name in found:
            raise ValueError(f"two laws have the name {law.name}")
        found[law.name] = law
    return dict(sorted(found.items()))


def _laws() -> Iterator[Law]:
    for room in rooms_of(controllers):
        if _name(room) not in WITHOUT_LAWS:
            yield from (module.LAW for module in modules_of(room) if hasattr(module, "LAW"))


def _name(room: ModuleType) -> str:
    return room.__name__.rpartition(".")[2]


LAWS: Mapping[str, Law] = find_laws()


def law(name: str) -> Law:
    """The law of that name. Raises `BadInput` with the list of names."""
    if name in LAWS:
        return LAWS[name]
    raise BadInput("law", f"{name} is not known; the laws are {', '.join(LAWS)}")


def remedy(name: str) -> Remedy | None:
    """What the law of that name is among the remedies; None: it is none, or gone."""
    return remedy_of(LAWS.get(name))


def ranked() -> tuple[str, ...]:
    """The laws of whose loops only one acts on a target, the first of them that may."""
    ranks = {name: law.rank for name, law in LAWS.items() if isinstance(law, Ranked)}
    return tuple(sorted(ranks, key=lambda name: ranks[name]))


def read_parameters(of: Law, document: Any, where: str = "parameters") -> dict[str, Any]:
    """All parameters of a law, given or by default, checked one by one and together. Raises `BadInput`."""
    parameters = read_values(of.parameters, document, where)
    of.check(parameters)
    return parameters


def read_observation(of: Law, document: Any, where: str = "observation") -> dict[str, Any]:
    """One observation, checked value by value; `Law.check_observation` checks them together. Raises
    `BadInput` naming the field."""
    return read_values(of.observation, document, where)


def read_state(of: Law, parameters: Mapping[str, Any], document: Any, where: str = "state") -> dict[str, Any]:
    """What a law remembers, checked value by value and together; None gives the initial state. Raises
    `BadInput` naming the field."""
    if document is None:
        initial: dict[str, Any] = of.initial_state(parameters)
        return initial
    state = read_values(of.state, document, where)
    of.check_state(parameters, state, where)
    return state


def parameter(of: Law, name: str) -> Parameter:
    """What `name` takes: a parameter of the law, `guard.NAME`, or the actuator. Raises `BadInput`."""
    known = {each.name: each for each in of.parameters}
    known |= {f"guard.{each.name}": each for each in guard.settings_of(of)}
    if of.actuator is not None:
        known[of.actuator] = actuator_parameter(of)
    if name not in known:
        raise BadInput("name", f"{name} is not known; {of.name} takes {', '.join(known)} and mode")
    return known[name]


def actuator_parameter(of: Law) -> Parameter:
    """What a person may set by hand: the actuator within the guard's default range."""
    settings = guard.read_settings(of, None)
    return Parameter(
        str(of.actuator),
        "actuator's unit",
        "The value applied at each decision while the loop is in manual.",
        None,
        settings["minimum"],
        settings["maximum"],
        "integer" if isinstance(of, Counting) else "number",
    )
