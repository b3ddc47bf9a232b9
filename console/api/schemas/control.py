"""Answers about loops, overrides, and remedy ladders."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Document, Instant, Json, Seconds, Share, build_enum_field
from console.api.schemas.account import KINDS
from workers.models import Loop, Tuning


class ReplacedOverride(ApiAnswer):
    """An override that another one replaces."""

    id: int
    scope: str
    value: Json
    owner: str
    reason: str
    ended: Annotated[bool, Field(description="Whether the new override ended this one.")]


class OverrideFields(ApiAnswer):
    """An override without its start and expiry."""

    id: int
    scope: str
    loop: str | None
    law: str | None
    queue: str | None
    node: str | None
    host: Annotated[str | None, Field(description="The drained worker host.")]
    name: str
    value: Json
    instead_of: Annotated[Json, Field(description="The value that the override replaces.")]
    owner: str
    reason: str
    replaces: list[ReplacedOverride]
    notice_at: Annotated[Instant | None, Field(description="When its owner is notified of its expiry.")]


class SnapshotOverride(OverrideFields):
    """An override in the snapshot."""

    created_at: Instant
    expires_at: Annotated[Instant | None, Field(description="Unix time; null: no expiry.")]


class OverrideRow(OverrideFields):
    """An override."""

    created_at: datetime
    expires_at: Annotated[datetime | None, Field(description="null: no expiry.")]
    ended_at: datetime | None


class OverrideList(ApiAnswer):
    overrides: list[OverrideRow]


class TunedDay(ApiAnswer):
    """The cost of one validation day on the model of the plant, without a unit."""

    day: str
    before: float
    after: float


class TuningRow(ApiAnswer):
    """Values of a loop's parameters learned from its record, and how they performed on the following days."""

    id: int
    loop: Annotated[str, Field(description="Name of the loop.")]
    state: Annotated[str, build_enum_field(Tuning.State.values)]
    values: Document
    instead_of: Annotated[Document, Field(description="Values in force when it was proposed.")]
    days: list[TunedDay]
    improvement: Annotated[float, Field(description="Cost savings, as a share.")]
    confidence: Share
    hash: str
    created_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    note: Annotated[str, Field(description="The reason for the decision.")]


class TuningList(ApiAnswer):
    tunings: list[TuningRow]


class OverrideEnd(OverrideRow):
    ended: Annotated[bool, Field(description="false: already ended.")]


class OverrideUndo(ApiAnswer):
    """The reverted changes; empty if the intervention had already ended."""

    ended: list[OverrideRow]
    again: Annotated[
        list[OverrideRow], Field(description=("Earlier overrides that are in force again until their own expiry."))
    ]


class LoopRow(ApiAnswer):
    """A loop with what is in force."""

    id: int
    name: str
    law: str
    summary: Annotated[str, Field(description="Description of its law.")]
    target: Annotated[
        dict[str, str], Field(description="The queue, node, application, or other subject that the loop controls.")
    ]
    base_mode: Annotated[
        Annotated[str, build_enum_field(Loop.Mode.values)], Field(description="The mode without overrides.")
    ]
    mode: Annotated[str, build_enum_field(Loop.Mode.values)]
    parameters: Annotated[Document, Field(description="The parameters without overrides.")]
    effective: Annotated[Document, Field(description="The parameters in force.")]
    overrides: list[OverrideRow]
    conflict: Annotated[
        str, Field(description="Why overrides of parameters and guard settings are ignored; empty: they apply.")
    ]
    actuator: Annotated[str | None, Field(description="The value that the loop sets; null: several values at once.")]
    interval_seconds: Seconds
    ticked_at: datetime | None


class LoopList(ApiAnswer):
    loops: list[LoopRow]


class LoopParameter(ApiAnswer):
    """A parameter of a loop's law as declared, and its values."""

    name: str
    label: str
    value: Json
    effective: Annotated[Json, Field(description="The value in force.")]
    default: Json
    minimum: float
    maximum: float
    unit: str
    help: str
    kind: Annotated[str, build_enum_field(KINDS)]
    choices: list[str]
    override: int | None


class FirstReportFigures(ApiAnswer):
    """Actual and hypothetical figures: estimates, except for the tasks."""

    measured_seconds: Seconds
    task_hours: float
    advised_task_hours: float
    events: Annotated[float, Field(description="Number of events that arrived at an operator.")]
    waiting_event_seconds: Annotated[float | None, Field(description="null: not measured.")]
    advised_waiting_event_seconds: float | None
    changes: Annotated[int, Field(description="Number of advised changes to the number of tasks.")]
    pause_seconds: Annotated[
        Seconds, Field(description=("Pause of the plant at a change; not included in the waiting time."))
    ]


class LoopFirstReport(ApiAnswer):
    """The savings that the advice of a loop at an attached plant would have had in its first hour."""

    since: datetime
    until: datetime
    sentences: list[str]
    assumed: Annotated[list[str], Field(description="Assumptions of the estimate.")]
    figures: Annotated[FirstReportFigures | None, Field(description="null: not enough measurements.")]


class LoopDetail(LoopRow):
    declared: list[LoopParameter]
    guard: Annotated[Document, Field(description="The guard's settings in force.")]
    first_report: Annotated[LoopFirstReport | None, Field(description="null: no report yet.")]


class LoopMode(ApiAnswer):
    mode: Annotated[str, build_enum_field(Loop.Mode.values)]
    override: Annotated[OverrideRow | None, Field(description="Override of the mode.")]
    overrides: Annotated[
        list[OverrideRow], Field(description="All overrides that were set, for the mode and the actuator.")
    ]


class DesiredValue(ApiAnswer):
    """The desired value of a loop, as numbers that an external autoscaler polls."""

    loop: int
    name: str
    mode: Annotated[str, build_enum_field(Loop.Mode.values)]
    at: Annotated[Instant, Field(description="Time of the decision.")]
    entry: Annotated[int, Field(description="The decision's number in the ledger.")]
    desired: Annotated[float, Field(description="Sum of all values, such as tasks or processes.")]
    values: Annotated[dict[str, float], Field(description="Keyed by operator, or by another output of the law.")]
    reason: str


class LadderCap(ApiAnswer):
    """How far the remedies of a queue may go."""

    queue: str
    before: str
    after: str
