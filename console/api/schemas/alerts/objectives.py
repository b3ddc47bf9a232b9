"""Service levels, and what used their budgets."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, Share, build_enum_field
from workers.objectives.models import Objective

Kind = Annotated[str, build_enum_field(Objective.Kind.values)]
PaysFor = Annotated[str, build_enum_field(Objective.PaysFor.values)]


class RunningMinute(ApiAnswer):
    """Counts of the current minute."""

    revision: Annotated[int, Field(description="The objective's revision.")]
    minute: Annotated[int, Field(description="Since 1970.")]
    bad: float
    total: float
    carried: NotRequired[
        Annotated[
            float, Field(description="Bad seconds or events that are not yet counted; the next seconds include them.")
        ]
    ]


class ObjectiveStatus(ApiAnswer):
    """The status of an objective, in seconds or events (`unit`)."""

    target: Share
    window_days: float
    kind: Kind
    subject: str
    unit: Annotated[str, build_enum_field(("s", "events"))]
    pays_for: PaysFor
    bad: float
    total: Annotated[float, Field(description="Seconds or events counted in the window, without unknown parts.")]
    left: Annotated[float, Field(description="Remaining error budget; below 0: overspent. Loops use this value.")]
    left_share: Annotated[
        float | None, Field(description=("Remaining share of the budget; null: nothing was counted."))
    ]
    window_budget: Annotated[
        float | None, Field(description="Error budget of the whole window, extrapolated from the counted part.")
    ]
    bad_per_second: float | None
    per_second: float | None
    burn: Annotated[dict[str, float | None], Field(description="Burn rate by pair of windows.")]
    running: NotRequired[Annotated[RunningMinute | None, Field(description="null: already stored.")]]
    last_error: Annotated[str | None, Field(description="Why the objective is not evaluated.")]


class ObjectiveRow(ApiAnswer):
    """An objective and its status."""

    name: str
    revision: int
    kind: Kind
    subject: Annotated[str, Field(description="Empty: the plant, or every subject of this kind.")]
    condition: Annotated[str, Field(description="The condition of a good second.")]
    lost: Annotated[str, Field(description="The rate of bad events.")]
    of: Annotated[str, Field(description="The rate of all events.")]
    target: Share
    window_days: int
    pays_for: PaysFor
    changed_by: str | None
    changed_at: datetime
    status: Annotated[ObjectiveStatus | None, Field(description="null: not counted yet.")]


class ObjectiveList(ApiAnswer):
    objectives: list[ObjectiveRow]


class BurnHour(ApiAnswer):
    """Counts of an hour."""

    at: Instant
    bad: float
    total: float


class BurnSubject(ApiAnswer):
    """Bad seconds or events of a subject."""

    subject: str
    bad: float


class BurnIncident(ApiAnswer):
    """Bad seconds or events while an alert was open."""

    alert: int
    title: str
    since: Instant
    until: Instant | None
    bad: float


class ObjectiveDetail(ObjectiveRow):
    """One objective, and what used its budget."""

    hours: list[BurnHour]
    subjects: list[BurnSubject]
    incidents: list[BurnIncident]


class ObjectiveRemoval(ApiAnswer):
    removed: str
