"""Answers to published events."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Events


class RejectedLine(ApiAnswer):
    line: Annotated[int, Field(description="From 1.")]
    error: str


class PublishedEvents(ApiAnswer):
    """The stored events of a body."""

    published: Annotated[Events, Field(description="Stored events.")]
    blocks: int
    by_container: Annotated[dict[str, int], Field(description="Events by node.")]
    rerouted: Annotated[
        Events, Field(description="Events that went to another container than their points say.")
    ]
    rejected: Annotated[Events, Field(description="Malformed lines, which were skipped.")]
    errors: Annotated[list[RejectedLine], Field(description="The first 20 of them.")]
