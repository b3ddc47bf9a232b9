"""A group of unfinished tasks of an attached plant: previewed, and revoked together."""

import time
from dataclasses import dataclass

from django.http import Http404, HttpRequest, HttpResponse

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import group_revocations
from console.actions.group_revocations import GroupPreview
from console.input.form_values import parse_number
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
    text_of,
)
from console.pages.plant.plants import convert_plant_errors
from console.pages.task_history.links import build_search_url
from controllers.framework.reason import format_count
from workers.plants.models import RegisteredPlant


@dataclass(frozen=True, kw_only=True)
class RevokePage(FormPage):
    """The unfinished tasks of a search. preview: None until requested."""

    TEMPLATE, NAME = "plant/revoke.html", "plants"

    plant: str
    query: str
    preview: GroupPreview | None
    history_url: str


@declare_page("plant.scale")
def revoke_page(request: HttpRequest, name: str) -> HttpResponse:
    """Show the unfinished tasks of the search `?q=…`."""
    row = RegisteredPlant.objects.filter(name=name).first()
    if row is None or not group_revocations.can_revoke_at(row.kind):
        raise Http404(f"No plant {name} whose tasks can be revoked is registered.")
    query = str(get_rejected_form(request).submitted.get("q", request.GET.get("q", ""))).strip()
    preview, errors, status = None, {}, 200
    if query:
        try:
            preview = group_revocations.preview(actor_of(request), name, query, time.time())
        except BadInput as error:
            errors, status = {error.field: [error.message]}, 422
    page = RevokePage(
        plant=name, query=query, preview=preview, history_url=build_search_url(name, query), errors=errors
    )
    return render_page(request, page, "frame", status)


@declare_action("plant.scale", revoke_page)
def revoke(request: HttpRequest, name: str) -> ActionResult:
    """Revoke the tasks of a preview. Posted: q, at (of the preview), reason; terminate: also end running tasks."""
    query = text_of(request, "q", "Enter a search")
    with convert_plant_errors():
        done = group_revocations.revoke(
            actor_of(request),
            name,
            query,
            parse_number(text_of(request, "at", "Preview the tasks first"), "at"),
            request.POST.get("reason", ""),
            terminate=bool(request.POST.get("terminate")),
            now=time.time(),
        )
    url = build_search_url(name, query)
    message = f"{format_count(done.tasks, 'task')} of {name} revoked."
    return ActionResult(message, url, {"go": url})
