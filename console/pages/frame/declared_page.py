"""A page that declares itself: its module says `PAGE = DeclaredPage(…)`, and no list names it.

The module stands in a room of `console.pages`. Its declaration gives the page its address, its place on the
rail and in the palette, and the least role that the permissions test holds it to.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from console import pages
from controllers.framework.discovery import modules_of, rooms_of

Section = Literal["watch", "steer", "look", "keep"]
SECTIONS: tuple[Section, ...] = get_args(Section)  # of the rail, in their order


@dataclass(frozen=True)
class DeclaredPage:
    """A page that needs nothing but its module, its template and its test.

    name: the `NAME` of its context, by which addresses are made of it. address: from "/" on, without a part
    that varies, as it stands on the rail. view: guarded by `requires`, and on the rail of those it lets in.
    section: of the rail, at whose end it stands. icon: of static/icons/sprite.svg. help: its page in Help,
    from /help/ on; "": Help as a whole.
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
        """What one must be allowed to do to see it."""
        return str(vars(self.view)["action"])


@cache
def load_pages() -> dict[str, DeclaredPage]:
    """Name → page, by name. Imports every page, so it is asked once they can be. Raises ValueError where two
    have one name, or where a view asks for no role.
    """
    found: dict[str, DeclaredPage] = {}
    for page in _pages():
        if page.name in found:
            raise ValueError(f"two pages declare the name {page.name}")
        if "action" not in vars(page.view):
            raise ValueError(f"the view of the page {page.name} lacks @requires")
        found[page.name] = page
    return dict(sorted(found.items()))


def _pages() -> Iterator[DeclaredPage]:
    for room in rooms_of(pages):
        for module in modules_of(room):
            if isinstance(page := getattr(module, "PAGE", None), DeclaredPage):
                yield page


def addresses() -> list[URLPattern]:
    """Those of all declared pages, for `console.urls`."""
    return [path(page.address, page.view, name=page.name) for page in load_pages().values()]


def help_of(name: str) -> str:
    """Where Help on a page stands, from /help/ on; a page without a name has none."""
    page = load_pages().get(name)
    return page.help if page else f"operate/pages/{name}/" if name else ""
