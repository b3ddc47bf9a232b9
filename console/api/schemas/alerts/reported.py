"""Reports of external Alertmanagers."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Labels


class ReportedRow(ApiAnswer):
    """An alert that an external Alertmanager reported."""

    source: Annotated[str, Field(description="The token that reported it.")]
    name: str
    severity: str
    labels: Labels
    summary: str
    description: str
    link: Annotated[str, Field(description="URL of its source; empty: unknown.")]
    began_at: datetime
    ended_at: Annotated[datetime | None, Field(description="null: still firing.")]
    reported_at: Annotated[datetime, Field(description="Time of the last report.")]


class ReportedList(ApiAnswer):
    alerts: list[ReportedRow]


class RefusedAlert(ApiAnswer):
    """An alert of a report that could not be read."""

    field: Annotated[str, Field(description="Position in the report, such as alerts[3].startsAt.")]
    message: str


class ReportReceipt(ApiAnswer):
    """The stored and the rejected alerts of a report."""

    stored: int
    own: Annotated[int, Field(description="Number of Weir's own alerts that were reported back.")]
    refused: NotRequired[
        Annotated[list[RefusedAlert], Field(description="Unreadable alerts, if any; the others are stored.")]
    ]
