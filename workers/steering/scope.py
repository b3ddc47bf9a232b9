"""The scope of an override.

It is one loop, or every loop of a law, a queue, a node, or of a combination of these. It can also be a node, a queue,
or a worker host itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from controllers import catalog
from queues import pausing
from queues.models import Node
from workers.models import Loop, Override

THRESHOLDS = ("busy_threshold", "toobusy_threshold")
DRAINING = "work"  # the name of an override on a worker host: it takes no new work


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
