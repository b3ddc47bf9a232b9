"""Manual cordons of nodes (nothing new), and returns after a drain.

Every function raises `BadInput` naming the field and changes nothing if it refuses.
"""

from datetime import datetime

import redis
from django.db import transaction

from common.errors import BadInput
from queues import projection
from queues.models import Node
from queues.topology import Topology
from workers.models import Plan
from workers.placement.plans import User
from workers.steering import enforcing, overrides


def cordon(node: str, on: bool, user: User, reason: str, *, control: redis.Redis, now: datetime) -> Topology:
    """Make a node take no new points (on) or take them again (off); it keeps its points. Projected.

    Raises `BadInput` for an unknown node, or if it is in that state already.
    """
    overrides.read_reason(reason)
    with transaction.atomic():
        projection.read_database().get_node(node)
        if not Node.objects.filter(name=node, cordoned=not on).update(cordoned=on):
            raise BadInput("node", f"{node} is {'already cordoned' if on else 'not cordoned'}.")
        return projection.project(control, enforcing.get_node_thresholds(now))


def return_to_use(node: str, user: User, reason: str, *, control: redis.Redis, now: datetime) -> Topology:
    """End a node's drain: a plan may give it points again. Raises `BadInput` if it is not drained."""
    overrides.read_reason(reason)
    with transaction.atomic():
        projection.read_database().get_node(node)
        busy = Plan.objects.filter(empties=node, state__in=(Plan.State.APPROVED, Plan.State.RUNNING))
        if (plan := busy.first()) is not None:
            raise BadInput("node", f"{node} is being drained; stop plan {plan.pk} first.")
        if not Node.objects.filter(name=node, drained=True).update(drained=False):
            raise BadInput("node", f"{node} is not drained.")
        return projection.project(control, enforcing.get_node_thresholds(now))
