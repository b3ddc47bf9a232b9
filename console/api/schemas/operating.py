"""Answers about queues and their waiting events, processes, and the palette."""

from typing import Annotated

from pydantic import Field

from console.actions.queues.waiting_events import ORDERS
from console.api.answer.schema import ApiAnswer, Document, Events, Instant, Seconds, build_enum_field
from console.api.schemas.dead_letters import DeadLetterEvent
from console.pages.frame.palette import KINDS as PALETTE_KINDS
from queues.topology import KINDS


class WaitingEventRow(ApiAnswer):
    """A waiting event."""

    block: Annotated[str, Field(description="The ID of its block.")]
    inserted_at: Annotated[Instant, Field(description="Time by the node's clock.")]
    event: Annotated[DeadLetterEvent | None, Field(description="null: the block can't be read.")]
    error: Annotated[str, Field(description="Why the block can't be read.")]


class WaitingEventList(ApiAnswer):
    """Events of one container."""

    queue: str
    node: str
    order: Annotated[str, build_enum_field(ORDERS)]
    events: list[WaitingEventRow]
    more: Annotated[bool, Field(description="Whether there may be more events.")]


class QueueDefinition(ApiAnswer):
    """The definition of a queue, without its points."""

    queue: str
    kind: Annotated[str, build_enum_field(KINDS)]
    handler: str
    handler_options: Document
    events_per_worker: Events
    tries: int
    handler_timeout_seconds: Seconds
    priority: int
    minimum_containers: int
    digest: Annotated[str, Field(description="Digest to send with a change.")]


class QueueDifference(ApiAnswer):
    """The fields that changed."""

    queue: str
    before: Document
    after: Document


class ProcessStatus(ApiAnswer):
    """A process that ./run supervises."""

    name: str
    state: Annotated[str, Field(description="State, as reported by the supervisor.")]
    word: str
    pid: int | None
    since: Annotated[Instant | None, Field(description="Start time; null: not running.")]
    restarts: Annotated[int, Field(description="Number of restarts since ./run started.")]
    ended_at: Instant | None
    how_it_ended: str


class ProcessList(ApiAnswer):
    supervised: Annotated[
        bool, Field(description="Whether ./run started this console. In Compose, processes can't be listed.")
    ]
    processes: list[ProcessStatus]


class ProcessLog(ApiAnswer):
    process: str
    lines: Annotated[list[str], Field(description="Oldest first.")]


class PaletteRow(ApiAnswer):
    """A destination or an action."""

    kind: Annotated[str, build_enum_field(PALETTE_KINDS)]
    label: str
    url: Annotated[str, Field(description="URL of the destination or action.")]
    about: str


class PaletteList(ApiAnswer):
    results: Annotated[list[PaletteRow], Field(description="Best match first.")]
    total: Annotated[int, Field(description="Number of matches.")]
