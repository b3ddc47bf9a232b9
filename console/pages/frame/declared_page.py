"""A page that declares itself: its module has `PAGE = DeclaredPage(…)`, and no list names it.

The module is in an area of `console.pages`. Its declaration gives the page its address, its place on the rail and in
the palette, and the minimum role that the permissions test checks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from console import pages
from controllers.framework.discovery import import_modules, import_subpackages

Section = Literal["watch", "steer", "look", "keep"]
SECTIONS: tuple[Section, ...] = get_args(Section)  # sections of the rail, in order


@dataclass(frozen=True)
class DeclaredPage:
    """A page that needs only its module, its template, and its test.

    name: the `NAME` of its context; addresses are made from it. address: starts with "/", without variable parts, as on
    the rail. view: guarded by `requires`; the rail shows it to users it admits. section: of the rail, at whose end it
    is placed. icon: of static/icons/sprite.svg. help: its page in Help, after /help/; "": the start page of Help.
    """

    name: str
    address: str
    view: Callable[..., HttpResponseBase]
    label: str
    section: Section
    icon: str = "search"
    help: str = ""

    @property
    def action(self) -> str:
        """Return the permission that is needed to see the page."""
        return str(vars(self.view)["action"])


@cache
def load_pages() -> dict[str, DeclaredPage]:
    """Return all declared pages by name.

    Imports every page, so call it when they can be imported. Raises ValueError if two pages have one name, or if a view
    requires no role.
    """
    pages_by_name: dict[str, DeclaredPage] = {}
    for page in _iterate_pages():
        if page.name in pages_by_name:
            raise ValueError(f"two pages declare the name {page.name}")
        if "action" not in vars(page.view):
            raise ValueError(f"the view of the page {page.name} lacks @requires")
        pages_by_name[page.name] = page
    return dict(sorted(pages_by_name.items()))


def _iterate_pages() -> Iterator[DeclaredPage]:
    for room in import_subpackages(pages):
        for module in import_modules(room):
            if isinstance(page := getattr(module, "PAGE", None), DeclaredPage):
                yield page


def list_url_patterns() -> list[URLPattern]:
    """Return the URL patterns of all declared pages, for `console.urls`."""
    return [path(page.address, page.view, name=page.name) for page in load_pages().values()]


def help_of(name: str) -> str:
    """Return the address of a page's help, after /help/; "" for a page without a name."""
    page = load_pages().get(name)
    return page.help if page else f"operate/pages/{name}/" if name else ""
