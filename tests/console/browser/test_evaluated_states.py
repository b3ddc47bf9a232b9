"""Whatever is wrong, a page says what each subject was evaluated to be, or marks what it shows as old."""

import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang
from tests.console.browser.seen import CUT_OFF, SAID, is_true
from tests.waiting import until

pytestmark = BROWSER
WIDTHS = (390, 1024, 1280, 1440, 1920)


def calm(snapshot):
    """Nothing is wrong."""
    fresh = {"state": "NORMAL", "utilisation": 0.2, "stale": False, "age_seconds": 0.4}
    node = {**snapshot["nodes"]["n1"], **fresh}
    snapshot["nodes"] = {name: dict(node) for name in ("n1", "n2", "n3")}
    waits = {"waiting_events": 12, "wait_seconds": 0.4, "out_per_second": 30.0, "trend": "steady"}
    snapshot["queues"]["alert"] |= waits
    snapshot["pipeline"] |= {"state": "running", "error": None}
    snapshot["pipeline"]["applications"]["performance"]["state"] = "running"
    snapshot["loops"] = {}


def burst(snapshot):
    """30,000 events wait, and one left in the last 15 s."""
    calm(snapshot)
    waits = {"waiting_events": 30_000, "wait_seconds": 42.0, "out_per_second": 0.067, "trend": "rising"}
    snapshot["queues"]["alert"] |= waits
    snapshot["totals"] |= {"backlog_events": 30_000, "backlog_seconds": 42.0, "backlog_trend": "rising"}


def frozen_node(snapshot):
    """n2 has not reported for 14 s."""
    calm(snapshot)
    snapshot["nodes"]["n2"] |= {"state": "OFFLINE", "stale": True, "age_seconds": 14.0}


def failed_pipeline(snapshot):
    """The process has failed; its application's figures are those of before."""
    calm(snapshot)
    snapshot["pipeline"] |= {"state": "failed", "error": "Spark's workers timed out"}


def unknown(snapshot):
    """Nobody knows what waits."""
    calm(snapshot)
    snapshot["queues"]["alert"] |= {"waiting_events": None, "wait_seconds": None, "oldest_seconds": None}


def starting_application(snapshot):
    """It has worked nothing yet."""
    calm(snapshot)
    row = snapshot["pipeline"]["applications"]["performance"]
    row["state"] = "starting"
    for part in (*row["replicas"].values(), *row["operators"].values()):
        part |= {"in_per_second": 0.0, "utilisation": 0.0}


TROUBLES = (calm, burst, frozen_node, failed_pipeline, unknown, starting_application)


def wrong(page, observer):
    """What the page says of a subject that isn't what it was evaluated to be, nor marked old."""
    states = observer.snapshot["states"]
    return [said for said in page.evaluate(SAID) if not is_true(said, states.get(said["subject"]))]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("path", ["/", "/nodes/", "/queues/", "/pipeline/"])
def test_whatever_is_wrong_a_page_says_what_was_evaluated(path, open_page, observer):
    page = open_page(path)
    live(page, observer)
    for trouble in TROUBLES:
        observer.publish(trouble)

        def says_so():
            return not wrong(page, observer)

        try:
            until(says_so, every_seconds=0.25)
        except AssertionError:
            pytest.fail(f"{path} in {trouble.__name__}: {wrong(page, observer)}")
        said = page.evaluate(SAID)
        assert said, f"{path} names no subject"


@pytest.mark.thorough
def test_what_an_application_did_before_its_process_began_anew_is_old(open_page, observer):
    """A process that has begun anew says nothing of its applications yet."""
    page, applications = open_page("/pipeline/"), {}
    live(page, observer)

    def gone(snapshot):
        applications.update(snapshot["pipeline"]["applications"])
        snapshot["pipeline"]["applications"] = {}
        del snapshot["states"]["application/performance"]

    def back(snapshot):
        snapshot["pipeline"]["applications"] = applications

    observer.publish(calm)
    parts = page.locator("#pipeline-map")
    expect(parts.locator(".at-NORMAL").first).to_be_visible()
    observer.publish(gone)
    expect(parts).to_contain_text("Unknown")
    expect(parts).not_to_contain_text("Normal")
    expect(parts).not_to_contain_text("Idle")
    assert parts.locator(".band:not(.old)").count() == 0
    observer.publish(back)
    expect(parts.locator(".at-NORMAL").first).to_be_visible()
    expect(parts).not_to_contain_text("Unknown")


@pytest.mark.thorough
def test_the_figures_of_a_node_that_is_lost_are_marked_as_old(open_page, observer):
    page = open_page("/nodes/n2/")
    live(page, observer)
    expect(page.locator("section.figures")).not_to_have_attribute("data-stale", "")
    observer.publish(lambda s: s["nodes"]["n2"].update(state="OFFLINE", stale=True, age_seconds=14.0))
    for card in ("figures", "parts-title", "containers-title"):
        place = "section.figures" if card == "figures" else f"section[aria-labelledby={card}]"
        expect(page.locator(place)).to_have_attribute("data-stale", "")


@pytest.mark.thorough
def test_the_headline_follows_the_worst_problem_and_all_others_are_listed(open_page, observer):
    for viewport in (DESKTOP, PHONE):
        page = open_page("/", viewport=viewport)
        live(page, observer)
        for trouble in TROUBLES:
            observer.publish(trouble)
            health = observer.snapshot["health"]
            expect(page.locator("h1 .finding")).to_have_text(health["sentence"])
            expect(page.locator("#announcer")).to_have_text(f"{health['word']}: {health['sentence']}")
        observer.publish(lambda snapshot: (burst(snapshot), snapshot["nodes"]["n2"].update(state="BUSY")))
        findings = [finding["sentence"] for finding in observer.snapshot["health"]["findings"]]
        for sentence in findings:
            expect(page.locator("#hero")).to_contain_text(sentence)
        page.close()


@pytest.mark.sweep(8)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_connection_and_the_age_are_never_cut_off(width, open_page, observer):
    page = open_page("/nodes/", viewport={"width": width, "height": 900})
    live(page, observer)
    slot = page.locator("#connection").bounding_box()
    observer.publish(lambda snapshot: snapshot["queues"]["alert"].update(trouble="no such handler " * 20))
    for words in (("Live", "0.4 s"), ("Polling", "59 min"), ("Stale", "12 min"), ("Starting", "")):
        page.evaluate(
            "([word, age]) => { document.querySelector('#connection .word').textContent = word;"
            " document.querySelector('#connection .age').textContent = age; }",
            words,
        )
        assert page.evaluate(CUT_OFF) == [], (width, words)
        assert page.locator("#connection").bounding_box()["width"] == slot["width"]
    assert overhang(page) <= 0
