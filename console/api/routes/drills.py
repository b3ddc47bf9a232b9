"""Drills: practice incidents on the embedded plant, and their results."""

from typing import Annotated, Literal, TypedDict

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from common.stored_document import Time, describe
from console.actions.exports import export
from console.actions.lab import drills
from console.api.request.answers import EXPORTED_ROWS, Router, build_answer
from console.api.request.authentication import actor_for
from console.api.request.input import RequestBody, UtcTime, check_rows
from console.connections.control_server import load_live_snapshot
from console.drills.results import COLUMNS, build_export_row
from console.input.form_values import Id
from console.models import Drill

router = Router(tags=["drills"])


class DrillRow(TypedDict):
    """A drill. Its scenario is hidden until a surprise drill has started."""

    id: int
    scenario: str
    person: Annotated[str, describe('Username of the person who responds; "": nobody yet.')]
    is_surprise: bool
    started_at: Annotated[Time | None, describe("The time of the first fault; null: not yet.")]
    ended_at: Time | None
    ending: str
    score: Annotated[int | None, describe("0 to 100; null: not scored.")]


class DrillList(TypedDict):
    refusal: Annotated[str | None, describe("Why drills can't run on this plant; null: they can.")]
    drills: list[DrillRow]


class DrillStart(RequestBody):
    """scenario: such as slow-handler."""

    scenario: str


class DrillWindow(RequestBody):
    """A drill at a random time of this window; `from` is now if it is missing."""

    until: UtcTime
    begin: UtcTime | None = None


def describe_drill(drill: Drill) -> DrillRow:
    row = build_answer(DrillRow, drill)
    if drill.is_surprise and drill.started_at is None:
        row["scenario"] = ""
    return row


@router.get("/drills", summary="List drills, newest first")
def list_drills(request: HttpRequest, rows: int = 50) -> DrillList:
    actor_for(request, "plant.view")
    check_rows(rows)
    listed = [describe_drill(drill) for drill in Drill.objects.order_by("-pk")[:rows]]
    return {"refusal": drills.explain_absence(), "drills": listed}


@router.get("/drills/export", openapi_extra=EXPORTED_ROWS, summary="Export the results of all drills")
def export_drills(request: HttpRequest, format: Literal["csv", "json"] = "csv") -> HttpResponseBase:
    """Return a row for each drill that has started, the oldest first."""
    actor_for(request, "plant.view")
    rows = Drill.objects.exclude(started_at=None).order_by("started_at")
    return export(request, iter([[build_export_row(drill) for drill in rows]]), COLUMNS, "drills", format)


@router.post("/drills", summary="Start a drill")
def start_drill(request: HttpRequest, body: DrillStart) -> DrillRow:
    actor = actor_for(request, "drill.run")
    return describe_drill(drills.start(actor, body.scenario, load_live_snapshot(), timezone.now()))


@router.post("/drills/schedule", summary="Schedule a surprise drill at a random time of a window")
def schedule_drill(request: HttpRequest, body: DrillWindow) -> DrillRow:
    actor, now = actor_for(request, "drill.run"), timezone.now()
    return describe_drill(drills.schedule(actor, body.begin or now, body.until, load_live_snapshot(), now))


@router.post("/drills/{drill_id}/stop", summary="Stop a drill and end its faults, or cancel a scheduled drill")
def stop_drill(request: HttpRequest, drill_id: Id) -> DrillRow:
    return describe_drill(drills.stop(actor_for(request, "drill.run"), drill_id, timezone.now()))
