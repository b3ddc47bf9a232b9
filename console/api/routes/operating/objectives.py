"""Service levels: objectives with their remaining budgets, and what used them; created and changed."""

from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone

from common.stored_document import convert_to_plain
from console.actions import objectives
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason, RequestBody
from console.api.schemas.alerts.objectives import ObjectiveDetail, ObjectiveList, ObjectiveRemoval, ObjectiveRow
from console.connections.control_server import load_live_snapshot
from workers.objectives import definitions
from workers.objectives.models import Objective

router = Router(tags=["objectives"])


class ObjectiveFields(RequestBody):
    """Fields of an objective; omitted fields keep their values.

    `revision`: of the objective as it was read.
    """

    fields: dict[str, Any]
    reason: str
    revision: int | None = None


@router.get("/objectives", response=ObjectiveList, summary="List objectives with their remaining budgets")
def list_objectives(request: HttpRequest) -> ObjectiveList:
    actor_for(request, "plant.view")
    return {"objectives": [_build_objective_row(objective) for objective in Objective.objects.order_by("name")]}


@router.get("/objectives/{name}", response=ObjectiveDetail, summary="Get an objective and its budget use")
def get_objective(request: HttpRequest, name: str) -> ObjectiveDetail:
    """Return an objective with its window.

    It has the hours with any counts, and the subjects and incidents that used most.
    """
    actor_for(request, "plant.view")
    objective_row = _find_objective(name)
    burnt = objectives.build_burn_report(objective_row, timezone.now())
    return {
        **_build_objective_row(objective_row),
        "hours": [{"at": hour.at, "bad": hour.bad, "total": hour.total} for hour in burnt.hours],
        "subjects": [{"subject": subject.subject, "bad": subject.bad} for subject in burnt.subjects],
        "incidents": [
            {
                "alert": incident.incident.alert,
                "title": incident.incident.title,
                "since": incident.incident.since,
                "until": incident.incident.until,
                "bad": incident.bad,
            }
            for incident in burnt.incidents
        ],
    }


@router.post("/objectives/{name}", response=ObjectiveRow, summary="Create or change an objective")
def change_objective(request: HttpRequest, name: str, body: ObjectiveFields) -> ObjectiveRow:
    actor, now = actor_for(request, "objective.change"), timezone.now()
    made = objectives.define(actor, name, body.fields, reason=body.reason, now=now, revision=body.revision)
    return _build_objective_row(made)


@router.post("/objectives/{name}/remove", response=ObjectiveRemoval, summary="Remove an objective and its counts")
def remove_objective(request: HttpRequest, name: str, body: Reason) -> ObjectiveRemoval:
    actor = actor_for(request, "objective.change")
    objectives.remove(actor, _find_objective(name), reason=body.reason)
    return {"removed": name}


def _find_objective(name: str) -> Objective:
    objective = Objective.objects.filter(name=name).first()
    if objective is None:
        raise Http404(f"Objective {name} is unknown; GET /api/v1/objectives lists the objectives.")
    return objective


def _build_objective_row(objective: Objective) -> ObjectiveRow:
    """Return the objective, and its status in the current snapshot.

    The status is null if the objective is not counted yet, or not now.
    """
    status = load_live_snapshot().objectives.get(objective.name)
    by = objective.changed_by.get_username() if objective.changed_by else None
    more = {
        "changed_by": by,
        "changed_at": objective.changed_at,
        "status": None if status is None else convert_to_plain(status),
    }
    return convert(ObjectiveRow, {**definitions.document(objective), **more})
