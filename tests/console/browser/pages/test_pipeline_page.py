"""The pipeline's map: replicas, result queue, operators by level; an operator beside it; a declaration."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, PHONE, live, overhang, violations
from tests.console.pipeline_sample import DECLARATION
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.pipeline.tiers.state import StateStore

pytestmark = BROWSER
EVENT = {
    "id": "outage:run.1:0:0",
    "time": "2026-11-20T03:12:00+00:00",
    "type": "outage",
    "source": "host1",
    "key": "outage",
    "value": 3.0,
    "attributes": {
        "pattern": "outage",
        "severity": "critical",
        "first_time": 1_790_000_000.0,
        "events": [
            {"time_us": 1_790_000_000_000_000, "id": "e-1", "type": "load-rises", "value": 2.0, "source": "host1"}
        ],
    },
}


@pytest.fixture
def at_work(control, observer):
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))
    StateStore(control, "performance").record_published(["none"], [json.dumps(EVENT).encode()])
    return observer


@pytest.mark.thorough
def test_the_map_tints_the_band_to_a_busy_operator_and_follows_the_plant(open_page, at_work):
    page = open_page("/pipeline/")
    live(page, at_work)
    busy = page.locator("#pipeline-map a[href='/pipeline/performance/operators/hosts/']")
    expect(busy).to_contain_text("Too busy")
    expect(page.locator("#pipeline-map .band.to-TOOBUSY")).to_have_count(1)
    calm = {"utilisation": 0.2}
    at_work.publish(lambda s: s["pipeline"]["applications"]["performance"]["operators"]["hosts"].update(calm))
    expect(busy).to_contain_text("Normal")
    expect(page.locator("#pipeline-map .band.to-TOOBUSY")).to_have_count(0)
    page.locator(".complex summary").first.click()
    expect(page.get_by_text("e-1")).to_be_visible()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path",
    ["/pipeline/performance/operators/hosts/", "/pipeline/performance/declaration/", "/pipeline/new/declaration/"],
)
def test_operator_and_declaration_can_be_used_by_everybody_on_a_phone(path, scheme, open_page, at_work):
    page = open_page(path, viewport=PHONE, color_scheme=scheme)
    expect(page.locator("#connection")).not_to_have_attribute("data-connection", "reading")
    assert violations(page) == []
    assert overhang(page) <= 0


@pytest.mark.thorough
def test_a_wrong_declaration_is_shown_with_its_line_and_keeps_what_was_typed(open_page, at_work):
    page = open_page("/pipeline/performance/declaration/")
    area = page.get_by_label("Declaration in YAML")
    area.fill(DECLARATION.replace("SEQ(busy; load)", "SEQ(busy"))
    page.get_by_label("Reason").fill("a test")
    page.get_by_role("button", name="Run new version").click()
    expect(page.get_by_role("alert").first).to_contain_text("line 10")
    assert "SEQ(busy," in area.input_value()


@pytest.mark.thorough
def test_what_was_sent_is_no_draft_any_more_once_it_is_done(open_page, observer):
    """A plain form whose answer leads to another page: a later login puts nothing of it back."""
    page = open_page("/pipeline/new/declaration/")
    page.get_by_label("Declaration in YAML").fill(DECLARATION.replace("name: performance", "name: drafted"))
    page.get_by_label("Reason").fill("a test of drafts")
    page.get_by_role("button", name="Start application").click()
    expect(page).to_have_url(re.compile("/pipeline/drafted/declaration/$"))
    page.wait_for_load_state()
    assert page.evaluate("JSON.stringify({...sessionStorage})") == "{}"
