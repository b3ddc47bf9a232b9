"""Service levels: objectives with their remaining budgets, and what used them; created and changed."""

from typing import Annotated, Any, TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Instant, Share, Time, describe
from console.actions import objectives
from console.api.request.answers import Router, build_answer, convert, get_or_404
from console.api.request.authentication import actor_for
from console.api.request.input import Reason, RequestBody
from console.connections.control_server import load_live_snapshot
from workers.documents.objectives import ObjectiveStatus
from workers.objectives import definitions
from workers.objectives.models import Objective
from workers.objectives.report import HourCount, SubjectBurn

router = Router(tags=["objectives"])
Kind = Annotated[str, describe(values=Objective.Kind.values)]
PaysFor = Annotated[str, describe(values=Objective.PaysFor.values)]


class ObjectiveRow(TypedDict):
    """An objective and its status."""

    name: str
    revision: int
    kind: Kind
    subject: Annotated[str, describe("Name of the subject; empty: the plant, or every subject of this kind.")]
    condition: Annotated[str, describe("The condition of a good second.")]
    lost: Annotated[str, describe("The rate of bad events.")]
    of: Annotated[str, describe("The rate of all events.")]
    target: Share
    window_days: int
    pays_for: PaysFor
    changed_by: str | None
    changed_at: Time
    status: Annotated[ObjectiveStatus | None, describe("Current state of the objective; null: not counted yet.")]


class ObjectiveList(TypedDict):
    objectives: list[ObjectiveRow]


class BurnIncident(TypedDict):
    """Bad seconds or events while an alert was open."""

    alert: int
    title: str
    since: Instant
    until: Instant | None
    bad: float


class ObjectiveDetail(ObjectiveRow):
    """One objective, and what used its budget."""

    cost: Annotated[float | None, describe("Cost of the violations at the plant's prices; null: unknown.")]
    hours: list[HourCount]
    subjects: list[SubjectBurn]
    incidents: list[BurnIncident]


class ObjectiveRemoval(TypedDict):
    removed: str


class ObjectiveFields(RequestBody):
    """Fields of an objective; omitted fields keep their values.

    `revision`: of the objective as it was read.
    """

    fields: dict[str, Any]
    reason: str
    revision: int | None = None


@router.get("/objectives", summary="List objectives with their remaining budgets")
def list_objectives(request: HttpRequest) -> ObjectiveList:
    actor_for(request, "plant.view")
    return {"objectives": [_build_objective_row(objective) for objective in Objective.objects.order_by("name")]}


@router.get("/objectives/{name}", summary="Get an objective and its budget use")
def get_objective(request: HttpRequest, name: str) -> ObjectiveDetail:
    """Return an objective with its window, the hours with counts, and the subjects and incidents that used most."""
    actor_for(request, "plant.view")
    objective_row = _find_objective(name)
    burnt = objectives.build_burn_report(objective_row, timezone.now())
    return {
        **_build_objective_row(objective_row),
        "cost": burnt.cost,
        "hours": list(burnt.hours),
        "subjects": list(burnt.subjects),
        "incidents": [build_answer(BurnIncident, incident.incident, bad=incident.bad) for incident in burnt.incidents],
    }


@router.post("/objectives/{name}", summary="Create or change an objective")
def change_objective(request: HttpRequest, name: str, body: ObjectiveFields) -> ObjectiveRow:
    actor, now = actor_for(request, "objective.change"), timezone.now()
    made = objectives.define(actor, name, body.fields, reason=body.reason, now=now, revision=body.revision)
    return _build_objective_row(made)


@router.post("/objectives/{name}/remove", summary="Remove an objective and its counts")
def remove_objective(request: HttpRequest, name: str, body: Reason) -> ObjectiveRemoval:
    actor = actor_for(request, "objective.change")
    objectives.remove(actor, _find_objective(name), reason=body.reason)
    return {"removed": name}


def _build_objective_row(objective: Objective) -> ObjectiveRow:
    """Return the objective, and its status in the current snapshot.

    The status is null if the objective is not counted yet, or not now.
    """
    status = load_live_snapshot().objectives.get(objective.name)
    by = objective.changed_by.get_username() if objective.changed_by else None
    more = {"changed_by": by, "changed_at": objective.changed_at, "status": status}
    return convert(ObjectiveRow, {**definitions.document(objective), **more})


def _find_objective(name: str) -> Objective:
    message = f"Objective {name} is unknown. GET /api/v1/objectives lists the objectives."
    return get_or_404(Objective.objects.all(), message, name=name)
