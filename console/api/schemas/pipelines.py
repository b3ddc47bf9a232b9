"""Answers about declared applications of the pipeline."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant


class ApplicationAtWork(ApiAnswer):
    """A declared application that is running."""

    name: str
    version: Annotated[int, Field(description="0: shipped with Weir.")]
    text: Annotated[str, Field(description="YAML.")]
    refused: Annotated[str | None, Field(description="Why the pipeline rejects this version.")]


class ApplicationVersion(ApiAnswer):
    """A version of a declared application."""

    application: str
    number: int
    active: bool
    reason: str
    text: Annotated[str, Field(description="YAML.")]
    owner: str | None


class ApplicationList(ApiAnswer):
    at_work: dict[str, ApplicationAtWork]
    versions: Annotated[list[ApplicationVersion], Field(description="Newest first.")]
    next: Annotated[int | None, Field(description="The value of `before` for the next page; null: last page.")]


class ApplicationOrder(ApiAnswer):
    """The state that a person requested for an application."""

    application: str
    stopped: Annotated[bool, Field(description="Whether the application stays stopped until it is started.")]
    restart: Annotated[int, Field(description="Number of manual restarts.")]
    by: str
    reason: str
    at: Instant | None


class OperatorTasks(ApiAnswer):
    application: str
    operator: str
    tasks: int


class CriterionRelease(ApiAnswer):
    application: str
    criterion: str


class CriterionOverride(CriterionRelease):
    """A value in place of a criterion's own."""

    value: float
    until_seconds: Instant | None
    owner: str
    reason: str
