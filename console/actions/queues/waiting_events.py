"""Waiting events viewed by a person: authorized and audited, since events may be about people."""

import functools
import time
from dataclasses import dataclass

import redis

from common import checks
from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from queues.models import Container, Queue
from queues.nodes.addresses import add_login
from queues.segments.peek import MAX_EVENTS, WaitingEvent, peek
from queues.segments.segment import Segment

ORDERS = ("newest", "oldest")
FEW_EVENTS = 20
TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True)
class PeekRequest:
    """The requested events: of a queue's container on a node, the newest or the oldest first."""

    queue: str
    node: str
    order: str = ORDERS[0]
    events: int = FEW_EVENTS

    def check(self) -> "PeekRequest":
        """Return itself. Raises `BadInput` that names an invalid field."""
        if not Queue.objects.filter(name=self.queue).exists():
            raise BadInput("queue", f"{self.queue[:40]} is not a queue.")
        if self.order not in ORDERS:
            raise BadInput("order", f"must be {' or '.join(ORDERS)}, not {self.order[:40]!r}.")
        checks.accept_whole_number(1, MAX_EVENTS).validate(self.events, "events", BadInput, ".")
        return self


@dataclass(frozen=True)
class WaitingEvents:
    """The events found; more: there may be more after them."""

    asked: PeekRequest
    events: list[WaitingEvent]
    more: bool


def peek_at(actor: Actor, asked: PeekRequest) -> WaitingEvents:
    """Return the events, and record in the audit log that this actor saw them.

    Raises PermissionDenied, BadInput, NodeUnavailable.
    """
    require_permission(actor, "queue.peek", [asked.queue])
    asked.check()
    held = Container.objects.filter(queue__name=asked.queue).select_related("node")
    place = held.filter(node__name=asked.node).first()
    if place is None:
        raise BadInput("node", f"{asked.queue} has no container on {asked.node[:40]}.")
    segment = Segment(_get_client(place.node.get_primary_url()), asked.queue)
    events, more = peek(segment, asked.events, asked.order == ORDERS[0], time.monotonic)
    seen = {"order": asked.order, "events": len(events)}
    audit_log.record(actor, "queue.peek", f"{asked.queue}/{asked.node}", after=seen)
    return WaitingEvents(asked, events, more)


@functools.lru_cache(maxsize=64)
def _get_client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        add_login(url), socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, retry=None
    )
