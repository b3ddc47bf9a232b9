"""The declaration of an application: its text, its versions, and another one."""

from dataclasses import dataclass

import redis
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.accounts.access import actor_of, requires
from console.actions import pipelines
from console.connections.control_server import control
from console.input.row_id import id_of
from console.pages.frame.action import Done, action, text_of
from console.pages.frame.page import Document, Errors, FormPage, render_page
from queues.errors import BadInput
from workers.models import PipelineVersion
from workers.pipeline.declaration.declared import OF_FILE, Declarations

VERSIONS_SHOWN = 30
NEW = "new"


@dataclass(frozen=True, kw_only=True)
class DeclarationPage(FormPage):
    """The text of an application. shown: the version it is of; version: the one at work."""

    TEMPLATE, NAME = "pipeline/pipeline_declaration.html", "pipeline"

    application: str
    is_new: bool
    text: str
    shown: PipelineVersion | None
    version: Document | None
    of_file: int
    versions: QuerySet[PipelineVersion]  # the newest first


def versions_at_work() -> dict[str, Document]:
    """Application → what is at work; nothing while the control server is away."""
    try:
        return Declarations(control()).at_work()
    except redis.RedisError:
        return {}


@require_safe
@requires("plant.view")
def declaration(request: HttpRequest, name: str) -> HttpResponse:
    """The text of an application, its versions, and the form for another; `new` for one that is not there."""
    return declaration_page(request, name)


def declaration_page(
    request: HttpRequest, name: str, errors: Errors | None = None, submitted: QueryDict | None = None
) -> HttpResponse:
    at_work = versions_at_work()
    versions = PipelineVersion.objects.filter(application=name).select_related("owner")
    newest = versions.order_by("-number").first()
    found = at_work.get(name)
    if found is None and newest is None and name != NEW:
        raise Http404(f"No application {name} is declared.")
    asked = request.GET.get("version")
    shown = get_object_or_404(versions, number=id_of(asked) or 0) if asked else newest
    text = shown.text if shown else found["text"] if found else ""
    page = DeclarationPage(
        application=name,
        is_new=name == NEW,
        text=submitted.get("text", text) if submitted else text,
        shown=shown,
        version=found,
        of_file=OF_FILE,
        versions=versions.order_by("-number")[:VERSIONS_SHOWN],
        errors=errors or {},
        submitted=submitted or {},
    )
    return render_page(request, page)


@action("pipeline.declare", declaration_page)
def declare(request: HttpRequest, name: str) -> Done:
    """A new version, which runs from now on."""
    reason = text_of(request, "reason", "say why, for those who come after you")
    text = request.POST.get("text", "").replace("\r\n", "\n")
    declared = pipelines.checked_for(actor_of(request), text).name
    if name not in (NEW, declared):
        raise BadInput(
            "text", f"names the application {declared}; this is {name}. Declare another as a new one."
        )
    version = pipelines.declare(actor_of(request), text, reason, control())
    return Done(
        f"Version {version.number} of {version.application} is taken over within seconds.",
        reverse("pipeline-declaration", args=[version.application]),
    )
