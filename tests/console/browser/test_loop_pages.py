"""Pages of loops: overrides and holds, what gains promise, who sets tasks, what is shed."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import orjson
import pytest
from playwright.sync_api import expect

from queues import keys
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, Observer, live, overhang, violations
from tests.console.browser.test_forms import reverting
from tests.console.served import ROOT
from tests.waiting import MAX_SECONDS, until

pytestmark = BROWSER


MAX_COLD_BYTES = 450_000


RECORD = """
from datetime import timedelta
from django.utils import timezone
from workers.models import Loop
loop = Loop.objects.get(name="worker_rate/alert/n1")
seen = {"removed": 0, "started": 0, "waiting_to_run": 0, "age_seconds": 0.2, "unfit": None, "queue_length": 3_000}
for number in range(10):
    loop.entries.create(
        at=timezone.now() - timedelta(seconds=100 - 5 * number), mode="auto", observation=seen, action={"start": 5},
        parameters={"events_per_worker": 100, "guard": {}}, reason="recorded for a replay",
    )
"""
FORGET = "from workers.models import LedgerEntry; LedgerEntry.objects.filter(reason='recorded for a replay').delete()"


@pytest.fixture
def recorded_ticks(served):
    """Ten ticks of the loop of alert's workers on n1, each of which started 5 workers."""

    def run(code):
        command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", code]
        subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True)

    run(RECORD)
    yield
    run(FORGET)


def test_an_override_says_what_it_does_holds_and_can_be_undone(open_page, observer, worker_loop, recorded_ticks):
    page = open_page(worker_loop)
    live(page, observer)
    button = page.locator("#steer button.primary")
    expect(button).to_be_disabled()
    page.get_by_label("Upper limit").fill("500")
    page.locator("#steer").get_by_label("Expires").select_option("2")
    expect(page.locator("#steer [data-difference]")).to_contain_text("50 % lower: 500 instead of 1,000")
    expect(button).to_have_text("Override upper limit to 500 for 2 min")
    page.locator("#steer").get_by_label("Reason").fill("a test of the form")
    button.click()
    banner = page.locator("[data-override]")
    expect(banner).to_contain_text("Upper limit 500 instead of 1,000")
    expect(banner).to_contain_text("a test of the form")
    expect(page.locator("#parameters tr", has_text="Upper limit").locator("td").first).to_have_text("500")
    page.get_by_role("button", name="Undo").click()
    expect(banner).to_have_count(0)
    # What if: the values are replayed on the record, then put in force until their end, and ended in the list.
    page.get_by_role("link", name="What if", exact=True).click()
    page.locator('[name="would-guard.maximum"]').fill("2")
    page.get_by_role("button", name="Run replay").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("of 10")
    expect(result).to_contain_text("recorded: 50")
    values = page.locator("form[action$=override]")
    values.get_by_label("Reason").fill("fewer suffice")
    values.get_by_role("button", name="Override values").click()
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    page.goto("/manual-changes/")
    row = page.locator("#hands li", has_text="fewer suffice")
    expect(row.locator("[data-until]").first).to_contain_text(":")
    row.locator("summary", has_text="End now").click()
    row.get_by_role("button", name="End now").click()
    expect(page.locator(".toast")).to_contain_text("ended")
    page.reload()
    expect(page.locator("#hands li", has_text="fewer suffice")).to_have_count(0)


@pytest.mark.thorough
def test_an_action_of_one_form_leaves_what_is_typed_in_another(open_page, observer, worker_loop):
    """The override above is about to end: more time for it, while the next value is being typed."""
    page = open_page(worker_loop)
    live(page, observer)
    steer, held = page.locator("#steer"), page.locator("#loop-overrides")
    page.get_by_label("Upper limit").fill("600")
    steer.get_by_label("Reason").fill("the first")
    steer.locator("button.primary").click()
    expect(held).to_contain_text("Upper limit 600")
    expect(page.get_by_label("Upper limit")).to_have_attribute("data-is", "600")
    expect(steer.get_by_label("Reason")).to_have_value("")
    page.get_by_label("Upper limit").fill("700")
    steer.get_by_label("Reason").fill("the next")
    page.evaluate("document.getElementById('steer').dataset.before = 'more time'")
    held.get_by_role("button", name="Extend by 30 min").click()
    expect(page.locator("#steer:not([data-before])")).to_be_attached()
    expect(page.get_by_label("Upper limit")).to_have_value("700")
    expect(steer.get_by_label("Reason")).to_have_value("the next")
    expect(steer.locator("button.primary")).to_have_text("Override upper limit to 700 for 30 min")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-override]")).to_have_count(0)
    expect(steer.get_by_label("Reason")).to_have_value("the next")


def with_an_end_at_a_time(open_page, observer, loop):
    """The loop's page and its form, with another limit until a time that is still to be said."""
    page = open_page(loop)
    live(page, observer)
    steer = page.locator("#steer")
    page.get_by_label("Upper limit").fill("650")
    steer.get_by_label("Expires").select_option("until")
    return page, steer


def test_the_button_says_the_day_of_an_end_that_is_not_today(open_page, observer, worker_loop):
    page, steer = with_an_end_at_a_time(open_page, observer, worker_loop)
    button = steer.locator("button.primary")
    steer.get_by_label("Until").fill("2030-01-02T14:30")
    expect(button).to_have_text("Override upper limit to 650 until Wed 2 Jan, 14:30")
    steer.get_by_label("Until").fill(page.evaluate("new Date().toLocaleDateString('sv') + 'T14:30'"))
    expect(button).to_have_text("Override upper limit to 650 until 14:30")


@pytest.mark.thorough
def test_an_end_at_a_time_stays_chosen_where_the_form_is_written_anew(open_page, observer, worker_loop):
    page, steer = with_an_end_at_a_time(open_page, observer, worker_loop)
    steer.get_by_label("Reason").fill("until a time")
    end = page.evaluate("new Date(Date.now() + 5400e3 - new Date().getTimezoneOffset() * 60e3).toISOString()")
    steer.get_by_label("Until").fill(end[:16])
    page.evaluate("document.activeElement.blur(); document.getElementById('steer').dataset.before = 'anew'")

    def is_written_anew():
        observer.publish(lambda snapshot: snapshot.update(overrides=[]))
        return page.locator("#steer:not([data-before])").count() == 1

    observer.publish(reverting(observer, 300))
    until(is_written_anew, every_seconds=0.5)
    expect(steer.get_by_label("Until")).to_have_value(end[:16])
    steer.locator("button.primary").click()
    expect(page.locator("[data-override]")).to_contain_text("until a time")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-override]")).to_have_count(0)


def test_a_value_out_of_range_is_refused_as_it_is_typed(open_page, observer, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    page.get_by_label("Upper limit").fill("0")
    expect(page.locator("#steer [data-difference]")).to_contain_text("must be at least 1")
    expect(page.locator("#steer button.primary")).to_be_disabled()


@pytest.mark.thorough
def test_what_was_asked_for_with_one_mode_is_not_sent_with_another(open_page, observer, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    line = page.locator("#why")
    page.get_by_role("button", name="Manual", exact=True).click()
    line.locator("input[name=value]").fill("3")
    line.locator("select[name=minutes]").select_option("until")
    expect(line.locator("input[name=expires_at]")).to_be_enabled()
    line.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Advise", exact=True).click()
    expect(line.locator("[data-do]")).to_have_text("Set to advise")
    expect(line.locator("input[name=expires_at]")).to_be_disabled()
    expect(line.locator("input[name=value]")).to_be_disabled()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("path", ["loop", "/queues/alert/", "/nodes/n1/", "/pipeline/", "/workers/", "/timeline/", "/"])
def test_a_page_weighs_little_for_who_opens_it_first(path, open_page, observer, worker_loop):
    """What comes over the wire, headers included, into a browser that has nothing of it yet."""
    weights = {}

    def weigh(page):
        addresses = {}
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.requestWillBeSent", lambda sent: addresses.update({sent["requestId"]: sent["request"]["url"]}))
        wire.on(
            "Network.loadingFinished",
            lambda done: weights.update({addresses[done["requestId"]]: int(done["encodedDataLength"])}),
        )

    page = open_page(worker_loop if path == "loop" else path, before=weigh)
    live(page, observer)
    page.wait_for_load_state("networkidle")
    has_charts = page.locator("figure.chart").count() > 0
    assert any("plotly" in address for address in weights) == has_charts, "this weighs the charts' library, too"
    heaviest = sorted(weights.items(), key=lambda item: -item[1])[:8]
    assert sum(weights.values()) <= MAX_COLD_BYTES, heaviest


@pytest.fixture(scope="module")
def steered(served, _control_server):
    """What the control server holds of an application that was steered for three quarters of an hour."""
    environment = {**served.environment, "DJANGO_SETTINGS_MODULE": "console.settings"}
    command = [sys.executable, "-m", "tests.console.browser.steered"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    control = _control_server.client()
    return {key: control.dump(key) for key in control.keys("weir:*")}


@pytest.fixture
def watched(steered, control):
    for key, value in steered.items():
        control.restore(key, 0, value, replace=True)
    return Observer(control, orjson.loads(control.get(keys.SNAPSHOT)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "viewport", "scheme"),
    [("joint/performance", DESKTOP, "dark"), ("forecast/performance/hosts", PHONE, "light")],
    ids=["joint-desktop", "forecast-phone"],
)
def test_everybody_can_read_who_sets_tasks_and_why(law, viewport, scheme, open_page, watched):
    loop = watched.snapshot["loops"][f"parallelism_{law}"]["id"]
    page = open_page(f"/loops/{loop}/", viewport=viewport, color_scheme=scheme)
    live(page, watched)
    expect(page.locator("#deciders .steers")).to_contain_text("joint")
    expect(page.locator("#foreseen path.spread")).to_have_count(1)
    expect(page.locator("#operator-tasks tbody tr")).to_have_count(2)
    assert violations(page) == [] and overhang(page) <= 0


GAINS = {"kp": -0.005589, "ki": -0.001293, "kd": 0.685, "a": 0.985, "b": -134.0, "delay": 1}


@pytest.fixture(scope="module")
def pages(served):
    """The pages of a flow loop and of a balance loop, put into the console's database."""
    database = served.log.parent / "weir.sqlite3"
    rows = [(law, law, "{}", orjson.dumps(values).decode()) for law, values in (("flow", GAINS), ("balance", {}))]
    with closing(sqlite3.connect(database, timeout=MAX_SECONDS)) as connection, connection:
        connection.executemany(
            "insert into workers_loop (name, law, target, parameters, mode, guard, interval_seconds, fence, at_rest)"
            " values (?, ?, ?, ?, 'auto', '{}', 2.0, 0, false)",
            rows,
        )
        found = connection.execute("select law, id from workers_loop where law in ('flow', 'balance')")
        return {law: f"/loops/{number}/" for law, number in found}


@pytest.mark.slow
@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"])
def test_gains_say_what_they_promise_while_they_are_typed(viewport, scheme, open_page, observer, pages):
    page = open_page(pages["flow"], viewport=viewport, color_scheme=scheme)
    live(page, observer)
    card = page.locator("#prediction")
    expect(card).to_contain_text("Settles in 20 s and overshoots by 0 %.")
    expect(card.locator(".plane path")).to_have_count(1)
    page.locator("#would-kp").fill("-0.0061")
    expect(card).to_contain_text("Expected change")
    expect(card.locator(".plane path")).to_have_count(2)
    assert violations(page) == [] and overhang(page) <= 0
    page.locator("#would-kd").fill("0")
    page.locator("#would-ki").fill("-0.008")
    expect(card).to_contain_text("Unstable in the model")
    page.locator("#steer").get_by_role("button", name="Discard").click()
    expect(card).to_contain_text("Expected behavior")


NAME = "shedding/performance"
FILL = f"""
from workers.models import Loop
from workers.control.kinds.registry import KINDS
shedding_loop = Loop.objects.create(name="{NAME}", law="shedding", mode="auto",
                           target={{"application": "performance"}},
                           parameters=dict(KINDS["shedding"].defaults.parameters))
print(shedding_loop.pk)
"""


@pytest.fixture(scope="module")
def shedding_loop(served):
    command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", FILL]
    made = subprocess.run(command, cwd=ROOT, env=served.environment, check=True, capture_output=True, text=True)
    return int(made.stdout.split()[-1])


@pytest.mark.thorough
def test_the_chart_of_what_is_shed_stays_when_the_loop_has_ticked(open_page, observer, shedding_loop):
    page = open_page(f"/loops/{shedding_loop}/")
    chart = page.locator("figure[data-chart^='Shed share'] .js-plotly-plot")

    def tick(entry):
        row = {**observer.snapshot["loops"]["worker_rate/alert/n1"], "id": shedding_loop, "law": "shedding"}
        row |= {"target": {"application": "performance"}, "entry": entry}

        def change(snapshot):
            snapshot["loops"][NAME] = row
            snapshot["pipeline"]["applications"]["performance"]["patterns"]["load-rises"]["shed_share"] = 0.2

        observer.publish(change)

    live(page, observer)
    page.locator("figure[data-chart^='Shed share']").scroll_into_view_if_needed()
    tick(1)
    expect(chart).to_be_visible()
    page.evaluate("document.getElementById('shed').dataset.before = 'the tick'")

    def is_written_anew():
        tick(2)
        return page.locator("#shed:not([data-before])").count() == 1

    until(is_written_anew, every_seconds=0.5)
    expect(chart).to_be_visible()
