"""Trials of a pattern on the page of its declaration: with pasted events, with a file, and with an edited text."""

import json

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, PHONE, overhang, unreadable, violations
from tests.console.pipeline_sample import DECLARATION
from workers.pipeline.declaration.declared import Declarations, DeclarationText

pytestmark = BROWSER
ADDRESS = "/pipeline/performance/declaration/"
BREAKS = "<img src=x onerror='document.body.dataset.broken = 1'>"
ROWS = [
    {"id": "c1", "time": 0, "type": "cpu", "source": "a", "value": 90},
    {"id": "l1", "time": 5, "type": "load", "source": "a", "value": 3},
    {"id": "c2", "time": 10, "type": "cpu", "source": "a", "value": 80},
    {"id": BREAKS, "time": 20, "type": "cpu", "source": BREAKS, "value": 95},
    {"id": "l2", "time": 90, "type": "load", "source": BREAKS, "value": 3},
]
EVENTS = "\n".join(map(json.dumps, ROWS))


@pytest.fixture
def declared(control):
    text = DECLARATION.replace("busy: 'value > 85'", "busy: \"type = 'cpu' and value > 85\"")
    Declarations(control).note_at_work(DeclarationText("performance", 0, text))


def test_a_pattern_is_tried_with_pasted_events_which_stay_text(open_page, observer, declared):
    page = open_page(ADDRESS)
    events, result = page.get_by_label("Events"), page.locator("[data-trial-result]")
    events.fill(EVENTS)
    page.get_by_role("button", name="Try pattern").click()
    expect(result).to_contain_text("1 match. 2 of 5 events matched.")
    expect(result).to_contain_text("Match 1: c1, l1")
    expect(result).to_contain_text("Doesn't fit busy: busy.value 80 > 85 is false.")
    expect(result).to_contain_text("The window of 30 s from")
    expect(result).to_contain_text(BREAKS)
    assert page.evaluate("document.body.dataset.broken") is None
    for viewport, scheme in ((None, "light"), (None, "dark"), (PHONE, "dark")):
        if viewport:
            page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == [] and overhang(page) <= 0
    assert unreadable(page) == []


def test_the_form_lists_patterns_reads_a_file_and_shows_the_line_of_an_error(open_page, observer, declared):
    page = open_page(f"{ADDRESS}?pattern=outage#try")
    pattern = page.locator("select[name=pattern]")
    expect(pattern).to_have_value("outage")
    text = page.get_by_label("Declaration in YAML")
    text.fill(text.input_value().replace("name: load-rises", "name: rises").replace("SEQ(load-rises", "SEQ(rises"))
    expect(pattern.locator("option")).to_have_text(["rises", "outage"])
    expect(pattern).to_have_value("outage")
    wrong = [{"name": "rows.jsonl", "mimeType": "text/plain", "buffer": b'{"type": "cpu"}\n{"type": 2.5}\n'}]
    page.get_by_label("File").set_input_files(wrong)
    result = page.locator("[data-trial-result]")
    expect(result).to_contain_text("Loaded rows.jsonl.")
    page.get_by_role("button", name="Try pattern").click()
    expect(result).to_contain_text("Events, line 2: type")
    page.get_by_role("button", name="Load newest events").click()
    expect(result).to_contain_text("No events are waiting in the queues.")
