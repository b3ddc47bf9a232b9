"""Silences, and what one would hide."""

from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, one_of
from console.api.schemas.alerts.alerts import AlertRow


class LabelMatcher(ApiAnswer):
    """A condition on a label."""

    label: str
    operator: Annotated[str, one_of(("=", "!=", "~"))] = Field(alias="is")
    value: str


class SilenceRow(ApiAnswer):
    id: int
    matchers: list[LabelMatcher] = Field(description="All of them hold for what is silenced.")
    reason: str
    owner: str
    expires_at: Instant


class SilenceList(ApiAnswer):
    silences: list[SilenceRow]


class SilencePreview(ApiAnswer):
    """What a silence would hide."""

    open: list[AlertRow]
    lately: int = Field(description="Alerts of the last 7 days that match.")
    of: int = Field(description="All alerts of the last 7 days.")


class SilenceEnd(ApiAnswer):
    ended: bool = Field(description="false: it was over already.")
