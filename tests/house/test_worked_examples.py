"""The code of docs/extend is right: each page's Python runs from top to bottom, as a reader would type it."""

import re
import sys
from pathlib import Path

import pytest

from tests.console.help import test_help_pages
from tests.workers.alerts import test_evaluator
from workers.alerts.conditions.catalog import CONDITIONS
from workers.consumer import handlers
from workers.consumer.registry import HANDLERS, find_handlers
from workers.pipeline.rules.rule_functions import FUNCTIONS

pytestmark = pytest.mark.django_db
# Those of a law and of a page are more than one file, which `test_add_a_law` and `test_add_a_page` run.
ELSEWHERE = ("index", "a-control-law", "a-page")
HANDLER = "a-handler"  # as a file of its own: `test_a_handler_takes_one_file`
PAGES = sorted(
    page for page in (Path(__file__).parents[2] / "docs" / "extend").glob("*.md") if page.stem not in ELSEWHERE
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


FILE = re.compile(r'^```\{\.python title="(\S+)"\}\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _as_it_was(settings):
    """What an example adds to a table is taken out again; static files stand as they are."""
    tables = [(table, dict(table)) for table in (HANDLERS, CONDITIONS, FUNCTIONS)]
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    yield
    for table, before in tables:
        table.clear()
        table.update(before)


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != HANDLER], ids=lambda page: page.stem)
def test_a_worked_example_works(page, tmp_path):
    run(page, tmp_path)


def test_a_condition_takes_nothing_but_itself_and_its_test(tmp_path):
    """No shipped rule, and no runbook: what is asked of the conditions of the tree holds with it as well."""
    before = set(CONDITIONS)
    run(next(page for page in PAGES if page.stem == "an-alert-condition"), tmp_path)
    (name,) = CONDITIONS.keys() - before
    test_evaluator.test_a_plant_starts_with_a_rule_of_each_condition_that_says_so()
    test_help_pages.test_a_rule_without_a_runbook_of_its_own_links_a_page_that_is_there(name)


def test_a_handler_takes_one_file(tmp_path, monkeypatch):
    """It is found in the package of handlers; nothing else of the tree names it."""
    page = next(page for page in PAGES if page.stem == HANDLER)
    [(name, text)] = FILE.findall(page.read_text(encoding="utf-8"))
    file = tmp_path / Path(name).name
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(handlers, "__path__", [*handlers.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{handlers.__name__}.{file.stem}", raising=False)
    HANDLERS.update(find_handlers())
    run(page, tmp_path)


def run(page, tmp_path):
    """All of its code, in its order, in names that all of its blocks share."""
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "worked_example", "tmp_path": tmp_path}
    for block in BLOCK.finditer(text):
        if block[1] == "python":
            # As many empty lines before it as the page has: an error names the page's own line.
            before = "\n" * text.count("\n", 0, block.start(2))
            exec(compile(before + block[2], str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_worked_example_asserts_something(page):
    assert any("assert " in block[2] for block in BLOCK.finditer(page.read_text(encoding="utf-8")))
