"""The ledger: what every loop decided and why, filtered, exported, and replayed."""

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from django.conf import settings
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Query, Schema
from pydantic import Field

from common.errors import BadInput
from common.stored_document import Instant, Seconds, Time, describe
from console.actions.exports import export, iterate_newest_first
from console.api.request.answers import EXPORTED_ROWS, Document, Json, NextPage, Router, build_answer, convert
from console.api.request.authentication import actor_for
from console.api.request.input import UtcTime, check_rows
from console.api.routes.control import get_loop_or_404
from console.connections.control_server import control, load_latest_snapshot
from console.input.form_values import Id, parse_any_value
from workers.control import costs, what_if
from workers.control.ledger import folds, ledger
from workers.control.ledger.ledger_search import LedgerFilter
from workers.control.what_if import Side
from workers.coordination import keyset
from workers.models import LedgerEntry, Loop

router = Router(tags=["ledger"])
ROWS_AT_A_TIME = 1_000
WHAT_IF_HOURS, COST_HOURS = 2.0, 1.0  # unless asked otherwise, as on the pages


class ExpectedEffect(TypedDict):
    """The expected effect of an action."""

    metric: str
    direction: Annotated[str, describe(values=("up", "down"))]
    amount: Annotated[float, describe("Expected change, in the unit of the metric.")]
    within_seconds: Seconds


class LedgerRow(TypedDict):
    """One decision of a loop, and whether it helped."""

    loop: str
    law: str
    id: int
    at: Time
    mode: Annotated[str, describe(values=Loop.Mode.values)]
    observation: Document | None
    parameters: Document
    action: Annotated[Document | None, describe("The applied action; null: none.")]
    raw: Annotated[float | None, describe("The value before the guard.")]
    guarded: Annotated[float | None, describe("The value after the guard.")]
    reason: str
    terms: Annotated[Document, describe("Numbers on which the law based the decision.")]
    limited_by: str | None
    expected: ExpectedEffect | None
    outcome: Annotated[Document | None, describe("The measured effect; null: not evaluated yet.")]
    applied: bool
    error: str
    verdict: Annotated[str, describe(values=LedgerEntry.Verdict.values)]
    code: Annotated[str, describe("Digest of the code that made the decision.")]
    folded_ticks: Annotated[int, describe("Number of earlier ticks without an action in this entry.")]
    folded_since: Annotated[Time | None, describe("Time of the first of these ticks.")]


COLUMNS = tuple(LedgerRow.__annotations__)  # of an export


class LedgerPage(TypedDict):
    """Decisions, newest first."""

    next: NextPage
    entries: list[LedgerRow]


class GuardRequest(TypedDict):
    """The guard's data when the decision was made."""

    settings: Document | None
    state: Json
    now_seconds: Instant
    age_seconds: Annotated[Seconds | None, describe("Age of the measurement, s.")]
    unfit: Annotated[Json, describe("Reasons why the measurement is invalid.")]
    idle: Json


class DecideRequest(TypedDict):
    """The input of `manage.py decide`."""

    law: str
    parameters: Document
    state: Json
    observation: Document
    guard: GuardRequest
    manual: NotRequired[Json]


class LedgerDetail(LedgerRow):
    export: DecideRequest


class ReplayedField(TypedDict):
    recorded: Json
    replayed: Json


class ReplayedDecision(TypedDict):
    """A decision as a law returns it."""

    action: Document | None
    reason: str
    terms: Document
    limited_by: str | None
    raw: float | None
    expected: ExpectedEffect | None


class LedgerReplay(TypedDict):
    """A recorded decision made again."""

    same: Annotated[
        bool | None, describe("Whether the replay made the same decision; null: the decision can't be replayed.")
    ]
    differences: Annotated[
        dict[str, ReplayedField], describe("Differences between the decision and its replay, keyed by field.")
    ]
    decision: ReplayedDecision | None
    code: Annotated[str, describe("Digest of the code that made the replay.")]
    recorded_code: str
    error: str


class RerunSeries(TypedDict):
    """The sizes of actions, decision by decision; for settings that stay, the value in force."""

    at: list[Instant]
    did: list[float]
    would: list[float]


class RerunDifference(TypedDict):
    at: Instant
    entry: int
    did: float
    would: float
    did_reason: str
    would_reason: str
    differs: bool


class WhatIf(TypedDict):
    """The recorded observations, decided with other values."""

    open_loop: str
    decisions: int
    differing: int
    skipped: Annotated[int, describe("Number of entries that are no longer valid for the law.")]
    left: Annotated[int, describe("Number of entries omitted for lack of time.")]
    first_error: str
    did: Side
    would: Side
    series: RerunSeries
    first_differences: list[RerunDifference]


class LedgerSearch(Schema):
    """The filter; omitted fields match all. `from` ≤ time < `to`; limited_by `any`: limited in any way."""

    loop: str = ""
    law: str = ""
    queue: str = ""
    node: str = ""
    verdict: str = ""
    mode: str = ""
    acted: bool | None = None
    limited_by: str = ""
    text: str = ""
    since: UtcTime | None = Field(None, alias="from")
    until: UtcTime | None = Field(None, alias="to")

    def read(self) -> LedgerFilter:
        """Return the validated filter."""
        return LedgerFilter(**self.dict()).check()


@router.get("/ledger", summary="List decisions, newest first")
def list_ledger(
    request: HttpRequest, wanted: Query[LedgerSearch], before: Id | None = None, after: Id | None = None, rows: int = 50
) -> LedgerPage:
    """Return filtered entries; `next` is the value of `before` for older ones, null at the end.

    In an old run of ticks without action the last tick represents all of them.
    """
    actor_for(request, "plant.view")
    check_rows(rows)
    chosen = wanted.read().choose(LedgerEntry.objects.select_related("loop").defer("folded"))
    page = keyset.load_page(chosen, rows, before, after)
    return {"entries": [_build_entry_row(row) for row in page.rows], "next": page.older}


@router.get("/ledger/export", openapi_extra=EXPORTED_ROWS, summary="Export all decisions that match a filter")
def export_ledger(
    request: HttpRequest,
    wanted: Query[LedgerSearch],
    format: Literal["csv", "json"] = "csv",
    ticks: Literal["folded", "all"] = "folded",
) -> HttpResponseBase:
    """Return entries as CSV, or as JSON lines; newest first.

    By default, consecutive ticks of a loop without an action are one row, the last of them, with `folded_ticks` and
    `folded_since`. `ticks=all` returns each tick, so that each can be replayed.
    """
    actor_for(request, "plant.view")
    chosen = wanted.read().choose(LedgerEntry.objects.select_related("loop"))
    stored: Iterator[LedgerEntry] = itertools.chain.from_iterable(iterate_newest_first(chosen))
    unfolded = (tick for entry in stored for tick in reversed([*folds.unfold(entry)]))
    entries = unfolded if ticks == "all" else folds.merge_idle(stored)
    return export(request, _iterate_row_batches(entries), COLUMNS, "ledger", format)


@router.get("/ledger/{entry_id}", summary="Get a decision")
def get_entry(request: HttpRequest, entry_id: Id) -> LedgerDetail:
    """Return the entry; `export` is the input of `manage.py decide`, which makes the same decision."""
    actor_for(request, "plant.view")
    entry = get_entry_or_404(entry_id)
    return convert(LedgerDetail, {**_build_entry_row(entry), "export": ledger.export(entry)})


@router.get("/ledger/{entry_id}/replay", summary="Replay a decision from its record")
def replay_entry(request: HttpRequest, entry_id: Id) -> LedgerReplay:
    """Return the replay.

    `same`: whether the decision is the recorded one; `differences`: {field: {recorded, replayed}}.
    """
    actor_for(request, "plant.view")
    return convert(LedgerReplay, ledger.replay(get_entry_or_404(entry_id)).to_json())


@router.get("/loops/{loop_id}/what-if", summary="Replay a loop's recorded decisions with other values")
def ask_what_if(
    request: HttpRequest, loop_id: Id, set: Annotated[list[str], Query(...)], hours: float = WHAT_IF_HOURS
) -> WhatIf:
    """Return what the loop would have decided with other values.

    `set`: name=value, repeated, of parameters or guard.NAME. Open-loop: the recorded observations of the last
    hours do not respond to the changed actions.
    """
    actor_for(request, "plant.view")
    changed = dict(_parse_assignment(text) for text in set)
    if not 0.0 < hours <= what_if.MAXIMUM_HOURS:
        raise BadInput("hours", f"must be more than 0 and at most {what_if.MAXIMUM_HOURS:g}, not {hours:g}.")
    loop, now = get_loop_or_404(loop_id), timezone.now()
    rerun = what_if.rerun(loop, changed, now - timedelta(hours=hours), now, time.monotonic)
    return convert(WhatIf, rerun.to_json())


@router.get("/costs", summary=("Get the plant's resource use in hours and cost"))
def get_plant_costs(request: HttpRequest, hours: float = COST_HOURS) -> costs.PlantCosts:
    """Return the costs of the last hours, up to 2."""
    actor_for(request, "plant.view")
    return costs.compute_plant_costs(control(), settings.WEIR_DATA, load_latest_snapshot(), hours, timezone.now())


@router.get("/loops/{loop_id}/costs", summary=("Get a loop's savings compared with its baselines"))
def get_loop_costs(request: HttpRequest, loop_id: Id, hours: float = COST_HOURS) -> costs.LoopCosts:
    """Return the costs of the loop's recorded load of the last hours (up to 6).

    They are simulated with the law, with its baselines, and with the recorded holds.
    """
    actor_for(request, "plant.view")
    return costs.compute_loop_costs(get_loop_or_404(loop_id), hours, timezone.now(), time.monotonic)


def _parse_assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise BadInput("set", f"must be name=value, not {text[:60]!r}.")
    return name.strip(), parse_any_value(value, "set")


def get_entry_or_404(entry_id: int) -> LedgerEntry:
    entry = folds.find_entry(entry_id)
    if entry is None:
        raise Http404(f"Ledger entry {entry_id} does not exist.")
    return entry


def _iterate_row_batches(entries: Iterator[LedgerEntry]) -> Iterator[list[dict[str, Any]]]:
    """Return rows of entries in batches, with the columns in the order of a CSV file."""
    while batch := list(itertools.islice(entries, ROWS_AT_A_TIME)):
        rows: list[dict[str, Any]] = [{**_build_entry_row(entry)} for entry in batch]
        yield [{name: row[name] for name in COLUMNS} for row in rows]


def _build_entry_row(entry: LedgerEntry) -> LedgerRow:
    return build_answer(LedgerRow, entry, loop=entry.loop.name, law=entry.loop.law)
