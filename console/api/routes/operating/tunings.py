"""Tunings learned from the record of loops: listed, approved by hash, and rejected."""

from django.http import Http404, HttpRequest
from django.utils import timezone

from console.actions.proposals import tunings
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.request.instant import GivenTime
from console.api.routes.control import build_override
from console.api.schemas.control import OverrideList, TuningList, TuningRow
from console.input.row_id import Id
from workers.models import Tuning
from workers.steering.overrides import Expiry

router = Router(tags=["control"])
MAX_ROWS = 200


class TuningApproval(RequestBody):
    """hash: of the tuning as it was read.

    Its values expire after `minutes`, at `expires_at`, or (`endless`, for administrators) never.
    """

    hash: str
    reason: str
    minutes: float | None = None
    expires_at: GivenTime | None = None
    endless: bool = False

    def build_expiry(self) -> Expiry:
        return Expiry(self.minutes, self.expires_at, self.endless)


class TuningRejection(RequestBody):
    """The reason."""

    reason: str


@router.get("/tunings", response=TuningList, summary="List tunings learned from loop records")
def list_tunings(request: HttpRequest) -> TuningList:
    """Return the tunings, the newest first, at most 200."""
    actor_for(request, "plant.view")
    rows = Tuning.objects.select_related("loop", "decided_by").order_by("-pk")[:MAX_ROWS]
    return {"tunings": [_document(row) for row in rows]}


@router.post("/tunings/{tuning_id}/approve", response=OverrideList, summary="Approve a tuning")
def approve_tuning(request: HttpRequest, tuning_id: Id, body: TuningApproval) -> OverrideList:
    """Override its loop with its values. Rejected for another hash, and if the loop has changed."""
    actor, tuning = actor_for(request, "override.set"), _find_tuning(tuning_id)
    made = tunings.approve(actor, tuning, body.hash, reason=body.reason, now=timezone.now(), expiry=body.build_expiry())
    return {"overrides": [build_override(override) for override in made]}


@router.post("/tunings/{tuning_id}/reject", response=TuningRow, summary="Reject a tuning")
def reject_tuning(request: HttpRequest, tuning_id: Id, body: TuningRejection) -> TuningRow:
    actor, tuning = actor_for(request, "override.set"), _find_tuning(tuning_id)
    return _document(tunings.reject(actor, tuning, body.reason, timezone.now()))


def _find_tuning(tuning_id: int) -> Tuning:
    tuning = Tuning.objects.select_related("loop", "decided_by").filter(pk=tuning_id).first()
    if tuning is None:
        raise Http404(f"Tuning {tuning_id} is unknown; GET /api/v1/tunings lists the tunings.")
    return tuning


def _document(tuning: Tuning) -> TuningRow:
    return {
        "id": tuning.pk,
        "loop": tuning.loop.name,
        "state": tuning.state,
        "values": tuning.values,
        "instead_of": tuning.instead_of,
        "days": tuning.days,
        "improvement": tuning.improvement,
        "confidence": tuning.confidence,
        "hash": tuning.hash,
        "created_at": tuning.created_at,
        "decided_at": tuning.decided_at,
        "decided_by": tuning.decided_by.get_username() if tuning.decided_by else None,
        "note": tuning.note,
    }
