"""A loop as pages and the API show it: what is in force, and each of its parameters."""

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from console.pages.frame.page import Document
from controllers import catalog
from controllers.framework import guard
from controllers.framework.law import Law
from controllers.framework.parameter import Parameter
from workers.models import Loop, Override
from workers.steering import overrides
from workers.steering.scope import active_loops

TABLES = ("rows", "map")  # not for a hand: they are set where they are measured


def described(now: datetime) -> list[Document]:
    """Every loop that has a target, by name."""
    found = list(active_loops().order_by("name"))
    held = overrides.by_loop(found, now)
    return [describe(loop, held[loop.pk], now) for loop in found]


def describe(loop: Loop, held: list[Override], now: datetime) -> Document:
    """A loop with what is in force: mode and effective parameters are those with overrides in their place."""
    law = catalog.law(loop.law)
    about = (sys.modules[type(law).__module__].__doc__ or "").strip().split("\n")[0]
    return {
        "id": loop.pk,
        "name": loop.name,
        "law": loop.law,
        "summary": about,
        "target": loop.target,
        "base_mode": loop.mode,
        "mode": overrides.value_of("mode", held, now) or loop.mode,
        "parameters": catalog.read_parameters(law, loop.parameters),
        "effective": overrides.effective_parameters(law, loop.parameters, held, now),
        "overrides": held,
        "actuator": law.actuator,
        "interval_seconds": loop.interval_seconds,
        "ticked_at": loop.ticked_at,
    }


def parameter_rows(
    law: Law, given: Mapping[str, Any], held: Iterable[Override], now: datetime
) -> list[Document]:
    """Each parameter of a law as it is declared, with `value`, `effective` and the `override` in force."""
    values = catalog.read_parameters(law, given)
    in_force = overrides.effective_parameters(law, given, held, now)
    return [
        _row(each, each.name, values, in_force, held) for each in law.parameters if each.kind not in TABLES
    ]


def guard_rows(law: Law, given: Mapping[str, Any], held: Iterable[Override], now: datetime) -> list[Document]:
    """Each setting of the guard likewise; an override of it is named `guard.NAME`."""
    values = guard.read_settings(law, given)
    in_force = overrides.effective_guard(law, given, held, now)
    return [_row(each, f"guard.{each.name}", values, in_force, held) for each in guard.settings_of(law)]


def _row(
    declared: Parameter,
    name: str,
    values: Mapping[str, Any],
    in_force: Mapping[str, Any],
    held: Iterable[Override],
) -> Document:
    by_name = {override.name: override for override in held}
    return {
        "name": name,
        "label": declared.name,
        "value": values[declared.name],
        "effective": in_force[declared.name],
        "default": declared.default,
        "minimum": declared.minimum,
        "maximum": declared.maximum,
        "unit": declared.unit,
        "help": declared.help,
        "kind": declared.kind,
        "choices": declared.choices,
        "override": by_name.get(name),
    }
