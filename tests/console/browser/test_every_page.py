"""Every page can be used by everybody: by its rules, on a phone, from the keyboard, without scripts, of the past."""

import itertools
import re
import time
from copy import deepcopy
from datetime import UTC, datetime, timedelta

import httpx
import orjson
import pytest
from django.urls import resolve, reverse
from playwright.sync_api import expect

from console.input.form_values import format_iso_time
from console.navigation import on_rail
from tests.console.accounts.route_permissions import ROUTE_PERMISSIONS
from tests.console.browser.furnished import clear, furnish, with_objective
from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, WIDTHS, live, overhang, unreadable, violations
from tests.console.pipeline_sample import DECLARATION
from tests.waiting import MAX_SECONDS
from workers.history.snapshot_archive import Recorder
from workers.pipeline.declaration.declared import Declarations, DeclarationText

pytestmark = BROWSER


# Whatever stands on the rail, and pages behind it; /loops/1/ is the rebalancing loop, which is made first.
PAGES = (
    *(reverse(name) for name, *_ in on_rail()), "/nodes/n1/", "/queues/alert/", "/queues/alert/waiting/?node=n1",
    "/queues/alert/definition/", "/queues/new", "/workers/jobs@here/", "/loops/1/", "/loops/2/",
    "/loops/2/what-if/", "/settings/plant/", "/proposals/", "/plants/", "/plants/main/", "/settings/users/",
    "/welcome/", "/windows/import/",
    "/alerts/review/", "/reports/", "/alerts/silences/", "/alerts/rules/", "/alerts/rules/node-lost/",
    "/alerts/receivers/", "/costs/", "/tasks/retention/", "/help/understand/", "/help/operate/alerts/node-lost/",
    "/task-history/failures/", "/help/reference/laws/flow/", "/help/?q=override",
)  # fmt: skip
# Pages of single things, of which the console is given one each.
SINGLE_PAGES = (
    "/windows/{window}/", "/windows/{window}/edit/", "/alerts/{alert}/", "/alerts/{alert}/incident/",
    "/plans/{plan}/", "/drills/{drill}/", "/retries/{retry}/", "/plants/walked-app/messages/",
    "/plants/walked-app/revoke/?q=name:shop.pay", "/plants/walked-log/offsets/",
    "/service-levels/{objective}/",
    "/service-levels/new/", "/loops/{loop}/", "/ledger/{entry}/", "/tasks/{task}/", "/runs/{run}/",
    "/lab/{experiment}/", "/lab/compare?id={experiment}", "/lab/figures/", "/lab/figures/xu-figure-6/",
    "/pipeline/performance/",
    "/task-history/?plant=main&query=4711", "/task-history/task/?plant=main&id=walked",
    "/pipeline/performance/declaration/", "/plants/attach",
    "/differences/?from=2026-11-24T02:00:00Z&to=2026-11-24T02:10:00Z", "/settings/second-factor/",
)  # fmt: skip
# Walked where their things are: by the tests of these pages.
WALKED_ELSEWHERE = {
    "dead-letters/<str:queue>/<str:node>/<str:dead_id>/",
    "overrides/",  # leads to Manual changes
    "pipeline/<str:name>/operators/<str:operator>/",
    "proposals/<int:proposal_id>/",
    "shared/<str:signed>/",  # below, without a login
}
# Nobody is logged in yet, or what is shown is somebody's own.
OF_NOBODY = {"login/", "login/code/", "logged-out/", "confirm/", "oidc/begin/", "oidc/callback/"}
VISITS = {"desk": (DESKTOP, "light"), "phone": (PHONE, "dark")}


@pytest.fixture(scope="module")
def tab(shared):
    """One for all visits: a new one takes as long as the visit."""
    page = shared.new_page()
    yield page
    page.close()


@pytest.fixture
def walk(tab, shared, session):
    """The tab, logged in; the test fails when a page logs an error."""
    errors = []

    def note(error):
        errors.append(str(error))

    shared.add_cookies(session["cookies"])
    tab.on("pageerror", note)
    yield tab
    tab.remove_listener("pageerror", note)
    assert errors == []


@pytest.fixture(scope="module")
def things(served):
    found = furnish(served)
    yield found
    clear(served, found)


@pytest.fixture
def declared(control):
    """The pipeline says which declaration it works by."""
    Declarations(control).note_at_work(DeclarationText("performance", 0, DECLARATION))


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("path", "seen"), list(zip(PAGES, itertools.cycle(VISITS), strict=False)))
def test_a_page_can_be_used_by_everybody_and_fits(path, seen, walk, observer):
    """Half of the pages on a desk in light, half on a phone in dark; the slow proof sees each on both."""
    used_by_everybody(walk, path, VISITS[seen])


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_a_page_can_be_used_by_everybody_on_a_wide_screen_and_on_a_phone(path, walk, observer):
    used_by_everybody(walk, path, *VISITS.values())


@pytest.mark.slow
@pytest.mark.parametrize("path", SINGLE_PAGES)
def test_so_can_the_page_of_a_single_thing(path, walk, observer, things, declared):
    observer.publish(with_objective)
    used_by_everybody(walk, path.format(**things), *VISITS.values())


def test_every_page_is_walked():
    """A page's address ends in "/"; those of files and of the API do not."""
    paths = [re.sub(r"\{\w+\}", "1", path.partition("?")[0]) for path in (*PAGES, *SINGLE_PAGES)]
    walked = {resolve(path).route for path in paths}
    doors = {door.removeprefix("GET ") for door in ROUTE_PERMISSIONS if door.startswith("GET ")}
    pages = {route for route in doors if route.endswith("/") and not route.startswith(("api/", "control/"))}
    assert pages - walked - WALKED_ELSEWHERE - OF_NOBODY == set()


def used_by_everybody(page, path, *visits):
    page.set_viewport_size(DESKTOP)
    page.emulate_media(color_scheme="light")
    page.goto(path)
    expect(page.locator("#connection")).not_to_have_attribute("data-connection", "reading")
    for viewport, scheme in visits:
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert violations(page) == [], (path, scheme)
        wider = overhang(page)
        assert wider <= 0, f"{path} is {wider} px wider than a screen of {viewport['width']} px"


MAIN_PAGES = (
    *(reverse(name) for name, *_ in on_rail()), "/loops/1/", "/settings/plant/", "/settings/users/", "/plants/",
    "/welcome/", "/queues/alert/", "/alerts/{alert}/",
)  # fmt: skip


def in_trouble(snapshot):
    """Two critical problems with long sentences, a manual change that ends, a planned window, and an incident."""
    now = time.time()
    sentence = "Queue alert is filling: 30,904 events wait, the oldest for 78 s; its handler holds both worker slots."
    common = {
        "severity": "critical",
        "sign": "TOOBUSY",
        "sentence": sentence,
        "impact": f"No event is lost. {sentence}",
    }
    snapshot["health"] |= {
        "state": "TOOBUSY", "severity": "critical", "sentence": sentence,
        "findings": [{"subject": "queue/alert", "incident": 7, **common}, {"subject": "node/n1", **common}],
    }  # fmt: skip
    alert = {"id": 1_234, "severity": "critical", "title": "Queue alert falls behind", "since": now - 4_000}
    hand = {"key": "override:1", "kind": "pause", "of": "queue/alert", "title": "Consumption of alert",
            "value": "paused", "owner": "ada", "reason": "its database is restored", "until": now + 1_700}  # fmt: skip
    snapshot["alerts"], snapshot["hands"] = [alert], [hand]
    snapshot["windows"] = [{"id": 1, "name": "Security patches of all nodes", "kind": "maintenance", "active": False,
                            "starts_at": now + 1_500, "ends_at": now + 8_700}]  # fmt: skip
    snapshot["totals"] |= {"latency_p95_seconds": 115.0, "backlog_seconds": 1_114.0, "backlog_events": 3_000_000}


def in_one_trouble(incident):
    """The change of a snapshot in which one critical problem has an incident and an action."""
    sentence = "The handler of queue alert became 8× slower and holds both worker slots."
    effect = "Frees both worker slots in 36 s. Queue telemetry catches up; events of alert wait."
    action = {"action": "queue.pause", "subject": "queue/alert", "value": "consumption", "effect": effect,
              "words": "Pause consumption of alert"}  # fmt: skip
    finding = {
        "subject": "queue/alert", "severity": "critical", "sign": "TOOBUSY", "sentence": sentence, "incident": incident,
        "impact": "Queue telemetry can't get a slot: its oldest event waits 1,114 s (limit 30 s). No event is lost.",
        "affected": ["queue/telemetry"], "actions": [action],
    }  # fmt: skip

    def change(snapshot):
        snapshot["health"] |= {"state": "TOOBUSY", "severity": "critical", "sentence": sentence, "findings": [finding]}
        alert = {
            "id": incident,
            "severity": "critical",
            "title": "Queue alert falls behind",
            "since": time.time() - 400,
        }
        snapshot["alerts"] = [alert]
        snapshot["totals"] |= {"latency_p95_seconds": 115.0, "backlog_seconds": 1_114.0, "backlog_events": 394}

    return change


def calm(snapshot):
    """All nodes are normal, and one is drained."""
    normal = snapshot["nodes"]["n1"]
    snapshot["nodes"] |= {"n2": {**normal}, "n3": {**normal, "drained": True}}


def readable_at_any_width(page, path, observer, **change):
    page.set_viewport_size(DESKTOP)
    page.emulate_media(reduced_motion="reduce")
    observer.publish(**change)
    page.goto(path)
    expect(page.locator("#connection")).not_to_have_attribute("data-connection", "reading")
    for width, scheme in zip(WIDTHS, itertools.cycle(("light", "dark")), strict=False):
        observer.publish(**change)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert (overhang(page), unreadable(page)) == (0, []), (path, width)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("path", MAIN_PAGES)
def test_no_text_is_cut_or_lies_on_another_in_trouble(path, walk, observer, things):
    """At six widths, with the themes in turn."""
    readable_at_any_width(walk, path.format(**things), observer, evaluated=in_trouble)


@pytest.mark.slow
@pytest.mark.parametrize("path", MAIN_PAGES)
def test_so_is_one_single_trouble(path, walk, observer, things):
    readable_at_any_width(walk, path.format(**things), observer, evaluated=in_one_trouble(things["alert"]))


def test_the_page_of_an_incident_names_the_cause_and_its_action_states_the_effect(walk, observer, things):
    cause, effect = "The handler of queue alert became 8× slower", "Frees the worker slots. Events of alert wait."
    pause = {"action": "queue.pause", "subject": "queue/alert", "value": "consumption",
             "words": "Pause consumption of alert", "effect": effect}  # fmt: skip
    finding = {"subject": "queue/alert", "severity": "critical", "sign": "TOOBUSY", "sentence": cause,
               "impact": "Queue process waits 41 s.", "incident": things["alert"], "actions": [pause]}  # fmt: skip
    walk.set_viewport_size(DESKTOP)
    walk.goto(f"/alerts/{things['alert']}/")
    live(walk, observer)

    def change(snapshot):
        snapshot["health"] |= {"severity": "critical", "sentence": cause, "findings": deepcopy([finding])}

    observer.publish(evaluated=change)
    expect(walk.locator("h1")).to_have_text(cause)
    expect(walk.locator("#impact")).to_have_text("Queue process waits 41\u00a0s.")
    action = walk.locator("#do-now details", has_text="Pause consumption of alert")
    action.locator("summary").click()
    expect(action.locator("form")).to_contain_text(effect)
    pause["effect"] = effect.replace("alert wait", "alert wait: 12/s arrive")
    observer.publish(evaluated=change)  # the open form has the same reading as the card
    expect(action.locator("form")).to_contain_text(pause["effect"])
    expect(action.get_by_label("Reason")).to_have_value(f"Incident {things['alert']}: {cause}")
    action.get_by_role("button", name="Pause consumption of alert").click()
    toast = walk.locator(".toast")
    expect(toast).to_contain_text("alert")
    toast.get_by_role("button", name="Undo").click()
    expect(walk.locator(".toast", has_text="Consumption of alert continues.")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("path", [*MAIN_PAGES, *SINGLE_PAGES])
def test_so_is_a_calm_plant_and_each_single_thing(path, walk, observer, things, declared):
    observer.publish(with_objective)
    readable_at_any_width(walk, path.format(**things), observer, change=calm)


@pytest.mark.thorough
def test_a_shared_link_is_made_on_the_timeline_and_can_be_used_by_everybody_without_a_login(
    open_page, observer, served, chromium
):
    then = datetime.now(UTC) - timedelta(seconds=5)
    Recorder(served.log.parent).add(then.timestamp(), orjson.dumps({**observer.snapshot, "at": then.timestamp()}))
    page = open_page("/timeline/")
    form = page.locator("form[data-share]")
    form.get_by_label("Time shown (UTC)").fill(format_iso_time(then + timedelta(seconds=1)))
    form.get_by_label("Reason").fill("for the mail room")
    form.get_by_role("button", name="Create link").click()
    expect(page.locator("#toasts")).to_contain_text("Link created")
    page.reload()
    address = page.locator("#shared-links").get_by_role("link", name="Open").first.get_attribute("href")
    for viewport, scheme in VISITS.values():
        stranger = chromium.new_context(viewport=viewport, color_scheme=scheme)
        seen = stranger.new_page()
        seen.goto(address)
        expect(seen.get_by_role("heading", level=1)).to_contain_text("Plant main on")
        assert violations(seen) == [] and overhang(seen) <= 0
        stranger.close()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("path", ["/", "/timeline/"])
def test_nothing_moves_for_who_asked_for_stillness(path, open_page, observer):
    page = open_page(path, reduced_motion="reduce")
    live(page, observer)
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97))
    expect(page.locator("#strips" if path != "/" else "#flow .at-TOOBUSY").first).to_be_visible()
    moving = "document.getAnimations().filter((each) => each.effect.getTiming().duration > 0).length"
    assert page.evaluate(moving) == 0


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("path", "heads"),
    [("/queues/", ["Waiting", "Wait, s", "In, /s"]), ("/nodes/", ["State", "Used, %"]), ("/workers/", ["Waiting"])],
)
def test_a_phone_shows_values_with_their_titles_without_scrolling_sideways(path, heads, open_page, observer):
    page = open_page(path, viewport=PHONE)
    live(page, observer)
    for head in heads:
        value = page.locator(f'table.cards:visible tbody td[data-label="{head}"]').first
        box = value.bounding_box()
        assert box is not None and box["x"] + box["width"] <= PHONE["width"], head


def long_names(snapshot):
    """Names as long as they may be, of a node that nobody ever heard of, too."""
    nodes, queues = snapshot["nodes"], snapshot["queues"]
    nodes["node-" + "a" * 35] = nodes["n2"]
    never = {"state": None, "last_state": None, "utilisation": None, "raw": None, "stale": True}
    nodes["node-of-the-machine-room-beneath-the-dam"] = {**nodes["n1"], **never}
    late = {**queues["alert"], "wait_seconds": 4_000.0, "oldest_seconds": 4_000.0}
    queues["queue-" + "b" * 34] = queues["telemetry-of-all-the-weirs-of-the-river-"] = late
    for node in list(nodes):
        queues["alert"]["containers"].setdefault(node, queues["alert"]["containers"]["n1"])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("path", ["/", "/nodes/", "/queues/", "/queues/alert/", "/workers/", "/plans/"])
def test_names_as_long_as_they_may_be_fit_a_phone(path, open_page, observer):
    page = open_page(path, viewport=PHONE)
    live(page, observer)
    observer.publish(long_names)
    page.reload()
    live(page, observer)
    for label in page.locator("#hand-rows label").all():  # of the nodes of the database
        label.evaluate("(label) => { label.textContent = 'n'.repeat(40); }")
    assert overhang(page) <= 0
    for table in page.locator("#phone-nodes table, #hand-rows table").all():
        assert table.evaluate("(table) => table.offsetWidth <= table.parentElement.clientWidth")


def test_the_keyboard_reaches_everything(open_page, observer, things):
    page = open_page("/nodes/")
    live(page, observer)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("#nodes-table tbody tr").first).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("alert")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/queues/alert/$"))
    live(page, observer)

    def advise_pause_of_intake(snapshot):  # another test has paused the consumption, which is not offered again at once
        in_one_trouble(things["alert"])(snapshot)
        [action] = snapshot["health"]["findings"][0]["actions"]
        action |= {"value": "intake", "words": "Pause intake of alert"}

    observer.publish(evaluated=advise_pause_of_intake)
    page.keyboard.press("Control+k")
    expect(page.locator("#search-results [data-url]").first).to_contain_text("Pause intake of alert")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/alerts/{things['alert']}/#action-queue-pause-queue-alert-intake$"))
    form = page.locator("details.quick-action[open] form")
    expect(form.get_by_label("Reason")).to_be_visible()


def test_the_numbers_are_there_without_scripts(open_page, observer):
    page = open_page("/nodes/", java_script_enabled=False)
    assert page.locator('[data-bind="nodes.n2.utilisation"][data-format="percent"]').text_content() == "78"
    assert page.locator('[data-row="nodes.n2"] .word').text_content() == "Busy"


@pytest.mark.thorough
def test_a_user_chooses_the_theme_for_all_browsers(open_page, observer):
    page = open_page("/settings/", color_scheme="light")
    ground = "getComputedStyle(document.body.parentElement).backgroundColor"

    def choose(theme):
        with page.expect_response("**/settings/preferences") as answer:
            page.get_by_role("button", name=theme).click()
        assert answer.value.ok

    choose("Dark")
    try:
        assert page.evaluate(ground) == "rgb(15, 19, 24)"
        other = open_page("/", locale="en-GB")  # another browser
        assert other.evaluate(ground) == "rgb(15, 19, 24)"
    finally:
        choose("System")


WINDOW = "from=2026-11-20T00:00:00&to=2026-11-20T06:00:00"
EXPORTS = (
    "/api/v1/audit/export?format=json&to=2031-01-01T00:00:00Z&action=user",
    f"/timeline/table.csv?what=figures&{WINDOW}",
)


def headers_of(session, encoding):
    cookies = "; ".join(f"{each['name']}={each['value']}" for each in session["cookies"])
    return {"Cookie": cookies, "Accept-Encoding": encoding}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("address", EXPORTS)
def test_an_export_is_the_same_compressed_plain_and_in_the_browser(address, served, session, open_page, tmp_path):
    url = f"http://127.0.0.1:{served.port}{address}"
    plain = httpx.get(url, headers=headers_of(session, "identity"), timeout=MAX_SECONDS)
    packed = httpx.get(url, headers=headers_of(session, "gzip"), timeout=MAX_SECONDS)
    assert plain.status_code == 200 and plain.headers["Content-Disposition"].startswith("attachment")
    assert "Content-Encoding" not in plain.headers and packed.headers["Content-Encoding"] == "gzip"
    assert packed.content == plain.content

    page = open_page("/settings/")
    with page.expect_download() as expected:
        page.evaluate("address => { const a = document.createElement('a'); a.href = address; a.click(); }", address)
    saved = tmp_path / "saved"
    expected.value.save_as(saved)
    assert saved.read_bytes() == plain.content


AT = re.compile(r"\?at=20\d\d-")


@pytest.fixture
def past(observer, served):
    """The plant of twenty minutes ago, as an address names it."""
    then = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=20)
    was = {**observer.snapshot, "at": then.timestamp()}
    Recorder(served.log.parent).add(was["at"], orjson.dumps(was))
    return f"at={then:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.thorough
def test_what_the_palette_finds_is_shown_as_of_then(open_page, past):
    page = open_page(f"/?{past}")
    page.keyboard.press("/")
    page.keyboard.type("workers")
    expect(page.locator("#search-results [data-url]").first).to_contain_text("Workers")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/workers/{AT.pattern}"))
    expect(page.get_by_text("Plant state at")).to_be_visible()


@pytest.mark.thorough
def test_what_is_closed_leads_to_the_list_as_of_then(open_page, past):
    page = open_page(f"/pipeline/performance/operators/hosts/?{past}")
    expect(page.locator("a[data-close]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(f"/pipeline/performance/{AT.pattern}"))
