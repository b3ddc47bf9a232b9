"""Tasks have one owner: which loops would set the tasks of the same operator of an attached plant.

A loop of a whole plant (target {"plant"}) sets those of each of its operators, one of an operator (target
{"plant", "operator"}) its own. Of two of different kinds where one is of an operator, only one may act: who
would let the second act is refused, whichever that is. (Loops of a whole plant stand back for each other by
themselves, as those of an application do: `workers.control.parts.operators`.)
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controllers.shedding.ladder import LAW as LADDER
from controllers.worker_rate.law import LAW as WORKER_RATE
from workers.models import Loop

Target = Mapping[str, Any]
LADDER_ADVISES = (
    "takes advise or hold: the remedy ladder of an attached plant applies nothing there; put a loop of the"
    " plant on auto for more tasks, and pause a queue on the plant's page."
)


def explain_never(loop: Loop) -> str | None:
    """Why a loop may not act whatever else does; None: it may."""
    return LADDER_ADVISES if is_advisory_only(loop.law, loop.target) else None


def is_advisory_only(law: str, target: Target) -> bool:
    """Whether a law's loop on this target never acts."""
    return law == LADDER.name and "plant" in target


def explain_fixed(law: str, name: str) -> str | None:
    """Why nobody sets this parameter of a law; None: people do."""
    if (law, name) != (WORKER_RATE.name, "workers"):
        return None
    return "workers follows what a loop steers: a container's are short, a pool's are permanent."


def acts_by_itself(loop: Loop) -> bool:
    """Whether it acts only where somebody lets this very loop: of pools of an attached plant, and its ladder.
    Who lets all loops of a law act did not mean a pool that comes later, or its plant.
    """
    return "plant" in loop.target and ("operator" in loop.target or loop.law == LADDER.name)


def meet(one: Target, other: Target) -> bool:
    """Whether loops with these targets set tasks of one operator, and one is of that operator alone."""
    operators = {target.get("operator") for target in (one, other)}
    is_one_plant = bool(one.get("plant")) and one.get("plant") == other.get("plant")
    return is_one_plant and operators != {None} and (None in operators or len(operators) == 1)


def rival_of(loop: Loop, acting: Iterable[Loop]) -> Loop | None:
    """The first of those that act, or are to, that sets what this loop sets."""
    others = (other for other in acting if other.pk != loop.pk and other.law != loop.law)
    return next((other for other in others if meet(loop.target, other.target)), None)


def explain_refusal(loop: Loop, rival: Loop) -> str:
    """In a sentence, and what to do."""
    what = loop.target.get("operator") or rival.target.get("operator")
    return (
        f"can't be that of {loop.name}: {rival.name} sets the tasks of {what}, and they have one owner;"
        f" put {rival.name} on advise first."
    )
