"""Help: the documentation in the console's frame, behind the login, with nothing from elsewhere."""

import re

import pytest
from django.core.management import get_commands

from console.help import contents, reference
from console.help.rendering import render_markdown
from console.navigation import help_of, on_rail
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules import rules
from workers.alerts.rules.rules import FIRST_RULES

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stored_snapshot")]


def test_help_begins_with_the_four_parts_and_the_reference(viewer):
    context = viewer.get("/help/").context
    titles = [part.title for part in context["parts"]]
    assert titles[:5] == ["Start", "Operate", "Extend", "Understand", "Reference"]
    assert context["shown"].source == "index.md"


def test_every_page_of_help_is_shown_and_all_its_links_lead_somewhere(viewer):
    known = {f"/help/{address}" for address in contents.index_by_address()}
    known |= {f"/help/{picture}" for picture in contents.list_pictures()}
    for address in contents.index_by_address():
        answer = viewer.get(f"/help/{address}")
        assert answer.status_code == 200, address
        body = answer.context["rendered"].body
        for link in re.findall(r'(?:href|src)="(/help/[^"#]*)', body):
            assert link in known, (address, link)


def test_a_page_of_help_brings_no_script_and_nothing_from_elsewhere():
    for source in contents.load_pages():
        body = render_markdown(source, "/help/").body
        assert "<script" not in body and "style=" not in body, source
        assert not re.search(r'src="(?!/help/)', body), source


def test_code_of_every_page_scrolls_by_itself_also_from_the_keyboard():
    bodies = [str(render_markdown(source, "/help/").body) for source in contents.load_pages()]
    assert sum(body.count("<pre>") for body in bodies) > 20
    for body in bodies:
        assert len(re.findall(r'<div class="scroll" tabindex="0"[^>]*aria-label="Code"><pre>', body)) == body.count(
            "<pre>"
        )


def test_a_picture_is_served_and_nothing_else_of_the_folder(viewer):
    answer = viewer.get("/help/overview.png")
    assert answer["Content-Type"] == "image/png"
    assert b"".join(answer.streaming_content).startswith(b"\x89PNG")  # read to its end, which closes the file
    for address in ("nowhere/", "../console/settings.py", "index.md", "%2e%2e/mkdocs.yml"):
        assert viewer.get(f"/help/{address}").status_code == 404, address


def test_who_is_not_logged_in_reads_no_help(browsers):
    assert browsers["anonymous"].get("/help/start/").url == "/login/?next=/help/start/"


def test_search_finds_the_pages_that_hold_all_words_and_titles_first(viewer):
    found = viewer.get("/help/", {"q": "node lost"}).context["results"]
    assert found[0].title == "Node lost"
    assert viewer.get("/help/", {"q": "there-is-no-such-word"}).context["results"] == []


def test_every_page_of_the_console_has_its_page_in_help():
    """One that declares itself may name another, or Help as a whole."""
    for name in (*(name for name, *_ in on_rail()), "plants"):
        assert help_of(name) in contents.index_by_address(), name


def test_every_shipped_rule_has_its_runbook_in_help():
    for name in FIRST_RULES:
        assert f"operate/alerts/{name}/" in contents.index_by_address(), name


@pytest.mark.parametrize("condition", [*CONDITIONS, "one of an extension"])
def test_a_rule_without_a_runbook_of_its_own_links_a_page_that_is_there(condition):
    link = rules.get_help_path(AlertRule(name="mine", condition=condition))
    assert link.removeprefix("/help/") in contents.index_by_address()


def test_a_rule_may_name_another_runbook(settings):
    settings.WEIR_PUBLIC_URL = "https://weir.example"
    own = AlertRule(name="mine", condition="node_lost", runbook="https://wiki/nodes")
    assert rules.get_help_path(own) == rules.get_runbook_url(own) == "https://wiki/nodes"
    shipped = AlertRule(name="node-lost", condition="node_lost")
    assert rules.get_runbook_url(shipped) == "https://weir.example/help/operate/alerts/node-lost/"


def test_every_command_of_ours_is_on_the_page_of_commands():
    ours = {name for name, application in get_commands().items() if str(application).startswith("console")}
    assert {"weir", "assistant"} <= ours
    assert ours == set(re.findall(r"^\| `(\w+)` \|", reference.build_commands_page(), re.MULTILINE))
