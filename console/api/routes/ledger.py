"""The ledger: what every loop decided and why, filtered, exported, and replayed."""

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from django.conf import settings
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Query, Schema
from pydantic import Field

from common.errors import BadInput
from console.actions.exports import export, iterate_newest_first
from console.api.answer.files import EXPORTED_ROWS
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.instant import UtcTime
from console.api.request.rows import check_rows
from console.api.routes.control import get_loop_or_404
from console.api.schemas.records import (
    CostDifferenceRow,
    CostPriceList,
    CostSideRow,
    LedgerDetail,
    LedgerPage,
    LedgerReplay,
    LedgerRow,
    LoopCostsDetail,
    PlantCostsDetail,
    WhatIf,
)
from console.connections.control_server import control, load_latest_snapshot
from console.input.form_values import parse_any_value
from console.input.row_id import Id
from console.pages.loops import what_if
from console.pages.records.costs import FIRST_HOURS
from workers.control import costs
from workers.control.ledger import folds, ledger
from workers.control.ledger.ledger_filter import LedgerFilter
from workers.coordination import keyset
from workers.models import LedgerEntry

router = Router(tags=["ledger"])
ENTRY_FIELDS = (
    "id",
    "at",
    "mode",
    "observation",
    "parameters",
    "action",
    "raw",
    "guarded",
    "reason",
    "terms",
    "limited_by",
    "expected",
    "outcome",
    "applied",
    "error",
    "verdict",
    "code",
)
TICKS_AT_A_TIME = 1_000
FOLD_FIELDS = ("folded_ticks", "folded_since")
COLUMNS = ("loop", "law", *ENTRY_FIELDS)


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


@router.get("/ledger", response=LedgerPage, summary="List decisions, newest first")
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
    request: HttpRequest, wanted: Query[LedgerSearch], format: Literal["csv", "json"] = "csv"
) -> HttpResponseBase:
    """Return all entries as CSV, or as JSON lines; newest first, with each tick of a run."""
    actor_for(request, "plant.view")
    chosen = wanted.read().choose(LedgerEntry.objects.select_related("loop"))
    return export(request, _iterate_tick_batches(iterate_newest_first(chosen)), COLUMNS, "ledger", format)


@router.get("/ledger/{entry_id}", response=LedgerDetail, summary="Get a decision")
def get_entry(request: HttpRequest, entry_id: Id) -> LedgerDetail:
    """Return the entry; `export` is the input of `manage.py decide`, which makes the same decision."""
    actor_for(request, "plant.view")
    entry = get_entry_or_404(entry_id)
    return convert(LedgerDetail, {**_build_entry_row(entry), "export": ledger.export(entry)})


@router.get("/ledger/{entry_id}/replay", response=LedgerReplay, summary="Replay a decision from its record")
def replay_entry(request: HttpRequest, entry_id: Id) -> LedgerReplay:
    """Return the replay.

    `same`: whether the decision is the recorded one; `differences`: {field: {recorded, replayed}}.
    """
    actor_for(request, "plant.view")
    return convert(LedgerReplay, ledger.replay(get_entry_or_404(entry_id)).to_json())


@router.get("/loops/{loop_id}/what-if", response=WhatIf, summary="Replay a loop's recorded decisions with other values")
def ask_what_if(
    request: HttpRequest, loop_id: Id, set: Annotated[list[str], Query(...)], hours: float = what_if.FIRST_HOURS
) -> WhatIf:
    """Return what the loop would have decided with other values.

    `set`: name=value, repeated, of parameters or guard.NAME. Open-loop: the recorded observations of the last
    hours do not respond to the changed actions.
    """
    actor_for(request, "plant.view")
    changed = dict(_parse_assignment(text) for text in set)
    rerun = what_if.rerun(get_loop_or_404(loop_id), changed, what_if.parse_hours(str(hours)), timezone.now())
    return convert(WhatIf, rerun.to_json())


@router.get("/costs", response=PlantCostsDetail, summary=("Get the plant's resource use in hours and cost"))
def get_plant_costs(request: HttpRequest, hours: float = FIRST_HOURS) -> PlantCostsDetail:
    """Return the costs of the last hours, up to 2."""
    actor_for(request, "plant.view")
    plant_costs = costs.compute_plant_costs(
        control(), settings.WEIR_DATA, load_latest_snapshot(), hours, timezone.now()
    )
    return convert(PlantCostsDetail, vars(plant_costs))


@router.get(
    "/loops/{loop_id}/costs", response=LoopCostsDetail, summary=("Get a loop's savings compared with its baselines")
)
def get_loop_costs(request: HttpRequest, loop_id: Id, hours: float = FIRST_HOURS) -> LoopCostsDetail:
    """Return the costs of the loop's recorded load of the last hours (up to 6).

    They are simulated with the law, with its baselines, and with the recorded holds.
    """
    actor_for(request, "plant.view")
    loop_costs = costs.compute_loop_costs(get_loop_or_404(loop_id), hours, timezone.now(), time.monotonic)
    return {
        "hours": loop_costs.hours,
        "recorded_seconds": loop_costs.recorded_seconds,
        "run_seconds": loop_costs.run_seconds,
        "held_seconds": loop_costs.held_seconds,
        "prices": convert(CostPriceList, vars(loop_costs.prices)),
        "law": _build_side_row(loop_costs.law),
        "baselines": [_build_difference_row(baseline) for baseline in loop_costs.baselines],
        "holds": None if loop_costs.holds is None else _build_difference_row(loop_costs.holds),
    }


def _build_side_row(side: costs.CostSide) -> CostSideRow:
    return convert(CostSideRow, {**vars(side), "cost": side.cost})


def _build_difference_row(found: costs.CostDifference) -> CostDifferenceRow:
    return convert(CostDifferenceRow, {**vars(found), "side": _build_side_row(found.side)})


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


def _iterate_tick_batches(pages: Iterable[Iterable[LedgerEntry]]) -> Iterator[list[dict[str, Any]]]:
    """Return ticks newest first, with those folded into each, which may be hundreds, in batches."""
    rows: list[dict[str, Any]] = []
    for entry in itertools.chain.from_iterable(pages):
        rows += [_get_entry_fields(tick) for tick in reversed([*folds.unfold(entry)])]
        if len(rows) >= TICKS_AT_A_TIME:
            yield rows
            rows = []
    if rows:
        yield rows


def _build_entry_row(entry: LedgerEntry) -> LedgerRow:
    folded = {name: getattr(entry, name) for name in FOLD_FIELDS}
    return convert(LedgerRow, {**_get_entry_fields(entry), **folded})


def _get_entry_fields(entry: LedgerEntry) -> dict[str, Any]:
    fields = {name: getattr(entry, name) for name in ENTRY_FIELDS}
    return {"loop": entry.loop.name, "law": entry.loop.law, **fields}
