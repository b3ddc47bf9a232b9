"""Drains and cordons of nodes, as overrides: with a user, a reason, and an end that the plant enforces."""

from datetime import datetime

import redis
from django.contrib.auth.models import User

from queues.models import Node
from workers.steering import overrides
from workers.steering.overrides import Expiry

UNTIL_ENDED = Expiry(endless=True)


def begin(
    node: Node,
    name: str,
    owner: User | None,
    reason: str,
    *,
    now: datetime,
    control: redis.Redis,
    expiry: Expiry = UNTIL_ENDED,
) -> None:
    """Drain or cordon a node (name: drained or cordoned). Without an owner, a loop does it, and it has no override."""
    if owner is None:
        Node.objects.filter(pk=node.pk).update(**{name: True})
        return
    overrides.set_override(
        name=name, value=name, owner=owner, reason=reason, now=now, node=node, control=control, **vars(expiry)
    )


def end(node: Node, name: str, by: User | None, *, now: datetime, control: redis.Redis) -> None:
    """Return a node to use, also one that an earlier version or a loop drained or cordoned."""
    for override in overrides.list_active(now).filter(node=node, name=name):
        overrides.end(override, by=by, now=now, control=control)
    Node.objects.filter(pk=node.pk).update(**{name: False})
