"""`docs/extend/a-page.md` is right: its files, written as it says, are a page that the console shows."""

import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import console.pages.plant
from console import navigation, urls
from console.accounts.access import ACTIONS
from console.navigation import DeclaredPage, load_pages
from tests.console.accounts.route_permissions import EVERYBODY, of_declared_pages, request_route
from tests.house import test_pages

pytestmark = pytest.mark.django_db
DOCS = Path(__file__).parents[4] / "docs" / "extend" / "a-page.md"
BLOCK = re.compile(r'^```\{\.\w+ title="(\S+)"\}\n(.*?)^```$', re.MULTILINE | re.DOTALL)
MODULE, TEMPLATE, TEST = (
    "console/pages/plant/producers.py",
    "templates/plant/producers.html",
    "tests/console/pages/test_producers.py",
)


@pytest.fixture
def written(tmp_path, monkeypatch, settings):
    """The page's files in a folder of their own, which is looked through as if it were part of the tree."""
    for name, text in BLOCK.findall(DOCS.read_text(encoding="utf-8")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    shipped = navigation.list_url_patterns()
    room = console.pages.plant
    monkeypatch.setattr(room, "__path__", [*room.__path__, str((tmp_path / MODULE).parent)])
    monkeypatch.setattr(room, "producers", None, raising=False)  # and is gone afterwards
    [engine] = settings.TEMPLATES
    settings.TEMPLATES = [{**engine, "DIRS": [*engine["DIRS"], tmp_path / "templates"]}]
    importlib.invalidate_caches()
    load_pages.cache_clear()
    settings.ROOT_URLCONF = addresses_anew(len(shipped), monkeypatch)
    yield tmp_path
    load_pages.cache_clear()
    sys.modules.pop("console.pages.plant.producers", None)


def addresses_anew(shipped, monkeypatch):
    """The name of a table of addresses as `console.urls` makes it, with what is declared by now."""
    table = ModuleType("urls_with_an_example")
    table.urlpatterns = [*urls.urlpatterns[: len(urls.urlpatterns) - shipped], *navigation.list_url_patterns()]
    table.handler403, table.handler500 = urls.handler403, urls.handler500
    monkeypatch.setitem(sys.modules, table.__name__, table)
    return table.__name__


def test_it_takes_three_files():
    blocks = re.findall(r"^```(.+)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [re.search(r'title="(\S+)"', block)[1] for block in blocks] == [MODULE, TEMPLATE, TEST]


def test_it_stands_on_the_rail_and_in_the_palette_of_those_who_may_see_it(written, browsers, stored_snapshot):
    [item] = [each for each in rail_of(browsers["viewer"]) if each.name == "producers"]
    assert (item.label, item.url) == ("Producers", "/producers/")
    assert rail_of(browsers["viewer"])[-1] == item
    assert "producers" not in [each.name for each in rail_of(browsers["stranger"])]


def rail_of(browser):
    groups = browser.get("/help/").context["frame"].rail
    return [page for group in groups if group.section == "plant" for page in group.pages]


def test_its_address_opens_to_the_role_that_it_declares(written, browsers, stored_snapshot):
    [(door, least)] = [each for each in of_declared_pages().items() if "producers" in each[0]]
    assert (door, least) == ("GET producers/", ACTIONS["plant.view"])
    opened = [who for who in EVERYBODY if request_route(browsers[who], door, {}) == 200]
    assert opened == list(EVERYBODY[EVERYBODY.index(least) :])


def test_its_context_is_as_whole_as_those_that_ship(written, monkeypatch):
    module = sys.modules["console.pages.plant.producers"]
    monkeypatch.setattr(test_pages, "contexts", lambda: [module.ProducersPage])
    for check in (
        test_pages.test_a_context_is_frozen_and_hides_nothing_of_the_frame,
        test_pages.test_a_template_reads_nothing_that_its_context_does_not_declare,
        test_pages.test_a_context_declares_nothing_that_its_template_does_not_read,
        test_pages.test_no_row_is_a_plain_dict,
    ):
        check()


def test_help_on_it_is_help_as_a_whole_where_it_names_no_page(written, browsers, stored_snapshot):
    context = browsers["viewer"].get("/producers/").context
    assert (context["page"], context["help_address"]) == ("producers", "")
    assert browsers["viewer"].get("/queues/").context["help_address"] == "operate/pages/queues/"


def test_a_page_whose_view_asks_for_no_role_is_refused_at_the_start(written, monkeypatch):
    module = sys.modules["console.pages.plant.producers"]
    open_to_all = DeclaredPage("open", "open/", lambda request: None, "Open", "plant")
    monkeypatch.setattr(module, "PAGE", open_to_all)
    load_pages.cache_clear()
    with pytest.raises(ValueError, match="the view of the page open lacks @declare_page"):
        load_pages()


def examples_in(path):
    """Name → test, of the page's third file."""
    spec = importlib.util.spec_from_file_location("test_producers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: found for name, found in vars(module).items() if name.startswith("test_")}


NAMES = re.findall(r"^def (test_\w+)", DOCS.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_its_test_passes(name, written, request):
    test = examples_in(written / TEST)[name]
    test(**{fixture: request.getfixturevalue(fixture) for fixture in inspect.signature(test).parameters})
