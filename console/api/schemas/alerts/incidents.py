"""Incidents: what changed before them, their timeline, and their follow-ups."""

from datetime import date, datetime
from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Seconds, one_of
from console.api.schemas.alerts.alerts import Severity


class ChangeRow(ApiAnswer):
    """A change."""

    kind: str
    at: datetime
    words: str
    by: str
    ref: Annotated[
        str, Field(description="Its row, such as override:12, or rows (overrides:12,13); empty: none.")
    ]
    parts: Annotated[
        list[str], Field(description="Its subjects, such as queue/alert; none: the whole plant.")
    ]
    times: Annotated[
        float, Field(description="Size of a rate's change as a multiple of the minimum; else 1.")
    ]
    over_at: Annotated[
        datetime | None, Field(description="When it ends or ended; null: it is in force, or has no end.")
    ]


class ChangeList(ApiAnswer):
    changes: Annotated[list[ChangeRow], Field(description="The newest first.")]


class IncidentChangeRow(ApiAnswer):
    """A change before an incident, with its distance and how often its kind preceded such incidents."""

    kind: str
    at: datetime
    words: str
    by: str
    ref: Annotated[str, Field(description="Its row, such as override:12; empty if it has none.")]
    steps: Annotated[int | None, Field(description="Steps upstream of the disturbed part; null: unknown.")]
    delay_seconds: Annotated[Seconds, Field(description="From the change to the onset.")]
    weight: Annotated[float, Field(description="Score of the ranking; greater is more likely.")]
    before: Annotated[
        int, Field(description="Earlier incidents of this condition that such a change preceded.")
    ]
    incidents: Annotated[int, Field(description="Number of earlier incidents considered.")]
    url: Annotated[str, Field(description="Address with details.")]
    undo: Annotated[str, Field(description="Label of the button that undoes it; empty: there is none.")]


class IncidentChanges(ApiAnswer):
    """Changes before an incident, the most likely cause first."""

    alert: int
    onset: datetime
    reach_seconds: Annotated[Seconds, Field(description="Length of the search before the onset.")]
    changes: list[IncidentChangeRow]


class FollowUpRow(ApiAnswer):
    """A follow-up of an incident."""

    id: int
    alert: int
    text: str
    owner: Annotated[str, Field(description="A user name; empty: unassigned.")]
    due_on: date | None
    created_at: datetime
    done_at: Annotated[datetime | None, Field(description="null: it is open.")]


class FollowUpList(ApiAnswer):
    follow_ups: Annotated[list[FollowUpRow], Field(description="Open follow-ups, the soonest due first.")]


class IncidentEventRow(ApiAnswer):
    """An event of an incident's timeline."""

    at: datetime
    kind: Annotated[str, one_of(("change", "alert", "loop", "plan", "person", "note"))]
    words: str
    by: str
    url: str


class IncidentDetail(ApiAnswer):
    """An incident, in addition to its alert."""

    alert: int
    severity: Annotated[Severity, Field(description="As a person set it, else that of its rule.")]
    roles: Annotated[dict[str, str], Field(description="Role → user name.")]
    mitigated_at: datetime | None
    retained_since: Annotated[
        datetime | None, Field(description="Data from then on is kept; null: the usual retention.")
    ]
    retained_until: datetime | None
    detect_seconds: Annotated[Seconds | None, Field(description="From the onset to the alert.")]
    acknowledge_seconds: Annotated[
        Seconds | None, Field(description=("From the alert on, as the following ones."))
    ]
    mitigate_seconds: Seconds | None
    resolve_seconds: Seconds | None
    timeline: Annotated[list[IncidentEventRow], Field(description="The oldest first.")]
    follow_ups: list[FollowUpRow]


class IncidentReview(ApiAnswer):
    """The review of an incident, in Markdown."""

    alert: int
    text: str
    is_draft: Annotated[bool, Field(description="true: a draft from the records; nobody has edited it.")]
    revision: Annotated[int, Field(description="To be sent with a change.")]
