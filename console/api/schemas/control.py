"""Answers about loops, overrides and remedy ladders."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Document, Instant, Json, Seconds, Share, one_of
from console.api.schemas.account import KINDS
from workers.models import Loop, Tuning


class ReplacedOverride(ApiAnswer):
    """An override that another stands before."""

    id: int
    scope: str
    value: Json
    owner: str
    reason: str
    ended: bool = Field(description="Whether it ended then.")


class OverrideFields(ApiAnswer):
    """An override, but for when it began and ends."""

    id: int
    scope: str
    loop: str | None
    law: str | None
    queue: str | None
    node: str | None
    host: str | None = Field(description="The worker host that is drained.")
    name: str
    value: Json
    instead_of: Json = Field(description="The value that it stands before.")
    owner: str
    reason: str
    replaces: list[ReplacedOverride]
    notice_at: Instant | None = Field(description="When its owner is notified of its end.")


class SnapshotOverride(OverrideFields):
    """An override as the snapshot has it."""

    created_at: Instant
    expires_at: Instant | None = Field(description="Seconds since 1970; null: it has no end.")


class OverrideRow(OverrideFields):
    """An override."""

    created_at: datetime
    expires_at: datetime | None = Field(description="null: it has no end.")
    ended_at: datetime | None


class OverrideList(ApiAnswer):
    overrides: list[OverrideRow]


class TunedDay(ApiAnswer):
    """Cost of a day of the proof on the model of the plant, without a unit."""

    day: str
    before: float
    after: float


class TuningRow(ApiAnswer):
    """Values of a loop's parameters that its record speaks for, and how they did on the days after."""

    id: int
    loop: str = Field(description="By name.")
    state: Annotated[str, one_of(Tuning.State.values)]
    values: Document
    instead_of: Document = Field(description="What was in force when it was proposed.")
    days: list[TunedDay]
    improvement: float = Field(description="The share of the cost that is gone.")
    confidence: Share
    hash: str
    created_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    note: str = Field(description="Why it was decided so.")


class TuningList(ApiAnswer):
    tunings: list[TuningRow]


class OverrideEnd(OverrideRow):
    ended: bool = Field(description="false: it was over already.")


class OverrideUndo(ApiAnswer):
    """What was undone; empty where it was over already."""

    ended: list[OverrideRow]
    again: list[OverrideRow] = Field(description="What those had ended, in force again until its own end.")


class LoopRow(ApiAnswer):
    """A loop with what is in force."""

    id: int
    name: str
    law: str
    summary: str = Field(description="What its law does.")
    target: dict[str, str] = Field(description="The queue, node, application, … that it steers.")
    base_mode: Annotated[str, one_of(Loop.Mode.values)] = Field(description="When nobody overrides it.")
    mode: Annotated[str, one_of(Loop.Mode.values)]
    parameters: Document = Field(description="When nobody overrides them.")
    effective: Document = Field(description="The parameters in force.")
    overrides: list[OverrideRow]
    conflict: str = Field(description="Why overrides of parameters and guard do not count; empty: they do.")
    actuator: str | None = Field(description="What it sets; null: several values at once.")
    interval_seconds: Seconds
    ticked_at: datetime | None


class LoopList(ApiAnswer):
    loops: list[LoopRow]


class LoopParameter(ApiAnswer):
    """A parameter of a loop's law as it is declared, and its values."""

    name: str
    label: str
    value: Json
    effective: Json = Field(description="In force.")
    default: Json
    minimum: float
    maximum: float
    unit: str
    help: str
    kind: Annotated[str, one_of(KINDS)]
    choices: list[str]
    override: int | None


class FirstReportFigures(ApiAnswer):
    """What was, and what would have been: an estimate, but for the tasks."""

    measured_seconds: Seconds
    task_hours: float
    advised_task_hours: float
    events: float = Field(description="That came to an operator.")
    waiting_event_seconds: float | None = Field(description="null: not measured.")
    advised_waiting_event_seconds: float | None
    changes: int = Field(description="Of tasks, that were advised.")
    pause_seconds: Seconds = Field(description="Of the plant at a change; not in the waiting.")


class LoopFirstReport(ApiAnswer):
    """What the advice of a loop at another's plant would have saved in its first hour."""

    since: datetime
    until: datetime
    sentences: list[str]
    assumed: list[str] = Field(description="What the estimate rests on.")
    figures: FirstReportFigures | None = Field(description="null: too little was measured.")


class LoopDetail(LoopRow):
    declared: list[LoopParameter]
    guard: Document = Field(description="The guard's settings in force.")
    first_report: LoopFirstReport | None = Field(description="null: there is none (yet).")


class LoopMode(ApiAnswer):
    mode: Annotated[str, one_of(Loop.Mode.values)]
    override: OverrideRow | None = Field(description="Of the mode.")
    overrides: list[OverrideRow] = Field(description="All that were set: of the mode, of the actuator.")


class DesiredValue(ApiAnswer):
    """What a loop wants in force, as numbers that an autoscaler of others polls."""

    loop: int
    name: str
    mode: Annotated[str, one_of(Loop.Mode.values)]
    at: Instant = Field(description="Of the decision.")
    entry: int = Field(description="The decision's number in the ledger.")
    desired: float = Field(description="All values together: tasks, processes, or what the law sets.")
    values: dict[str, float] = Field(description="By operator, or by what the law sets.")
    reason: str


class LadderCap(ApiAnswer):
    """How far the remedies of a queue may go."""

    queue: str
    before: str
    after: str
