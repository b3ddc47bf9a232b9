"""What overrides concern: their scope, who may act on it, and which loops compete.

A scope is one loop, or every loop of a law, a queue, a node, or of a combination of these. It can also be a node, a
queue, or a worker host itself.

A loop of a whole attached plant (target {"plant"}) sets the tasks of each of its operators, a loop of one operator
(target {"plant", "operator"}) its own. Of two loops of different kinds, if one is of an operator, only one may act:
enabling the second is refused, whichever it is. (Loops of a whole plant yield to each other automatically, as those of
an application do: `workers.control.parts.operators`.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from controllers import catalog
from controllers.shedding.ladder import LAW as LADDER
from controllers.worker_rate.law import LAW as WORKER_RATE
from queues import pausing
from queues.models import Node
from workers.models import Loop, Override
from workers.steering.stops import DRAINING

THRESHOLDS = ("busy_threshold", "toobusy_threshold")
Target = Mapping[str, Any]
LADDER_ADVISES = (
    "must be advise or hold: the remedy ladder can't change an attached plant. To add tasks, set a loop of"
    " the plant to auto; to pause a queue, use the plant's page."
)


@dataclass(frozen=True)
class Scope:
    """A scope: `loop` alone, or one or more of law, queue, and node: the loops that match all of them.

    A `node` alone may also be the node itself: then the override's name is one of its thresholds. A `queue` alone may
    be the queue itself: the name is the part of it that is paused. A `host` is a worker host.
    """

    loop: Loop | None = None
    law: str = ""
    queue: str = ""
    node: Node | None = None
    host: str = ""

    @classmethod
    def build(cls, override: Override) -> "Scope":
        return cls(override.loop, override.law, override.queue, override.node, override.host)

    @property
    def is_sound(self) -> bool:
        """Return whether it names something, and one loop or many, not both."""
        wide = bool(self.law or self.queue or self.node or self.host)
        return wide != (self.loop is not None)

    def is_itself(self, name: str) -> bool:
        """Return whether an override of this name is on a node, queue, or worker host, not on loops."""
        if self.loop is not None or self.law:
            return False
        if self.host:
            return name == DRAINING and not (self.queue or self.node)
        if self.queue:
            return name in pausing.PARTS and self.node is None
        return name in THRESHOLDS

    @property
    def is_wide(self) -> bool:
        """Return whether it may cover many loops."""
        return self.loop is None

    def get_field_values(self) -> dict[str, Any]:
        """Return the columns of an override."""
        return {"loop": self.loop, "law": self.law, "queue": self.queue, "node": self.node, "host": self.host}

    def covers(self, loop: Loop) -> bool:
        """Return whether the loop is within it."""
        if self.loop is not None:
            return self.loop.pk == loop.pk
        node = self.node.name if self.node else ""
        wanted = (
            (self.law, loop.law),
            (self.queue, loop.target.get("queue")),
            (node, loop.target.get("node")),
            (self.host, loop.target.get("host")),
        )
        return all(not name or name == of_loop for name, of_loop in wanted)

    def meets(self, other: "Scope", loops: Iterable[Loop]) -> bool:
        """Return whether some loop is within both."""
        return any(self.covers(loop) and other.covers(loop) for loop in loops)

    def __str__(self) -> str:
        if self.loop is not None:
            return self.loop.name
        node = self.node.name if self.node else ""
        named = (("law", self.law), ("queue", self.queue), ("node", node), ("worker host", self.host))
        return ", ".join(f"{kind} {name}" for kind, name in named if name)


def list_active_loops() -> QuerySet[Loop]:
    """Return the loops whose target and law exist; retired ones keep their ledger and their name.

    A law may be of another version, while one replaces the other, or a user's own law, and gone.
    """
    return Loop.objects.filter(law__in=catalog.LAWS).exclude(target__has_key="retired_at")


def filter_unexpired(now: datetime) -> Q:
    """Return the condition that an override has not reached its expiry."""
    return Q(expires_at__gt=now) | Q(expires_at__isnull=True)


def is_threshold(override: Override) -> bool:
    """Return whether it is on a node itself, not on loops."""
    return override.node_id is not None and override.name in THRESHOLDS


def is_pause(override: Override) -> bool:
    """Return whether it pauses a queue."""
    return bool(override.queue) and override.name in pausing.PARTS


def is_drain(override: Override) -> bool:
    """Return whether it drains a worker host."""
    return bool(override.host)


def is_itself(override: Override) -> bool:
    """Return whether it is on a node, a queue, or a worker host itself: it is no value of any loop."""
    return is_threshold(override) or is_pause(override) or is_drain(override)


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
