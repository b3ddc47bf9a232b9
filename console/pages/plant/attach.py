"""Attach a plant: inspect an address, see what Weir could observe and control there, then register it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse, QueryDict
from django.views.decorators.http import require_http_methods

from common.errors import BadInput
from common.parameter import Parameter
from console.accounts.access import actor_of, requires
from console.actions import plant_registration
from console.display.plant_words import describe_discovered_plant
from console.input.form_values import fill_form, find_wrong_line
from console.pages.frame.page import Errors, FormPage, render_page
from workers.documents.plants import FoundPlant
from workers.plants.foreign import adapters
from workers.plants.foreign.kind import AdapterKind
from workers.plants.models import RegisteredPlant

REACHED = ("name", "kind", "url", "secret_environment")  # of every kind of plant


@dataclass(frozen=True, kw_only=True)
class PlantForm:
    """Values of a plant's form: its address, and the options of its kind."""

    name: str
    kind: str
    url: str
    secret_environment: str


@dataclass(frozen=True, kw_only=True)
class FormOption:
    """An option of a kind in the form.

    field: its name there, since kinds may have options of the same name.
    """

    kind: str
    name: str
    about: Parameter
    value: str
    wrong_line: int | None = None

    @property
    def field(self) -> str:
        return f"{self.kind}.{self.name}"


def build_form(editing: RegisteredPlant | None, submitted: QueryDict | None, kind: str = "weir") -> PlantForm:
    given = {"kind": kind} if editing is None else {name: getattr(editing, name) for name in REACHED}
    return fill_form(PlantForm, submitted or given)


def iterate_form_options(
    editing: RegisteredPlant | None, submitted: QueryDict | None, errors: Errors | None = None, example: str = ""
) -> Iterator[FormOption]:
    """Return the options of every kind; those of unselected kinds are hidden.

    errors: of a rejected form, whose text shows the line; example: name of a text to start from.
    """
    wrong = find_wrong_line(errors or {})
    for kind in adapters.list_kinds().values():
        kept = editing.options if editing is not None and editing.kind == kind.name else {}
        for about in kind.options:
            option = FormOption(
                kind=kind.name,
                name=about.name,
                about=about,
                value=kept.get(about.name, about.examples.get(example, "")),
                wrong_line=wrong if about.many_lines else None,
            )
            yield replace(option, value=submitted.get(option.field, "")) if submitted else option


def read_options(posted: QueryDict, kind: str) -> dict[str, str]:
    """Return the posted options of a kind; an unknown kind has none."""
    known = adapters.list_kinds()[kind].options if kind in adapters.list_kinds() else ()
    return {option.name: posted.get(f"{kind}.{option.name}", "").strip() for option in known}


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
    """Inspect a plant. Posted: kind, url, secret_environment, the kind's options. Nothing is changed on either side."""
    inspected, errors, submitted = None, dict[str, list[str]](), None
    if request.method == "POST":
        submitted = request.POST
        try:
            kind = submitted.get("kind", "")
            inspected = plant_registration.inspect(
                actor_of(request),
                kind,
                submitted.get("url", ""),
                secret_environment=submitted.get("secret_environment", ""),
                options=read_options(submitted, kind),
            )
        except BadInput as error:
            errors = {error.field: [error.message]}
    page = AttachPage(
        kinds=list(adapters.list_kinds().values()),
        options=list(iterate_form_options(None, submitted, errors, request.GET.get("example", ""))),
        form=build_form(None, submitted, request.GET.get("kind", "weir")),
        inspected=inspected,
        said=describe_discovered_plant(inspected) if inspected else (),
        errors=errors,
        submitted=submitted or {},
    )
    return render_page(request, page, "frame", 422 if errors else 200)
