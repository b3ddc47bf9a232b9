"""Destinations that handlers and retry plans call: their state in the snapshot, and their failures in words."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import redis

from common.stored_document import replace_fields
from controllers.framework.reason import format_percent
from controllers.retries.circuit import CLOSED, OPEN, DestinationState
from workers.consumer.destination import load_states
from workers.documents.queues import DestinationStatus
from workers.documents.snapshot import Snapshot
from workers.retries.budget import get_called
from workers.retries.models import RetryPlan
from workers.retries.plans import ACTIVE
from workers.snapshot.scene import shorten_error

RECENT_CALL_SECONDS = 60.0  # a destination that nothing waits for is a problem for this time after its last call


def build_destination_status(
    state: DestinationState, queues: Sequence[str] = (), retry_plans: Sequence[int] = ()
) -> DestinationStatus:
    """Return the state of a destination, with the queues and retry plans that share it."""
    return DestinationStatus(
        circuit=state.circuit,
        since=state.since,
        failing_share=round(state.failing_share, 3),
        calls=round(state.calls, 1),
        retries=round(state.tokens, 1),
        at=state.at,
        error=state.error,
        queues=list(queues),
        retry_plans=list(retry_plans),
    )


def list_retry_plans() -> dict[str, list[int]]:
    """Return the numbers of the active retry plans of attached plants, by what their tasks call."""
    plans: dict[str, list[int]] = {}
    rows = RetryPlan.objects.filter(state__in=ACTIVE, kind=RetryPlan.Kind.TASKS).only("pk", "calls", "plant")
    for plan in rows.order_by("pk"):
        plans.setdefault(get_called(plan), []).append(plan.pk)
    return plans


def add_retry_plans(snapshot: Snapshot, plans: Mapping[str, list[int]], control: redis.Redis) -> Snapshot:
    """Add the retry plans to the destinations that their tasks call. Raises `redis.RedisError`."""
    if not plans:
        return snapshot
    queues = {name: row.queues for name, row in snapshot.destinations.items()}
    called = {
        name: build_destination_status(state, queues.get(name, ()), plans[name])
        for name, state in load_states(control, plans).items()
    }
    return replace_fields(snapshot, destinations={**snapshot.destinations, **called})


def is_failing(row: DestinationStatus, is_awaited: bool, at: float) -> bool:
    """Return whether calls fail, and somebody waits for the destination or has called it recently."""
    is_recent = at - (row.at or 0.0) < RECENT_CALL_SECONDS
    return row.circuit != CLOSED and row.since is not None and (is_awaited or is_recent)


def describe_failing(name: str, row: DestinationStatus) -> str:
    since = f"since {datetime.fromtimestamp(row.since or 0.0, UTC):%H:%M} UTC"
    limits = "only a few test calls are made" if row.circuit == OPEN else "retries are limited"
    return f"Calls to {name} have been failing {since}: {limits}."


def describe_failures(row: DestinationStatus) -> str:
    error = shorten_error(row.error)
    return f"{format_percent(row.failing_share)} of the recent calls fail{f' with “{error}”' if error else ''}"


def describe_waiting_plans(row: DestinationStatus) -> str:
    """Return which retry plans wait; "" if none does."""
    numbers = ", ".join(map(str, row.retry_plans))
    if not numbers:
        return ""
    return f"retry plan {numbers} waits for it" if len(row.retry_plans) == 1 else f"retry plans {numbers} wait for it"
