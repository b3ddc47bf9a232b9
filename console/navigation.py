"""Navigation: the groups of pages on the rail, the pages inside them, and pages that declare themselves.

A declared page needs no list: a module in an area of `console.pages` has `PAGE = DeclaredPage(…)`. It gives
the page its address, its place on the rail and in the palette, and the minimum role that the permissions test checks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal, get_args

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse

from controllers.framework.discovery import import_modules, import_subpackages

Section = Literal["plant", "control", "incidents", "history", "lab", "admin"]
SECTIONS: tuple[Section, ...] = get_args(Section)  # groups of the rail, in order
# Declared pages are added to these. The first page of a group is the one that the group's name opens.
RAIL: tuple[tuple[str, str, Section], ...] = (
    ("overview", "Overview", "plant"),
    ("queues", "Queues", "plant"),
    ("nodes", "Nodes", "plant"),
    ("workers", "Workers", "plant"),
    ("pipeline", "Pipeline", "plant"),
    ("tasks", "Batch jobs", "plant"),
    ("dead-letters", "Dead letters", "plant"),
    ("loops", "Loops", "control"),
    ("manual-changes", "Manual changes", "control"),
    ("windows", "Planned windows", "control"),
    ("plans", "Plans", "control"),
    ("retries", "Retries", "control"),
    ("alerts", "Open", "incidents"),
    ("objectives", "Service levels", "incidents"),
    ("alert-review", "Past incidents", "incidents"),
    ("alert-rules", "Alert rules", "incidents"),
    ("timeline", "Timeline", "history"),
    ("ledger", "Decisions", "history"),
    ("audit", "Audit", "history"),
    ("lab", "Experiments", "lab"),
    ("settings", "Settings", "admin"),
    ("users", "People and access", "admin"),
    ("plants", "Plants", "admin"),
    ("processes", "Processes", "admin"),
)
RAIL_ACTIONS = {"audit": "audit.view", "processes": "process.view", "users": "user.manage"}


@dataclass(frozen=True)
class DeclaredPage:
    """A page that needs only its module, its template, and its test.

    name: the `NAME` of its context; addresses are made from it. address: starts with "/", without variable parts, as on
    the rail. view: made by `declare_page`; the rail shows it to users it admits. section: the group of the rail, at
    whose end it is placed. help: its page in Help, after /help/; "": the start page of Help.
    """

    name: str
    address: str
    view: Callable[..., HttpResponseBase]
    label: str
    section: Section
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
    modules = (module for area in import_subpackages(import_module("console.pages")) for module in import_modules(area))
    for module in modules:
        page = getattr(module, "PAGE", None)
        if not isinstance(page, DeclaredPage):
            continue
        if page.name in pages_by_name:
            raise ValueError(f"two pages declare the name {page.name}")
        if "action" not in vars(page.view):
            raise ValueError(f"the view of the page {page.name} lacks @declare_page")
        pages_by_name[page.name] = page
    return dict(sorted(pages_by_name.items()))


def list_url_patterns() -> list[URLPattern]:
    """Return the URL patterns of all declared pages, for `console.urls`."""
    return [path(page.address, page.view, name=page.name) for page in load_pages().values()]


# Pages in Help that describe several pages of the rail.
HELP_PAGES = {"alert-review": "alerts", "alert-rules": "alerts", "users": "settings"}


def help_of(name: str) -> str:
    """Return the address of a page's help, after /help/; "" for a page without a name."""
    page = load_pages().get(name)
    return page.help if page else f"operate/pages/{HELP_PAGES.get(name, name)}/" if name else ""


def on_rail() -> list[tuple[str, str, Section]]:
    """Return name, label, and section of each page on the rail, in order."""
    entries = [*RAIL, *((page.name, page.label, page.section) for page in load_pages().values())]
    return sorted(entries, key=lambda entry: SECTIONS.index(entry[2]))


def get_page_permission(name: str) -> str:
    """Return the permission that is needed to see a page on the rail."""
    page = load_pages().get(name)
    return page.action if page else RAIL_ACTIONS.get(name, "plant.view")


# Pages that are not on the rail: name of the address, label, required permission, and its page on the rail.
MORE_PAGES = (
    ("welcome", "Welcome", "plant.view", "overview"),
    ("window-import", "Import windows", "window.set", "windows"),
    ("silences", "Silences", "plant.view", "alert-rules"),
    ("receivers", "Receivers", "plant.view", "alert-rules"),
    ("report", "Weekly report", "plant.view", "alert-review"),
    ("proposals", "Proposals of assistants", "plant.view", "plans"),
    ("failures", "Failures", "plant.view", "task-history"),
    ("costs", "Costs", "plant.view", "ledger"),
    ("differences", "Compare time ranges", "plant.view", "timeline"),
    ("figures", "Figures of the papers", "plant.view", "lab"),
    ("plant-settings", "Plant settings", "plant.view", "settings"),
    ("second-factor", "Second factors", "account.change", "settings"),
)


@dataclass(frozen=True)
class PagePlace:
    """The place of a page in the navigation. name: its page on the rail; label, url: of the latter.

    more: the label of a page that is not on the rail; shows_list: whether it is the page on the rail itself.
    """

    section: str
    name: str
    label: str
    url: str
    more: str
    shows_list: bool


def find_place(name: str, address_name: str | None) -> PagePlace | None:
    """Return the place of a page by its `NAME` and the name of its address; None for a page outside the groups."""
    more = {page: (label, parent) for page, label, _, parent in MORE_PAGES}
    label, parent = more.get(address_name or "", ("", name))
    entries = {entry: (text, section) for entry, text, section in on_rail()}
    if parent not in entries:
        return None
    text, section = entries[parent]
    return PagePlace(section, parent, text, reverse(parent), label, address_name == parent)
