"""Silences, and the preview of one."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from console.api.answer.schema import ApiAnswer, Instant, build_enum_field
from console.api.schemas.alerts.alerts import AlertRow

_Comparing = TypedDict("_Comparing", {"is": Annotated[str, build_enum_field(("=", "!=", "~"))]})  # a Python keyword


class LabelMatcher(_Comparing):
    """A condition on a label."""

    label: str
    value: str


class SilenceRow(ApiAnswer):
    id: int
    matchers: Annotated[list[LabelMatcher], Field(description="An alert is silenced if it matches all matchers.")]
    reason: str
    owner: str
    expires_at: Instant


class SilenceList(ApiAnswer):
    silences: list[SilenceRow]


class SilencePreview(ApiAnswer):
    """What a silence would hide."""

    open: list[AlertRow]
    lately: Annotated[int, Field(description="Number of matching alerts in the last 7 days.")]
    of: Annotated[int, Field(description="Number of alerts in the last 7 days.")]


class SilenceEnd(ApiAnswer):
    ended: Annotated[bool, Field(description="false: already ended.")]
