"""Manual changes: everything that people have in force, listed and ended."""

from typing import TypedDict

from django.http import HttpRequest
from django.utils import timezone

from common.stored_document import Instant
from console.actions import manual_changes
from console.api.request.answers import Router
from console.api.request.authentication import actor_for
from console.api.request.input import GivenTime, RequestBody
from console.connections.control_server import control, load_latest_snapshot
from workers.documents.loops import ManualChange
from workers.steering.overrides import Expiry

router = Router(tags=["control"])


class ManualChangeList(TypedDict):
    changes: list[ManualChange]


class ManualChangeEnd(TypedDict):
    key: str
    ended: bool


class ManualChangeExtension(TypedDict):
    key: str
    until: Instant | None


class ManualChangeEnding(RequestBody):
    """key: of the change; anyway: end it although the list warns that this would hurt."""

    key: str
    reason: str = ""
    anyway: bool = False


class ChangeExtension(RequestBody):
    """key: of the change; minutes (added to its end) or expires_at."""

    key: str
    minutes: float | None = None
    expires_at: GivenTime | None = None


@router.get("/manual-changes", summary="List the manual changes in force, earliest end first")
def list_manual_changes(request: HttpRequest) -> ManualChangeList:
    actor_for(request, "plant.view")
    snapshot = load_latest_snapshot()
    return {"changes": snapshot.hands if snapshot else []}


@router.post("/manual-changes/extend", summary="Extend a manual change, or set its end")
def extend_manual_change(request: HttpRequest, body: ChangeExtension) -> ManualChangeExtension:
    actor = actor_for(request, "override.extend")
    expiry = Expiry(minutes=body.minutes, expires_at=body.expires_at)
    until = manual_changes.extend(actor, body.key, expiry, now=timezone.now(), control=control())
    return {"key": body.key, "until": until.timestamp() if until else None}


@router.post("/manual-changes/end", summary="End a manual change of any kind now")
def end_manual_change(request: HttpRequest, body: ManualChangeEnding) -> ManualChangeEnd:
    actor = actor_for(request, "override.end")
    ended = manual_changes.end(
        actor,
        body.key,
        reason=body.reason,
        now=timezone.now(),
        control=control(),
        snapshot=load_latest_snapshot(),
        anyway=body.anyway,
    )
    return {"key": body.key, "ended": ended}
