"""A loop with a model: what gains promise, asked as they are typed."""

import sqlite3
from contextlib import closing

import orjson
import pytest
from playwright.sync_api import expect

from tests.console.browser.screen import BROWSER, DESKTOP, PHONE, live, overhang, violations
from tests.console.served import Served
from tests.waiting import MAX_SECONDS

pytestmark = [*BROWSER, pytest.mark.slow]
GAINS = {"kp": -0.005589, "ki": -0.001293, "kd": 0.685, "a": 0.985, "b": -134.0, "delay": 1}


@pytest.fixture(scope="module")
def pages(served: Served) -> dict[str, str]:
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
