"""The form of a plant: its address, and the options of every kind, as its adapter declares them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from django.http import QueryDict

from console.input.form_values import fill_form
from console.pages.frame.page import Errors
from console.pages.frame.wrong_line import find_wrong_line
from workers.plants.foreign import adapters
from workers.plants.foreign.kind import PlantOption
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
    title: str
    about: PlantOption
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
        for name, about in kind.options.items():
            option = FormOption(
                kind=kind.name,
                name=name,
                title=about.title or name.capitalize(),
                about=about,
                value=kept.get(name, about.examples.get(example, "")),
                wrong_line=wrong if about.many_lines else None,
            )
            yield replace(option, value=submitted.get(option.field, "")) if submitted else option


def read_options(posted: QueryDict, kind: str) -> dict[str, str]:
    """Return the posted options of a kind; an unknown kind has none."""
    known = adapters.list_kinds()[kind].options if kind in adapters.list_kinds() else {}
    return {name: posted.get(f"{kind}.{name}", "").strip() for name in known}
