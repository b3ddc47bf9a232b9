"""Incidents: what changed before them, their timeline, and their follow-ups."""

from datetime import date, datetime
from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Seconds, build_enum_field
from console.api.schemas.alerts.alerts import Severity


class ChangeRow(ApiAnswer):
    """A change."""

    kind: str
    at: datetime
    words: str
    by: str
    ref: Annotated[
        str, Field(description="The record, such as override:12, or records (overrides:12,13); empty: none.")
    ]
    parts: Annotated[list[str], Field(description="Affected subjects, such as queue/alert; empty: the whole plant.")]
    times: Annotated[
        float,
        Field(
            description="Size of a rate change, relative to the smallest change that is reported; 1 for other changes."
        ),
    ]
    over_at: Annotated[
        datetime | None, Field(description="When the change ends or ended; null: in force, or without an end.")
    ]


class ChangeList(ApiAnswer):
    changes: Annotated[list[ChangeRow], Field(description="Newest first.")]


class IncidentChangeRow(ApiAnswer):
    """A change before an incident, with its distance and how often its kind preceded such incidents."""

    kind: str
    at: datetime
    words: str
    by: str
    ref: Annotated[str, Field(description="The record, such as override:12; empty: none.")]
    steps: Annotated[int | None, Field(description="Number of steps upstream of the alert's subject; null: unknown.")]
    delay_seconds: Annotated[Seconds, Field(description="Time from the change to the onset, s.")]
    weight: Annotated[float, Field(description="Ranking score; a higher score is more likely.")]
    before: Annotated[
        int, Field(description="Number of earlier incidents of this condition that a similar change preceded.")
    ]
    incidents: Annotated[int, Field(description="Number of earlier incidents considered.")]
    url: Annotated[str, Field(description="URL of the details.")]
    undo: Annotated[str, Field(description="Label of the button that undoes the change; empty: no button.")]


class IncidentChanges(ApiAnswer):
    """Changes before an incident, the most likely cause first."""

    alert: int
    onset: datetime
    reach_seconds: Annotated[Seconds, Field(description="Length of the searched time before the onset, s.")]
    changes: list[IncidentChangeRow]


class FollowUpRow(ApiAnswer):
    """A follow-up of an incident."""

    id: int
    alert: int
    text: str
    owner: Annotated[str, Field(description="A username; empty: unassigned.")]
    due_on: date | None
    created_at: datetime
    done_at: Annotated[datetime | None, Field(description="null: open.")]


class FollowUpList(ApiAnswer):
    follow_ups: Annotated[list[FollowUpRow], Field(description="Open follow-ups, earliest due date first.")]


class IncidentEventRow(ApiAnswer):
    """An event of an incident's timeline."""

    at: datetime
    kind: Annotated[str, build_enum_field(("change", "alert", "loop", "plan", "person", "note"))]
    words: str
    by: str
    url: str


class IncidentDetail(ApiAnswer):
    """An incident, in addition to its alert."""

    alert: int
    severity: Annotated[Severity, Field(description="The severity that a user set, or else the severity of the rule.")]
    roles: Annotated[dict[str, str], Field(description="Role → username.")]
    mitigated_at: datetime | None
    retained_since: Annotated[
        datetime | None, Field(description="Start of the retained data; null: the usual retention applies.")
    ]
    retained_until: datetime | None
    detect_seconds: Annotated[Seconds | None, Field(description="Time from the onset to the alert, s.")]
    acknowledge_seconds: Annotated[Seconds | None, Field(description=("Time from the alert to its acknowledgment, s."))]
    mitigate_seconds: Seconds | None
    resolve_seconds: Seconds | None
    timeline: Annotated[list[IncidentEventRow], Field(description="Oldest first.")]
    follow_ups: list[FollowUpRow]


class IncidentReview(ApiAnswer):
    """The review of an incident, in Markdown."""

    alert: int
    text: str
    is_draft: Annotated[bool, Field(description="true: generated from the records and not edited yet.")]
    revision: Annotated[int, Field(description="Send this revision with a change.")]
