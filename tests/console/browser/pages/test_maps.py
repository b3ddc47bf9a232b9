"""The map of the flow on the overview, and the pipeline's with its declaration."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, PHONE, live, overhang, violations
from tests.console.pipeline_sample import DECLARATION
from workers.pipeline.declaration.declared import Declarations, DeclarationText
from workers.pipeline.tiers.state import StateStore

pytestmark = BROWSER


@pytest.mark.thorough
def test_the_map_colours_only_what_arrives_at_an_overloaded_node(open_page, observer):
    def arrive(snapshot):
        for queue in snapshot["queues"].values():
            row = queue["containers"]["n1"]
            queue["containers"] = {name: {**row, "in_per_second": 5.0} for name in snapshot["nodes"]}

    page = open_page("/")
    live(page, observer)
    observer.publish(arrive)
    bands = page.locator("#flow .band.to-BUSY")
    expect(bands).to_have_count(2)  # telemetry and alert, both into n2
    expect(page.locator("#flow .band.to-TOOBUSY")).to_have_count(0)


def large(snapshot):
    """200 nodes, of which two are too busy, and 100 queues of ten containers each; one falls behind."""
    calm, queue = snapshot["nodes"]["n1"], snapshot["queues"]["alert"]
    names = [f"n{number:03}" for number in range(200)]
    snapshot["nodes"] = {name: {**calm, "utilisation": 0.4} for name in names}
    for name in ("n007", "n150"):
        snapshot["nodes"][name] |= {"state": "TOOBUSY", "utilisation": 0.95}
    row = queue["containers"]["n1"]
    snapshot["queues"] = {
        f"q{number:03}": {**queue, "containers": {names[(number * 7 + place) % 200]: row for place in range(10)}}
        for number in range(100)
    }
    snapshot["queues"]["q099"]["wait_seconds"] = 90.0


@pytest.mark.thorough
def test_of_a_large_plant_the_map_shows_the_worst_alone_and_the_rest_as_one(open_page, observer):
    page = open_page("/")
    live(page, observer)
    observer.publish(large)
    nodes = page.locator("#flow a[href^='/nodes/']")
    expect(nodes.filter(has_text="and 195 more")).to_contain_text("all normal")
    addresses = nodes.evaluate_all("elements => elements.map((each) => each.getAttribute('href'))")
    assert len(addresses) == 6, addresses
    for name in ("n007", "n150"):
        expect(page.locator(f"#flow a[href='/nodes/{name}/']")).to_contain_text("Too busy")
    expect(page.locator("#flow a[href='/queues/q099/']")).to_have_count(1)
    expect(page.locator("#flow a[href='/queues/']")).to_contain_text("and 95 more")
    assert page.locator("#flow .band").count() < 200


@pytest.mark.thorough
def test_who_is_overloaded_comes_out_of_the_crowd_and_nobody_else_moves(open_page, observer):
    page = open_page("/")
    live(page, observer)
    observer.publish(large)
    boxes = page.locator("#flow a[href^='/nodes/n']")
    expect(boxes).to_have_count(5)
    before = {each.get_attribute("href") for each in boxes.all()}
    observer.publish(lambda snapshot: snapshot["nodes"]["n001"].update(utilisation=0.5))
    observer.publish(lambda snapshot: snapshot["nodes"]["n123"].update(state="BUSY", utilisation=0.75))
    expect(page.locator("#flow a[href='/nodes/n123/']")).to_contain_text("Busy")
    after = {each.get_attribute("href") for each in boxes.all()}
    assert {"/nodes/n007/", "/nodes/n150/", "/nodes/n123/"} <= after and len(after) == 5
    assert before != after


def arrivals(per_second):
    """All queues and nodes take as many events a second."""

    def arrive(snapshot):
        for queue in snapshot["queues"].values():
            for row in queue["containers"].values():
                row |= {"in_per_second": per_second, "out_per_second": per_second}

    return arrive


def outside_the_map(page):
    """Boxes and bands that reach beyond the map's frame as it is drawn, and boxes that stand over another."""
    return page.evaluate(
        """() => {
          const svg = document.querySelector("#flow svg"), frame = svg.viewBox.baseVal, found = [];
          const boxes = [...svg.querySelectorAll("rect.box")].map((box) => {
            const of = (name) => Number(box.getAttribute(name));
            return { x: of("x"), top: of("y"), bottom: of("y") + of("height") };
          });
          for (const { top, bottom } of boxes) {
            if (top < 0 || bottom > frame.height) found.push(`box ${top} ${bottom}`);
          }
          for (const one of boxes) for (const two of boxes) {
            const below = one !== two && one.x === two.x && one.top <= two.top;
            if (below && two.top < one.bottom) found.push(`over ${two.top}`);
          }
          for (const band of svg.querySelectorAll(".band")) {
            const numbers = band.getAttribute("d").match(/-?[\\d.]+/g).map(Number).filter((_, at) => at % 2);
            const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
            if (least < 0 || most > frame.height) found.push(`band ${numbers}`);
          }
          return found;
        }"""
    )


def test_a_burst_never_draws_anything_larger_than_the_map(open_page, observer):
    """What is drawn follows the rates late: when a burst is over, it is still high."""
    page = open_page("/")
    live(page, observer)
    for rate in (20.0, 30_000.0, 30_000.0, 20.0, 0.0, 20.0, 300_000.0, 1.0):
        observer.publish(arrivals(rate))
        sequence = str(observer.snapshot["seq"])
        page.wait_for_function(
            """(seq) => document.querySelector("#flow svg")?.dataset.snapshot === seq""", arg=sequence
        )
        assert outside_the_map(page) == [], rate


EVENT = {
    "id": "outage:run.1:0:0", "time": "2026-11-20T03:12:00+00:00", "type": "outage", "source": "host1",
    "key": "outage", "value": 3.0,
    "attributes": {
        "pattern": "outage", "severity": "critical", "first_time": 1_790_000_000.0,
        "events": [
            {"time_us": 1_790_000_000_000_000, "id": "e-1", "type": "load-rises", "value": 2.0, "source": "host1"},
        ],
    },
}  # fmt: skip


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
