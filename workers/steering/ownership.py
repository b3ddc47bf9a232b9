"""Ownership of tasks: which loops would set the tasks of the same operator of an attached plant.

A loop of a whole plant (target {"plant"}) sets those of each of its operators, a loop of one operator (target {"plant",
"operator"}) its own. Of two loops of different kinds, if one is of an operator, only one may act: enabling the second
is refused, whichever it is. (Loops of a whole plant yield to each other automatically, as those of an application do:
`workers.control.parts.operators`.)
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controllers.shedding.ladder import LAW as LADDER
from controllers.worker_rate.law import LAW as WORKER_RATE
from workers.models import Loop

Target = Mapping[str, Any]
LADDER_ADVISES = (
    "must be advise or hold: the remedy ladder can't change an attached plant. To add tasks, set a loop of"
    " the plant to auto; to pause a queue, use the plant's page."
)


def explain_never(loop: Loop) -> str | None:
    """Return why a loop may never act; None if it may."""
    return LADDER_ADVISES if is_advisory_only(loop.law, loop.target) else None


def is_advisory_only(law: str, target: Target) -> bool:
    """Return whether a law's loop on this target never acts."""
    return law == LADDER.name and "plant" in target


def explain_fixed(law: str, name: str) -> str | None:
    """Return why nobody can set this parameter of a law; None if people can."""
    if (law, name) != (WORKER_RATE.name, "workers"):
        return None
    return (
        "workers can't be set: the value follows the loop's target (short-lived for a container, permanent for a pool)."
    )


def needs_explicit_enabling(loop: Loop) -> bool:
    """Return whether a loop acts only if a person enables this very loop.

    This applies to pools of an attached plant, and to its ladder. Enabling all loops of a law does not include a pool
    that appears later, or its plant.
    """
    return "plant" in loop.target and ("operator" in loop.target or loop.law == LADDER.name)


def meet(one: Target, other: Target) -> bool:
    """Return whether loops with these targets set tasks of one operator, one being of that operator alone."""
    operators = {target.get("operator") for target in (one, other)}
    is_one_plant = bool(one.get("plant")) and one.get("plant") == other.get("plant")
    return is_one_plant and operators != {None} and (None in operators or len(operators) == 1)


def find_competing_loop(loop: Loop, acting: Iterable[Loop]) -> Loop | None:
    """Return the first of the acting loops (or those about to act) that sets what this loop sets."""
    others = (other for other in acting if other.pk != loop.pk and other.law != loop.law)
    return next((other for other in others if meet(loop.target, other.target)), None)


def explain_refusal(loop: Loop, competitor: Loop) -> str:
    """Explain in a sentence, with what to do."""
    what = loop.target.get("operator") or competitor.target.get("operator")
    return (
        f"can't be set for {loop.name}: {competitor.name} already sets the tasks of {what};"
        f" set {competitor.name} to advise first."
    )
