"""Groups of unfinished tasks at attached plants, revoked together."""

import time

from django.http import HttpRequest

from console.actions import group_revocations
from console.actions.group_revocations import GroupPreview, GroupRevocation
from console.api.request.answers import Router
from console.api.request.authentication import actor_for
from console.api.request.input import RequestBody

router = Router(tags=["plants"])


class RevokedSearch(RequestBody):
    """`query` searches the task history of the plant, such as `root:7c9e6679-…` or `name:shop.pay since:2h`."""

    query: str


class NewGroupRevocation(RevokedSearch):
    """at: of the preview. terminate: also end tasks that run (prefork pools)."""

    at: float
    reason: str
    terminate: bool = False


@router.post("/plants/{plant}/revoke/preview", summary="Count the unfinished tasks of a search; nothing is revoked")
def preview_revocation(request: HttpRequest, plant: str, body: RevokedSearch) -> GroupPreview:
    return group_revocations.preview(actor_for(request, "plant.scale"), plant, body.query, time.time())


@router.post("/plants/{plant}/revoke", summary="Revoke the unfinished tasks of a search that existed at its preview")
def revoke_tasks(request: HttpRequest, plant: str, body: NewGroupRevocation) -> GroupRevocation:
    actor = actor_for(request, "plant.scale")
    return group_revocations.revoke(
        actor, plant, body.query, body.at, body.reason, terminate=body.terminate, now=time.time()
    )
