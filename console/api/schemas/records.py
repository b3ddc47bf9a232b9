"""Answers about the ledger and the audit log, in pages; and about the weekly report."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Document, Instant, Json, Seconds, Share, build_enum_field
from workers.models import LedgerEntry, Loop


class CursorPage(ApiAnswer):
    """Rows, newest first, and where older ones start."""

    next: Annotated[int | None, Field(description="The value of `before` for the next page; null: last page.")]


class AuditRow(ApiAnswer):
    """One change by a person or a token."""

    id: int
    at: datetime
    actor: Annotated[str, Field(description="A username, or token:NAME.")]
    action: str
    target: str
    reason: str
    before: Json
    after: Json
    address: str | None
    request_id: str


class AuditPage(CursorPage):
    """Changes, newest first."""

    entries: list[AuditRow]


class ExpectedEffect(ApiAnswer):
    """The expected effect of an action."""

    metric: str
    direction: Annotated[str, build_enum_field(("up", "down"))]
    amount: Annotated[float, Field(description="Expected change, in the unit of the metric.")]
    within_seconds: Seconds


class LedgerRow(ApiAnswer):
    """One decision of a loop, and whether it helped."""

    loop: str
    law: str
    id: int
    at: datetime
    mode: Annotated[str, build_enum_field(Loop.Mode.values)]
    observation: Document | None
    parameters: Document
    action: Annotated[Document | None, Field(description="null: no action.")]
    raw: Annotated[float | None, Field(description="The value before the guard.")]
    guarded: Annotated[float | None, Field(description="The value after the guard.")]
    reason: str
    terms: Annotated[Document, Field(description="The numbers that the law weighed.")]
    limited_by: str | None
    expected: ExpectedEffect | None
    outcome: Annotated[Document | None, Field(description="The measured effect; null: not evaluated yet.")]
    applied: bool
    error: str
    verdict: Annotated[str, build_enum_field(LedgerEntry.Verdict.values)]
    code: Annotated[str, Field(description="Digest of the code that made the decision.")]
    folded_ticks: Annotated[int, Field(description="Number of earlier ticks without an action in this entry.")]
    folded_since: Annotated[datetime | None, Field(description="Time of the first of these ticks.")]


class LedgerPage(CursorPage):
    """Decisions, newest first."""

    entries: list[LedgerRow]


class GuardRequest(ApiAnswer):
    """The guard's data when the decision was made."""

    settings: Document | None
    state: Json
    now_seconds: Instant
    age_seconds: Annotated[Seconds | None, Field(description="Age of the measurement, s.")]
    unfit: Annotated[Json, Field(description="Why the measurement is invalid.")]
    idle: Json


class DecideRequest(ApiAnswer):
    """The input of `manage.py decide`."""

    law: str
    parameters: Document
    state: Json
    observation: Document
    guard: GuardRequest
    manual: NotRequired[Json]


class LedgerDetail(LedgerRow):
    export: DecideRequest


class ReplayedField(ApiAnswer):
    recorded: Json
    replayed: Json


class ReplayedDecision(ApiAnswer):
    """A decision as a law returns it."""

    action: Document | None
    reason: str
    terms: Document
    limited_by: str | None
    raw: float | None
    expected: ExpectedEffect | None


class LedgerReplay(ApiAnswer):
    """A recorded decision made again."""

    same: Annotated[bool | None, Field(description="null: the decision can't be replayed.")]
    differences: Annotated[dict[str, ReplayedField], Field(description="Keyed by field.")]
    decision: ReplayedDecision | None
    code: Annotated[str, Field(description="Digest of the code that made the replay.")]
    recorded_code: str
    error: str


class RerunSide(ApiAnswer):
    """The results of one side."""

    actions: int
    total: Annotated[float, Field(description="The sum of all actions.")]
    movement: Annotated[float, Field(description="The sum of the changes between decisions.")]


class RerunSeries(ApiAnswer):
    """The sizes of actions, decision by decision; for settings that stay, the value in force."""

    at: list[Instant]
    did: list[float]
    would: list[float]


class RerunDifference(ApiAnswer):
    at: Instant
    entry: int
    did: float
    would: float
    did_reason: str
    would_reason: str
    differs: bool


class CostPriceList(ApiAnswer):
    """Prices in one currency; null: not set."""

    worker_hour: float | None
    node_hour: float | None
    lost_event: float | None
    delay_second: float | None


class CostSideRow(ApiAnswer):
    """The results of one side on the load. Money is null if a price or an amount is missing."""

    name: str
    words: str
    runs: Annotated[float, Field(description="Number of worker runs.")]
    worker_hours: float | None
    late_seconds: Annotated[Seconds, Field(description="Time during which the oldest event waited too long, s.")]
    workers_cost: float | None
    late_cost: float | None
    cost: float | None


class CostDifferenceRow(ApiAnswer):
    """The additional cost of another side compared with the law; below 0 less."""

    side: CostSideRow
    worker_hours: float | None
    late_seconds: Seconds
    cost: float | None


class LoopCostsDetail(ApiAnswer):
    """A loop compared with its baselines on its recorded load, simulated on a model of the plant."""

    hours: float
    recorded_seconds: int
    run_seconds: Annotated[float | None, Field(description="Mean duration of a run, s.")]
    prices: CostPriceList
    law: CostSideRow
    baselines: list[CostDifferenceRow]
    held_seconds: int
    holds: Annotated[
        CostDifferenceRow | None,
        Field(description="The law with the recorded holds, compared with the law without holds."),
    ]


class PlantCostsDetail(ApiAnswer):
    """Resources that the plant used. Money is null if a price or an amount is missing."""

    hours: float
    measured_seconds: float
    worker_hours: float | None
    node_hours: float | None
    lost_events: Annotated[int | None, Field(description="Number of shed events.")]
    workers_cost: float | None
    nodes_cost: float | None
    lost_cost: float | None


class WhatIf(ApiAnswer):
    """The recorded observations, decided with other values."""

    open_loop: str
    decisions: int
    differing: int
    skipped: Annotated[int, Field(description="Number of entries that are no longer valid for the law.")]
    left: Annotated[int, Field(description="Number of entries omitted for lack of time.")]
    first_error: str
    did: RerunSide
    would: RerunSide
    series: RerunSeries
    first_differences: list[RerunDifference]


class PromiseRow(ApiAnswer):
    """An objective in the week."""

    name: str
    target: Share
    good_share: Annotated[Share | None, Field(description="null: not counted.")]
    burnt: Annotated[float | None, Field(description="Used share of the whole window's error budget.")]
    known_from: Annotated[
        datetime | None,
        Field(
            description=(
                "Start of the stored data if it is after the start of the week; null: the whole week is stored."
            )
        ),
    ]
    missed: bool


class ReportedIncident(ApiAnswer):
    """An incident of the week; the most severe and longest come first."""

    alert: int
    title: str
    severity: str
    fired_at: datetime
    seconds: Seconds
    acknowledged_by: Annotated[str, Field(description="Empty: not acknowledged.")]
    outcome: Annotated[str, Field(description="Summary of the loop actions on the incident.")]


class LoopWeekRow(ApiAnswer):
    """Actions of a loop in the week."""

    loop: int
    name: str
    actions: int
    effective: int
    harmful: int
    ineffective: int
    advice: Annotated[int, Field(description="Number of decisions in modes that don't act.")]


class OverriddenRow(ApiAnswer):
    """An override and its reason."""

    number: int
    what: str
    value: str
    owner: str
    reason: str
    since: datetime
    until: Annotated[datetime | None, Field(description="null: no expiry.")]


class ProposedRow(ApiAnswer):
    """A proposal and its result."""

    what: str
    expected: Annotated[str, Field(description="The expected effect; empty if unknown.")]
    state: str
    at: datetime


class WeeklyReport(ApiAnswer):
    """Seven days of the plant. Lists have the first 20 items."""

    since: datetime
    until: datetime
    sentence: str
    objectives: list[PromiseRow]
    incidents: list[ReportedIncident]
    loops: list[LoopWeekRow]
    overrides: list[OverriddenRow]
    proposals: list[ProposedRow]
    text: Annotated[str, Field(description="The text of the email.")]
