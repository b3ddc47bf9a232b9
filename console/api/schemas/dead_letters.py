"""Answers about dead letters."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from console.actions.dead_letter_steering import ACTIONS
from console.api.answer.schema import ApiAnswer, Bytes, Events, Json, build_enum_field


class DeadLetterEvent(ApiAnswer):
    """An event of a dead letter."""

    id: str | None
    time: datetime | None
    type: str | None
    source: str | None
    key: str | None
    value: float | None
    attributes: Json


class UnreadableBytes(ApiAnswer):
    error: str
    bytes: Bytes
    hex: Annotated[str, Field(description="The first unreadable bytes, in hexadecimal.")]


class DeadLetterRow(ApiAnswer):
    """A dead letter, with its events for callers who may peek into its queue."""

    name: Annotated[str, Field(description="The name that actions on the dead letter use.")]
    queue: str
    node: str
    id: str
    at: datetime
    events: Annotated[list[DeadLetterEvent], Field(description="Empty if unreadable or sealed.")]
    event_count: Events
    sealed: Annotated[
        bool, Field(description="Whether the contents are omitted because you don't have the permission queue.peek.")
    ]
    unreadable: UnreadableBytes | None
    error: str
    tries: int
    worker: str
    block_id: str
    fixes: Annotated[int, Field(description="Number of changes.")]


class DeadLetterGroup(ApiAnswer):
    """Dead letters of a queue with the same error."""

    queue: str
    error: str
    letters: int
    events: Events
    at: Annotated[datetime, Field(description="Time of the first dead letter.")]
    last: datetime


class DeadLetterList(ApiAnswer):
    """Dead letters that match a filter; an action on all of them takes count, through, and digest."""

    count: int
    events: Events
    through: Annotated[
        str, Field(description="When the last dead letter arrived.", json_schema_extra={"format": "date-time"})
    ]
    digest: str
    more: Annotated[bool, Field(description="Whether there may be more dead letters than were read.")]
    unreachable: Annotated[list[str], Field(description="Nodes that did not respond.")]
    groups: list[DeadLetterGroup]
    letters: list[DeadLetterRow]


class RefusedDeadLetter(ApiAnswer):
    letter: str
    why: str


class DeadLetterActionReport(ApiAnswer):
    """The result of an action on dead letters."""

    action: Annotated[str, build_enum_field(ACTIONS)]
    letters: int
    events: Events
    refused: list[RefusedDeadLetter]
