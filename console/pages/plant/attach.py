"""Attach a plant: inspect an address, see what Weir could observe and control there, then register it."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.http import require_http_methods

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import plant_registration
from console.display.found_plant import describe_discovered_plant
from console.pages.frame.page import Errors, FormPage, render_page
from console.pages.plant.plant_form import FormOption, PlantForm, build_form, iterate_form_options, read_options
from workers.documents.plants import FoundPlant
from workers.plants.foreign import adapters
from workers.plants.foreign.kind import AdapterKind


@dataclass(frozen=True, kw_only=True)
class AttachPage(FormPage):
    """The form of an address, and the result of its inspection. inspected: None before it was requested."""

    TEMPLATE, NAME = "plant/attach.html", "plants"

    kinds: Sequence[AdapterKind]
    options: Sequence[FormOption]
    form: PlantForm
    inspected: FoundPlant | None
    said: Sequence[str]


@require_http_methods(["GET", "HEAD", "POST"])
@requires("plant.register")
def attach(request: HttpRequest) -> HttpResponse:
    """Inspect a plant.

    Posted: kind, url, secret_environment, the kind's options. Nothing is changed on either side.
    """
    if request.method != "POST":
        return _page(request, None, {}, None)
    try:
        kind = request.POST.get("kind", "")
        inspected = plant_registration.inspect(
            actor_of(request),
            kind,
            request.POST.get("url", ""),
            secret_environment=request.POST.get("secret_environment", ""),
            options=read_options(request.POST, kind),
        )
    except BadInput as error:
        return _page(request, None, {error.field: [error.message]}, request.POST)
    return _page(request, inspected, {}, request.POST)


def _page(request: HttpRequest, found: FoundPlant | None, errors: Errors, submitted: QueryDict | None) -> HttpResponse:
    page = AttachPage(
        kinds=list(adapters.list_kinds().values()),
        options=list(iterate_form_options(None, submitted, errors, request.GET.get("example", ""))),
        form=build_form(None, submitted, request.GET.get("kind", "weir")),
        inspected=found,
        said=describe_discovered_plant(found) if found else (),
        errors=errors,
        submitted=submitted or {},
    )
    return render_page(request, page, "frame", 422 if errors else 200)
