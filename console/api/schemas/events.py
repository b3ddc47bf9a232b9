"""Answers to published events."""

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Events


class RejectedLine(ApiAnswer):
    line: int = Field(description="From 1.")
    error: str


class PublishedEvents(ApiAnswer):
    """What was stored of a body."""

    published: Events = Field(description="Events that are stored.")
    blocks: int
    by_container: dict[str, int] = Field(description="Events by node.")
    rerouted: Events = Field(description="Events that went to another container than their points say.")
    rejected: Events = Field(description="Malformed lines, which were skipped.")
    errors: list[RejectedLine] = Field(description="The first 20 of them.")
