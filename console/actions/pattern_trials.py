"""Trials of the patterns of a declaration, and the newest events of its queues for them. Authorized.

A trial changes nothing. The audit log records each view of waiting events, because events may contain personal data.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from common.errors import BadInput, Forbidden, NodeUnavailable
from console.accounts.access import Actor, admit
from console.actions import pipelines
from console.actions.queues.waiting_events import PeekRequest, peek_at
from console.audit import audit_log
from controllers.framework.reason import format_count
from queues.models import Container
from queues.segments.peek import MAX_EVENTS as MAX_PEEKED
from workers.pipeline.declaration import pattern_trial
from workers.pipeline.declaration.declaration import parse_queues
from workers.pipeline.declaration.pattern_trial import PatternTrial
from workers.pipeline.matching.search_limit import SearchLimit

MAX_EVENTS = 500
MAX_BYTES = 256 * 1024
MAX_SECONDS = 2.0  # of the search of a trial, and of reading events
MAX_RECORDED_BRANCHES = 50_000  # of the matches of a trial; a branch can keep all its events
_STEPS_PER_CHECK = 64
_REMEDY = "Use fewer events, a shorter window, or conditions that fewer events satisfy."


class TrialLimit(SearchLimit):
    """The limits of a trial. Raises `Forbidden` when one is exceeded."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._steps, self._recorded = monotonic, 0, 0
        self._end = monotonic() + MAX_SECONDS

    def check_step(self) -> None:
        self._steps += 1
        if self._steps % _STEPS_PER_CHECK == 0 and self._monotonic() > self._end:
            raise Forbidden("events", f"take more than {MAX_SECONDS:g} s to match. {_REMEDY}")

    def check_recorded(self, branches: int) -> None:
        self._recorded += branches
        if self._recorded > MAX_RECORDED_BRANCHES:
            raise Forbidden("events", f"have more than {MAX_RECORDED_BRANCHES:,} branches of matches. {_REMEDY}")


def try_pattern(
    actor: Actor, text: str, pattern: str, events: str, monotonic: Callable[[], float] = time.monotonic
) -> PatternTrial:
    """Search events for a pattern of the application that a text declares.

    events: JSON lines, a JSON list, or CSV. Raises `PermissionDenied`, and `BadInput` that names the field and its
    line.
    """
    admit(actor, "pipeline.declare")
    size = len(events.encode(errors="replace"))
    if size > MAX_BYTES:
        raise BadInput("events", f"must have at most {MAX_BYTES // 1024} KiB, not {size / 1024:.0f} KiB.")
    if not events.strip():
        raise BadInput("events", "are missing. Paste JSON lines, a JSON list, or CSV.")
    application = pipelines.parse_application_for(actor, text)
    rows = pattern_trial.read_events(events, round(time.time() * 1e6))
    if rows.num_rows > MAX_EVENTS:
        raise BadInput("events", f"must be at most {MAX_EVENTS} events, not {rows.num_rows:,}")
    try:
        return pattern_trial.try_pattern(application, pattern, rows, TrialLimit(monotonic))
    except Forbidden as error:
        audit_log.record_refusal(actor, "pipeline.declare", f"{application.name}/{pattern}", error.message)
        raise


@dataclass(frozen=True)
class NewestEvents:
    """The newest waiting events of some queues, the oldest first, as JSON lines. notes: omissions, as sentences."""

    text: str
    count: int
    notes: tuple[str, ...]


def load_newest_events(actor: Actor, text: str, monotonic: Callable[[], float] = time.monotonic) -> NewestEvents:
    """Return the newest waiting events of the queues that the declared application reads.

    Raises `PermissionDenied`, and `BadInput` that names the field.
    """
    admit(actor, "pipeline.declare")
    queues = parse_queues(text)
    if not queues:
        raise BadInput("queues", "is missing. Declare the queues that the application reads.")
    end = monotonic() + MAX_SECONDS
    found: list[dict[str, Any]] = []
    silent: list[str] = []
    unreadable = 0
    places = Container.objects.filter(queue__name__in=queues).order_by("queue__name", "node__name")
    for queue, node in places.values_list("queue__name", "node__name"):
        if monotonic() > end:
            silent.append(f"{queue} on {node}")
            continue
        try:
            waiting = peek_at(actor, PeekRequest(queue, node, events=MAX_PEEKED)).events
        except NodeUnavailable:
            silent.append(f"{queue} on {node}")
            continue
        events = [_format_event(row.event) for row in reversed(waiting)]  # the oldest first
        found += [event for event in events if event is not None]
        unreadable += events.count(None)
    newest = sorted(found, key=lambda event: str(event["time"]))[-MAX_PEEKED:]
    notes = [f"Not read in time: {', '.join(silent)}."] if silent else []
    if unreadable:
        notes.append(f"{format_count(unreadable, 'event')} omitted: unreadable, or with attributes that are too long.")
    lines = [orjson.dumps(event).decode() for event in newest]
    return NewestEvents("\n".join(lines), len(lines), tuple(notes))


def _format_event(event: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of an event as JSON values; None if its block or its attributes can't be read."""
    if event is None:
        return None
    fields = {name: value for name, value in event.items() if value is not None}
    fields["time"] = event["time"].isoformat()
    try:
        attributes = orjson.loads(fields.pop("attributes", "{}"))
    except orjson.JSONDecodeError:  # the text was cut
        return None
    return {**fields, **({"attributes": attributes} if attributes else {})}
