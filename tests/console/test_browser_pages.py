"""The pages in a real Chromium on a real console: they read, move, steer, and everybody can use them."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from copy import deepcopy
from typing import Any

import orjson
import pytest
import redis
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, WebSocketRoute, expect, sync_playwright

from console.control_server import SNAPSHOT_KEY
from console.live.fanout import CHANNEL
from console.templatetags.weir import FORMATS, formatted
from tests.console.conftest import bury, sample_snapshot
from tests.console.served import PASSWORD, Served
from tests.waiting import until
from workers.merge_patch import difference

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="Chromium is missing; install it with apt to run these tests."
    ),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
]
PAGES = (
    "/",
    "/nodes/",
    "/nodes/n1/",
    "/queues/",
    "/queues/alert/",
    "/workers/",
    "/pipeline/",
    "/loops/",
    "/loops/1/",  # the rebalancing loop: it is made first
    "/loops/2/",
    "/plans/",
    "/ledger/",
    "/audit/",
    "/settings/",
)
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
Snapshot = dict[str, Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def session(chromium: Browser, served: Served) -> dict[str, Any]:
    """The cookies of one login through the form, for all tests: argon2 is slow on purpose."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{served.port}/nodes/")
    page.get_by_label("User name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(scope="module")
def worker_loop(served: Served) -> str:
    """The page of the loop of alert's workers on n1."""
    with closing(served.connection()) as connection:
        connection.request("GET", "/api/v1/loops", headers={"Cookie": served.log_in()})
        loops = orjson.loads(connection.getresponse().read())["loops"]
    return next(f"/loops/{loop['id']}/" for loop in loops if loop["name"] == "worker_rate/alert/n1")


@pytest.fixture
def open_page(chromium: Browser, served: Served, session: dict[str, Any]) -> Iterator[Callable[..., Page]]:
    """Opens an address in a new context; the test fails when the page logs an error."""
    errors: list[str] = []
    contexts = []

    def opened(path: str, before: Callable[[Page], None] | None = None, **options: Any) -> Page:
        options = {"viewport": DESKTOP, "storage_state": session, **options}
        context = chromium.new_context(base_url=f"http://127.0.0.1:{served.port}", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        if before:
            before(page)
        page.goto(path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


class Observer:
    """Publishes snapshots as the real one does: stored, and sent with what changed since the last."""

    def __init__(self, control: redis.Redis, snapshot: Snapshot) -> None:
        self.control, self.snapshot = control, snapshot
        self.control.set(SNAPSHOT_KEY, orjson.dumps({**snapshot, "at": time.time()}))

    def publish(self, change: Callable[[Snapshot], Any] = lambda snapshot: None, skip: int = 0) -> None:
        after = deepcopy(self.snapshot)
        change(after)
        after |= {"seq": self.snapshot["seq"] + 1 + skip, "at": time.time()}
        delta = difference(self.snapshot, after)
        message = {
            "seq": after["seq"],
            "at": after["at"],
            "topic": "plant",
            "snapshot": after,
            "delta": delta,
        }
        self.control.set(SNAPSHOT_KEY, orjson.dumps(after))
        self.control.publish(CHANNEL, orjson.dumps(message))
        self.snapshot = after


@pytest.fixture
def observer(control: redis.Redis) -> Observer:
    return Observer(control, whole_snapshot())


def whole_snapshot() -> Snapshot:
    """Three nodes in different states, and the loop that the seeded database holds."""
    snapshot = sample_snapshot()
    calm = snapshot["nodes"]["n1"]
    snapshot["nodes"] |= {
        "n2": {**calm, "state": "BUSY", "utilisation": 0.78},
        "n3": {**calm, "state": "OFFLINE", "stale": True, "in_per_second": None, "age_seconds": 14.0},
    }
    snapshot["loops"] = {
        "worker_rate/alert/n1": {
            "id": 1,
            "law": "worker_rate",
            "target": {"queue": "alert", "node": "n1"},
            "mode": "auto",
            "measured": 12,
            "setpoint": 1000,
            "actuator": 1,
            "at": snapshot["at"],
            "reason": "12 events wait.",
            "verdict": "effective",
            "entry": None,
            "overrides": 0,
        }
    }
    return snapshot


def figure(page: Page, path: str):
    return page.locator(f'[data-bind="{path}"]:visible').first


def live(page: Page, observer: Observer) -> None:
    """Publish until the page follows: its scripts have run, its socket is joined, the observer is heard."""

    def follows() -> bool:
        observer.publish()
        return page.locator("#connection").get_attribute("data-connection") == "live"

    until(follows, 20, every_seconds=0.25)


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["light", "phone"]
)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_can_be_used_by_everybody_and_fits(path, viewport, scheme, open_page, observer):
    page = open_page(path, viewport=viewport, color_scheme=scheme)
    expect(page.locator("#connection")).not_to_have_attribute("data-connection", "reading")
    broken = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in broken] == []
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0, f"{path} is {wider} px wider than the screen"


def test_a_change_of_the_plant_is_on_the_page_without_a_reload(open_page, observer):
    page = open_page("/")
    live(page, observer)
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=12_345.0))
    expect(figure(page, "totals.in_per_second")).to_have_text("12,345", timeout=1_500)


def test_what_becomes_unknown_is_a_dash_and_never_zero(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    expect(figure(page, "nodes.n3.in_per_second")).to_have_text("—")
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(in_per_second=None))
    expect(figure(page, "nodes.n1.in_per_second")).to_have_text("—")


def test_after_a_gap_the_page_asks_for_the_whole_and_goes_on(open_page, observer):
    page = open_page("/")
    live(page, observer)
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=777.0), skip=5)
    observer.publish(lambda snapshot: snapshot["totals"].update(out_per_second=778.0))
    expect(figure(page, "totals.in_per_second")).to_have_text("777")
    expect(figure(page, "totals.out_per_second")).to_have_text("778")


def test_a_silent_observer_is_said_and_its_numbers_dim(open_page, observer):
    page = open_page("/")
    live(page, observer)
    expect(page.locator("#connection")).to_contain_text("Observer silent for", timeout=8_000)
    opacity = figure(page, "totals.in_per_second").evaluate("element => getComputedStyle(element).opacity")
    assert float(opacity) < 1


def test_without_a_socket_the_page_polls_and_says_so(open_page, observer):
    def without_socket(page: Page) -> None:
        page.route_web_socket("**/live/", close)

    def close(route: WebSocketRoute) -> None:
        route.close()

    page = open_page("/", before=without_socket)
    expect(page.locator("#connection")).to_contain_text("Polling", timeout=15_000)
    observer.publish(lambda snapshot: snapshot["totals"].update(in_per_second=4_321.0))
    expect(figure(page, "totals.in_per_second")).to_have_text("4,321")


def test_a_console_that_is_gone_is_said_with_its_time(open_page, observer):
    sockets: list[WebSocketRoute] = []

    def breakable(page: Page) -> None:
        page.route_web_socket("**/live/", connect)

    def connect(route: WebSocketRoute) -> None:
        if sockets:
            route.close()
        else:
            route.connect_to_server()
            sockets.append(route)

    page = open_page("/", before=breakable)
    live(page, observer)
    page.route("**/api/v1/live", lambda route: route.abort())
    sockets[0].close()
    expect(page.locator("#connection")).to_contain_text("Disconnected since", timeout=15_000)


def test_the_worst_row_is_first_and_no_row_moves_under_the_pointer(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    names = page.locator("#nodes-table tbody tr th")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.locator("#nodes-table tbody tr").first.hover()
    observer.publish(lambda snapshot: snapshot["nodes"]["n1"].update(state="TOOBUSY", utilisation=0.97))
    observer.publish(
        lambda snapshot: snapshot["nodes"]["n3"].update(state="IDLE", stale=False, utilisation=0.0)
    )
    expect(page.locator('[data-row="nodes.n1"] .word')).to_have_text("Too busy")
    expect(names).to_have_text(["n3", "n2", "n1"])
    page.mouse.move(5, 5)
    observer.publish()
    expect(names).to_have_text(["n1", "n2", "n3"])


def test_a_node_that_joins_gets_its_row(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    observer.publish(lambda snapshot: snapshot["nodes"].update(n4={**snapshot["nodes"]["n1"]}))
    expect(page.locator('[data-row="nodes.n4"]')).to_be_visible(timeout=8_000)


def test_a_page_opened_before_the_first_snapshot_comes_alive_by_itself(open_page, control):
    page = open_page("/nodes/")
    expect(page.get_by_role("heading", name="The plant is starting")).to_be_visible()
    observer = Observer(control, whole_snapshot())
    live(page, observer)
    row = page.locator('[data-row="nodes.n1"]')

    def follows() -> bool:
        observer.publish()
        return row.is_visible()

    until(follows, 20, every_seconds=0.5)


def test_the_map_colours_only_what_arrives_at_a_node_in_trouble(open_page, observer):
    def arrive(snapshot: Snapshot) -> None:
        for queue in snapshot["queues"].values():
            row = queue["containers"]["n1"]
            queue["containers"] = {name: {**row, "in_per_second": 5.0} for name in snapshot["nodes"]}

    page = open_page("/")
    live(page, observer)
    observer.publish(arrive)
    bands = page.locator("#flow .band.to-BUSY")
    expect(bands).to_have_count(2)  # telemetry and alert, both into n2
    expect(page.locator("#flow .band.to-TOOBUSY")).to_have_count(0)


def test_an_override_says_what_it_does_holds_and_can_be_undone(open_page, observer, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    button = page.locator("#steer button.primary")
    expect(button).to_be_disabled()
    page.get_by_label("Upper limit").fill("500")
    page.locator("#steer").get_by_label("Expires").select_option("2")
    expect(page.locator("[data-difference]")).to_contain_text("50 % lower: 500 instead of 1,000")
    expect(button).to_have_text("Override upper limit to 500 for 2 min")
    page.locator("#steer").get_by_label("Reason").fill("a test of the form")
    button.click()
    banner = page.locator("[data-override]")
    expect(banner).to_contain_text("Upper limit 500 instead of 1,000")
    expect(banner).to_contain_text("a test of the form")
    expect(page.locator("#parameters tr", has_text="Upper limit").locator("td").first).to_have_text("500")
    page.get_by_role("button", name="Undo").click()
    expect(banner).to_have_count(0)


def test_a_value_out_of_range_is_refused_as_it_is_typed(open_page, observer, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    page.get_by_label("Upper limit").fill("0")
    expect(page.locator("[data-difference]")).to_contain_text("takes at least 1")
    expect(page.locator("#steer button.primary")).to_be_disabled()


def test_what_the_server_refuses_stands_beside_its_field(open_page, observer):
    page = open_page("/nodes/n1/")
    live(page, observer)
    page.get_by_label("Too busy").fill("0.3")
    page.locator("#steer").get_by_label("Reason").fill("below busy, which can't be")
    page.locator("#steer button.primary").click()
    expect(page.locator("td", has=page.get_by_label("Too busy")).locator(".error")).to_be_visible()
    expect(page.locator("[data-override]")).to_have_count(0)


def test_a_loop_is_held_for_a_time_and_resumed(open_page, observer, worker_loop):
    page = open_page(worker_loop)
    live(page, observer)
    page.get_by_role("button", name="Hold loop for 30 min").click()
    page.locator("#why").get_by_label("Reason").fill("look at the queue first")
    page.locator("#why").get_by_role("button", name="Hold loop for 30 min").click()
    expect(page.locator("[data-override]")).to_contain_text("Mode hold instead of auto")
    expect(page.get_by_role("button", name="Hold", exact=True)).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="End now").click()
    expect(page.locator("[data-override]")).to_have_count(0)


def propose_by_hand(page: Page, observer: Observer) -> None:
    """120 points of alert from n1 to n2, as typed on the queue's page; its plan is open afterwards."""
    page.goto("/queues/alert/")
    live(page, observer)
    form = page.locator("form[data-points]")
    is_now = {
        node: int(form.locator(f"#points-{node}").get_attribute("data-is") or 0) for node in ("n1", "n2")
    }
    form.locator("#points-n1").fill(str(is_now["n1"] - 120))
    expect(form.locator("[data-difference]")).to_have_text("The sum is 880: 120 more make 1,000.")
    expect(form.locator("button.primary")).to_be_disabled()
    form.locator("#points-n2").fill(str(is_now["n2"] + 120))
    expect(form.locator("[data-difference]")).to_contain_text("n1 gives 120; n2 takes 120.")
    form.get_by_label("Reason").fill("n1 shares its host")
    form.get_by_role("button", name="Make a plan, move 120 points").click()
    expect(page.get_by_role("heading", name="Divide alert by hand: move 120 points")).to_be_visible()


def test_points_that_are_dragged_come_from_the_nodes_that_may_change(open_page, observer):
    page = open_page("/queues/alert/")
    live(page, observer)
    form = page.locator("form[data-points]")
    form.locator("[data-drag=n1]").fill("500")
    fields = [form.locator(f"#points-{node}") for node in ("n1", "n2", "n3")]
    would = [int(field.input_value()) for field in fields]
    assert would[0] == 500
    assert sum(would) == 1000
    for field, points in zip(fields[1:], would[1:], strict=True):
        is_now = int(field.get_attribute("data-is") or 0)
        assert points == is_now if field.get_attribute("data-closed") else points < is_now
    expect(form.get_by_role("button", name="Make a plan, move 166 points")).to_be_enabled()


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")], ids=["desktop", "phone"]
)
def test_an_open_plan_can_be_used_by_everybody_and_fits(viewport, scheme, open_page, observer):
    page = open_page("/", viewport=viewport, color_scheme=scheme)
    propose_by_hand(page, observer)
    live(page, observer)
    broken = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in broken] == []
    wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wider <= 0
    expect(page.get_by_role("button", name="Approve plan, move 120 points")).to_be_in_viewport()


def test_a_plan_is_approved_and_stopped_beside_the_list(open_page, observer):
    page = open_page("/")
    propose_by_hand(page, observer)
    drawer = page.locator("#drawer")
    expect(drawer.locator(".voids")).to_contain_text(re.compile(r"Voids itself in [45]:\d\d"))
    observer.publish()
    drawer.get_by_role("button", name="Approve plan").click()
    expect(drawer.locator(".plan-state")).to_have_text("Approved")
    drawer.get_by_label("Reason").fill("on second thoughts")
    drawer.get_by_role("button", name="Stop plan").click()
    expect(drawer.locator(".plan-state")).to_have_text("Stopped")
    expect(drawer).to_contain_text("on second thoughts")
    page.locator("h1").click()
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("/plans/$"))
    expect(page.locator("#ended-plans tbody tr").first).to_contain_text("Stopped")


def test_what_the_law_has_nothing_to_say_to_is_said_under_the_title(open_page, observer):
    page = open_page("/nodes/")
    live(page, observer)
    page.get_by_role("button", name="Rebalance now").click()
    expect(page.locator("#said")).to_be_visible()
    expect(page.locator("#said")).not_to_have_text("")
    expect(page).to_have_url(re.compile("/nodes/$"))


def test_a_proposal_is_counted_on_the_rail_as_it_comes(open_page, observer):
    page = open_page("/")
    live(page, observer)
    count = page.locator(".rail .count")
    expect(count).to_have_text("")
    plan = {"id": 7, "state": "proposed", "title": "a plan", "progress_share": 0.0}
    observer.publish(lambda snapshot: snapshot.update(plans=[plan]))
    expect(count).to_have_text("1")


def test_a_node_is_cordoned_from_its_row_and_taken_back(open_page, observer, nodes):
    page = open_page("/nodes/")
    live(page, observer)
    expect(page.get_by_role("button", name="Cordon")).to_be_disabled()
    page.get_by_label("Choose n2").check()
    page.get_by_label("Reason").fill("a look at its disk")
    page.get_by_role("button", name="Cordon n2").click()
    expect(page.locator(".toast").last).to_contain_text("n2 keeps what it has and takes no new points.")
    observer.publish(lambda snapshot: snapshot["nodes"]["n2"].update(cordoned=True))
    expect(page.locator('[data-row="nodes.n2"] .flags')).to_have_text("cordoned")
    page.goto("/nodes/n2/")
    page.locator("#node-use").get_by_label("Reason").fill("it is well")
    page.get_by_role("button", name="Take n2 back").click()
    expect(page.locator("#node-use")).to_contain_text("Drain makes a plan")


def test_dead_letters_are_put_in_again_or_discarded_by_name(open_page, observer, nodes):
    bury(nodes["n1"], "n1")
    bury(nodes["n2"], "n2")
    page = open_page("/queues/alert/")
    live(page, observer)
    letters = page.locator("#dead-letters tbody tr")
    expect(letters).to_have_count(2)
    expect(letters.first).to_contain_text("a e-n")
    broken = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in broken] == []
    letters.filter(has_text="e-n1").get_by_role("checkbox").check()
    page.locator("#dead-letters").get_by_label("Reason").fill("the sink is back")
    page.get_by_role("button", name="Requeue 1 letter").click()
    expect(letters).to_have_count(1)
    page.get_by_label("Select all shown").check()
    page.locator("#dead-letters").get_by_label("Reason").fill("test data")
    page.get_by_role("button", name="Discard 1 letter for good").click()
    expect(page.locator("#dead-letters .error")).to_contain_text("can't be brought back")
    page.get_by_label("Type alert to discard").fill("alert")
    page.get_by_role("button", name="Discard 1 letter for good").click()
    expect(page.locator("#dead-letters")).to_contain_text("No dead letters.")


def test_what_waits_for_nobody_knows_how_long_stands_first(open_page, observer):
    page = open_page("/queues/")
    live(page, observer)

    def stand_still(snapshot: Snapshot) -> None:
        snapshot["queues"]["alert"].update(wait_seconds=None, waiting_events=5)
        snapshot["queues"]["telemetry"].update(wait_seconds=90.0)

    observer.publish(stand_still)
    expect(page.locator("#queues-table tbody th")).to_have_text(["alert", "telemetry"])
    observer.publish(lambda snapshot: snapshot["queues"]["alert"].update(waiting_events=0))
    expect(page.locator("#queues-table tbody th")).to_have_text(["telemetry", "alert"])


@pytest.mark.parametrize(
    ("path", "heads"),
    [
        ("/queues/", ["Queue", "Waiting", "Wait, s", "In, /s"]),
        ("/nodes/", ["Node", "State", "Use, %"]),
        ("/workers/", ["Container", "Waiting"]),
    ],
)
def test_a_phone_shows_the_most_important_columns_without_scrolling(path, heads, open_page, observer):
    page = open_page(path, viewport=PHONE)
    live(page, observer)
    for head in heads:
        box = page.locator("table[data-table] thead th", has_text=head).first.bounding_box()
        assert box is not None and box["x"] + box["width"] <= PHONE["width"], head


def test_the_keyboard_reaches_everything(open_page, observer):
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


def test_the_numbers_are_there_without_scripts(open_page, observer):
    page = open_page("/nodes/", java_script_enabled=False)
    assert page.locator('[data-bind="nodes.n2.utilisation"][data-format="percent"]').text_content() == "78"
    assert page.locator('[data-row="nodes.n2"] .word').text_content() == "Busy"


def test_the_reader_chooses_the_theme_and_it_stays(open_page, observer):
    page = open_page("/settings/", color_scheme="light")
    ground = "getComputedStyle(document.body.parentElement).backgroundColor"
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ground) == "rgb(15, 19, 24)"
    page.goto("/")
    assert page.evaluate(ground) == "rgb(15, 19, 24)"


VALUES = (
    None,
    0,
    0.04,
    0.05,
    1,
    9.96,
    41.25,
    99.95,
    100,
    123.456,
    999.96,
    1_234.5,
    65_200,
    3_599.6,
    86_400,
    1e9,
)


def test_the_browser_writes_numbers_as_the_server_does(open_page, observer):
    page = open_page("/")
    names = [name for name in FORMATS if name != "clock"]  # the browser's clock is in the reader's zone
    script = """async ([names, values]) => {
      const { formatted } = await import("/static/js/format.js");
      return names.map((name) => values.map((value) => formatted(value, name)));
    }"""
    assert page.evaluate(script, [names, list(VALUES)]) == [
        [formatted(v, name) for v in VALUES] for name in names
    ]


DOCUMENTS = (
    ({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 5}}),
    ({"a": [1, 2]}, {"a": [1], "new": {"deep": {"er": True}}}),
    ({"n": {"x": {"y": 1}}, "gone": 1}, {"n": {"x": 7}}),
    ({"jobs@host.local": {"busy": 0}}, {"jobs@host.local": {"busy": 2}}),
)


def test_a_patch_in_the_browser_gives_what_the_observer_meant(open_page, observer):
    page = open_page("/")
    script = """async ([document, patch]) => {
      const { merged } = await import("/static/js/store.js");
      const kept = JSON.stringify(document);
      const result = merged(document, patch);
      return [result, JSON.stringify(document) === kept];
    }"""
    for before, after in DOCUMENTS:
        assert page.evaluate(script, [before, difference(before, after)]) == [after, True]


def test_a_name_with_dots_is_found_in_the_snapshot(open_page, observer):
    page = open_page("/")
    script = """async (document) => {
      const { resolve } = await import("/static/js/store.js");
      return [resolve(document, "hosts.jobs@vm.local.busy"), resolve(document, "hosts.other.busy")];
    }"""
    assert page.evaluate(script, {"hosts": {"jobs@vm.local": {"busy": 2}}}) == [2, None]
