"""The documentation is whole: it builds without a warning, and every part of the program has its page."""

import re
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from console.help import contents, reference
from console.help.rendering import render_markdown
from controllers.catalog import LAWS
from tests.first_steps import read_steps
from workers.alerts.rules.rules import FIRST_RULES

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `mkdocs build --strict` makes it: a warning ends it."""
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder)))
    return folder


# The theme's own code warns, which is no fault of the pages.
@pytest.mark.filterwarnings("ignore")
def test_the_site_builds_without_a_warning_and_holds_every_page_of_help(site):
    for address in contents.index_by_address():
        assert (site / address / "index.html").is_file(), address


@pytest.mark.filterwarnings("ignore")
def test_the_site_takes_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        assert not ELSEWHERE.search(page.read_text(encoding="utf-8")), page


def test_each_page_begins_with_its_title_and_has_one():
    for page in contents.load_pages().values():
        lines = re.sub(r"^```.*?^```", "", page.text, flags=re.MULTILINE | re.DOTALL).splitlines()
        assert lines[0].startswith("# "), page.source
        assert sum(line.startswith("# ") for line in lines) == 1, page.source


def test_code_is_shown_as_code_on_every_page():
    """A fence that says more than its language takes braces; else its code would be read as Markdown."""
    for source in contents.load_pages():
        assert "```" not in render_markdown(source, "/help/").body, source


def test_each_page_stands_in_the_table_of_contents_once():
    listed = [page.source for part in contents.build_contents() for page in part.list_pages()]
    assert sorted(listed) == sorted(contents.load_pages())


def test_each_page_is_linked_by_the_index_of_its_folder():
    for page in contents.load_pages().values():
        folder = page.source.rpartition("/")[0]
        index = contents.load_pages()[f"{folder}/index.md" if folder else "index.md"]
        assert page is index or page.source in index.list_links(), f"{index.source} does not link {page.source}"


def test_each_shipped_rule_has_a_runbook_and_each_runbook_its_rule():
    pages = {page.stem for page in (ROOT / "docs" / "operate" / "alerts").glob("*.md")}
    assert pages - {"index"} == set(FIRST_RULES)


def test_each_law_has_a_page_with_all_of_its_parameters():
    for name, law in LAWS.items():
        page = reference.build_pages()[f"reference/laws/{name}.md"]
        for each in (*law.parameters, *law.observation):
            assert f"`{each.name}`" in page, (name, each.name)


def test_the_readme_fits_in_a_few_screens_and_names_both_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) < 120
    assert "\n./run\n" in readme and "\n./test\n" in readme and "docs/overview.png" in readme
    for link in re.findall(r"\]\(([^)#]+)\)", readme):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("page", ["README.md", "docs/start/first-steps.md"])
def test_the_ten_first_steps_name_pages_that_exist(page):
    steps = read_steps(ROOT / page)
    assert list(steps) == list(range(1, 11))
    pages = [step.find_pages() for step in steps.values()]
    assert sum(map(len, pages)) >= 8
