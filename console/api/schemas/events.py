"""Answers to published events."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Events


class RejectedLine(ApiAnswer):
    line: Annotated[int, Field(description="From 1.")]
    error: str


class PublishedEvents(ApiAnswer):
    """The stored events of a body."""

    published: Annotated[Events, Field(description="Number of stored events.")]
    blocks: int
    by_container: Annotated[dict[str, int], Field(description="Number of events by node.")]
    rerouted: Annotated[
        Events, Field(description="Number of events stored in a different container than the points selected.")
    ]
    rejected: Annotated[Events, Field(description="Number of malformed lines that were skipped.")]
    errors: Annotated[list[RejectedLine], Field(description="The first 20 malformed lines.")]
