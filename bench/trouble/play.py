"""One trouble: strike, read the screen, press the right action, and wait for the end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import httpx
from playwright.sync_api import Browser, Error, Locator, Page

from bench.causes.scenario import AlertWatch
from bench.causes.shop import CALM_SECONDS, Shop
from bench.trouble.kinds import Cause, Trouble
from bench.trouble.outcome import Outcome, Reading, compute_named_share, count_headline_changes, find_named_seconds

READ_SECONDS, WATCH_SECONDS, END_SECONDS = 0.5, 45.0, 90.0
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
CLICK_MILLISECONDS, AFTER_MILLISECONDS, END_MILLISECONDS = 10_000.0, 1_000.0, 8_000.0
ACTIONS = ":is(#hero, #do-now, #frame-outage) .quick-action > summary, :is(#hero, #do-now) .quick-actions > a.button"
READ = """(actions) => {
  const read = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility())
    .map((each) => each.innerText.replace(/\\s+/g, " ").trim()).filter(Boolean);
  return {
    headlines: read("#hero h1, #hero .sentence-title, #frame-outage h2, #disconnected"),
    impact: read("#hero .impact"), actions: read(actions), strip: read(".strip")[0] ?? "",
  };
}"""


class Console:
    """A desktop on the overview, and a phone on another page, both signed in."""

    def __init__(self, browser: Browser, url: str, password: str) -> None:
        self.desktop = _open(browser, url, password, viewport=DESKTOP)
        self.phone = _open(browser, url, password, viewport=PHONE, has_touch=True)
        self.url = url

    def show_overview(self) -> None:
        self.desktop.goto(f"{self.url}/")
        self.phone.goto(f"{self.url}/queues/")

    def read(self, since: float, is_effective: bool) -> Reading:
        """Read the overview. While the web process is gone, the page still shows what it showed."""
        shown: dict[str, Any] = {"headlines": [], "impact": [], "actions": [], "strip": ""}
        with suppress(Error):
            shown = self.desktop.evaluate(READ, ACTIONS)
        return Reading(at=round(time.time() - since, 1), is_effective=is_effective, **shown)


def _open(browser: Browser, url: str, password: str, **options: Any) -> Page:
    page = browser.new_context(**options).new_page()
    page.goto(f"{url}/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda address: "/login" not in address)
    return page


def play(shop: Shop, console: Console, trouble: Trouble, chance: Random) -> Outcome:
    """Raises AssertionError if the plant is not calm again in time."""
    shop.reset_calm()
    shop.sign_in()
    console.show_overview()
    watch, called = AlertWatch(time.time()), len(shop.calls.seen)
    readings: list[Reading] = []
    with _strike(trouble, shop, chance):
        _watch(shop, console, trouble, watch, readings)
        taps = _count_taps(console, trouble)
        clicks = _press(console, trouble)
        ended = _wait_for_end(shop, watch)
    shop.producers.calm()
    _end_overrides(shop)
    shop.work_off()

    def is_over(snapshot: dict[str, Any]) -> bool:
        watch.check(snapshot)
        return shop.is_calm(snapshot)

    shop.wait_until(is_over, CALM_SECONDS, "all is over")
    console.desktop.wait_for_timeout(END_MILLISECONDS)  # the message of the end
    offered = [reading.actions[0] for reading in readings if reading.actions]
    return Outcome(
        kind=trouble.name,
        causes=len(trouble.causes),
        needs_action=trouble.needs_action,
        named_seconds=find_named_seconds(readings, trouble.causes),
        named_share=compute_named_share(readings, trouble.causes, trouble.needs_action),
        headline_changes=count_headline_changes(readings),
        incidents=[f"{row['title']}: {row['sentence']}" for row in watch.incidents()],
        notifications=len(shop.calls.seen) - called,
        first_action=offered[-1] if offered else "",
        clicks=clicks,
        taps=taps,
        ended_seconds=ended,
        readings=readings,
    )


@contextmanager
def _strike(trouble: Trouble, shop: Shop, chance: Random) -> Iterator[None]:
    """Let the trouble last. Its end is refused if an action has undone it already."""
    struck = trouble.strike(shop, chance)
    struck.__enter__()
    try:
        yield
    finally:
        with suppress(httpx.HTTPStatusError):
            struck.__exit__(None, None, None)


def _watch(shop: Shop, console: Console, trouble: Trouble, watch: AlertWatch, readings: list[Reading]) -> None:
    """Read the screen each half second."""
    is_effective = False
    while time.time() - watch.since < WATCH_SECONDS:
        began, snapshot = time.monotonic(), shop.snapshot()
        watch.check(snapshot)
        is_effective = is_effective or (snapshot is not None and trouble.has_begun(snapshot))
        readings.append(console.read(watch.since, is_effective))
        time.sleep(max(0.0, READ_SECONDS - (time.monotonic() - began)))


def _find_button(page: Page, cause: Cause) -> Locator | None:
    """Return the right button for a cause, the first on the page."""
    buttons = (button for button in page.locator(ACTIONS).all() if button.is_visible())
    return next((button for button in buttons if cause.is_right(button.inner_text())), None)


def _press(console: Console, trouble: Trouble) -> int | None:
    """Press the right action for each cause on the overview; return the clicks of one; None if one is missing."""
    page, clicks = console.desktop, None
    for cause in (cause for cause in trouble.causes if cause.action):
        button = _find_button(page, cause)
        if button is None:
            return None
        try:
            button.click(timeout=CLICK_MILLISECONDS)
            clicks, form = 1, button.locator("xpath=following-sibling::form")
            if form.count():
                form.locator("button.primary").click(timeout=CLICK_MILLISECONDS)
                clicks = 2
        except Error:
            return None
        page.wait_for_timeout(AFTER_MILLISECONDS)
    return clicks


def _count_taps(console: Console, trouble: Trouble) -> int | None:
    """Return the taps from another page to the right action on a phone, with the one that confirms it; None: none."""
    page = console.phone
    if not trouble.needs_action:
        return None
    with suppress(Error):
        if page.locator("#frame-outage .quick-action").first.is_visible():
            return 2
        with page.expect_navigation():
            page.locator(".strip a[href*='/alerts/']").first.tap(timeout=CLICK_MILLISECONDS)
        taps = 1
        if not page.url.rstrip("/").rsplit("/", 1)[-1].isdigit():  # the list of several incidents
            with page.expect_navigation():
                page.locator("#open-alerts a.name").first.tap(timeout=CLICK_MILLISECONDS)
            taps += 1
        best = page.locator(".action-bar .primary")
        best.or_(page.locator("#do-now")).first.wait_for(timeout=CLICK_MILLISECONDS)
        if best.count() and any(cause.is_right(best.inner_text()) for cause in trouble.causes):
            return taps + 2
        if any(_find_button(page, cause) for cause in trouble.causes if cause.action):
            return taps + 3  # More actions, the action, and its confirmation
    return None


def _wait_for_end(shop: Shop, watch: AlertWatch) -> float | None:
    """Return the seconds until the newest snapshot has no critical problem; None if one is left."""
    began = time.time()
    while time.time() - began < END_SECONDS:
        snapshot = shop.snapshot() or {}
        watch.check(snapshot or None)
        findings = snapshot.get("health", {}).get("findings", [])
        is_fresh = time.time() - (snapshot.get("at") or 0.0) < 3.0
        if is_fresh and not any(finding["severity"] == "critical" for finding in findings):
            return round(time.time() - began, 1)
        time.sleep(READ_SECONDS)
    return None


def _end_overrides(shop: Shop) -> None:
    """Pauses and holds that the actions have made."""
    shop.sign_in()
    for row in shop.answer("overrides")["overrides"]:
        with suppress(httpx.HTTPStatusError):
            shop.ask(f"overrides/{row['id']}/end")
