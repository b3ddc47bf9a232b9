"""The overview over 200 nodes and 1000 containers: what it costs the server, the wire and the browser.

Server time: from the request to the last byte of the answer, on a kept connection, warm. Transfer: the bytes on the
wire of a page, and a snapshot that its socket sends, in a browser with an empty cache and again with what it kept; the
first time with a node's page and its charts. First chart, first map: from the navigation until it is painted, the cache
empty. Live: the main thread's own time over seconds of updates.
"""

import base64
import time
import zlib
from collections import Counter
from contextlib import closing
from typing import Any

import numpy as np
import orjson
from playwright.sync_api import Browser, CDPSession, Page

from bench.console.browser import chromium
from bench.console.large_plant import PASSWORD, LargePlant, large_plant

LIMITS = {
    "large_server_p95_seconds": 0.3,
    "large_first_bytes": 1_800_000,
    "large_again_bytes": 60_000,
    "large_first_map_seconds": 1.5,
    "large_first_chart_seconds": 1.5,
    "large_live_main_thread_seconds_per_second": 0.05,
}
BINARY = 2  # a websocket frame's opcode
REQUESTS, WARM_REQUESTS, LIVE_SECONDS = 30, 5, 15.0


def measure() -> dict[str, float]:
    """All figures of LIMITS, and what they are made of."""
    with large_plant() as plant:
        server = server_seconds(plant, "/")
        with chromium() as browser:
            figures = measure_in_browser(browser, plant)
    return {
        "large_server_p50_seconds": float(np.quantile(server, 0.5)),
        "large_server_p95_seconds": float(np.quantile(server, 0.95)),
        **figures,
    }


def server_seconds(plant: LargePlant, path: str) -> list[float]:
    """Of each request, when the page is warm."""
    headers = {"Cookie": plant.log_in(), "Accept-Encoding": "gzip"}
    seen = []
    with closing(plant.connection()) as connection:
        for _ in range(WARM_REQUESTS + REQUESTS):
            began = time.perf_counter()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            seen.append(time.perf_counter() - began)
            if answer.status != 200 or not body:
                raise AssertionError(f"{path} answered {answer.status}")
    return seen[WARM_REQUESTS:]


class Wire:
    """Counts what comes over the wire to a page: answers as they were encoded, and frames of its socket."""

    def __init__(self, session: CDPSession) -> None:
        self.answers, self.snapshots = 0, 0
        self.frames: list[int] = []
        self.addresses: dict[str, str] = {}
        self.by_address: dict[str, int] = {}
        session.send("Network.enable")
        session.on("Network.requestWillBeSent", self._request)
        session.on("Network.loadingFinished", self._answer)
        session.on("Network.webSocketFrameReceived", self._frame)

    def _request(self, event: dict[str, Any]) -> None:
        self.addresses[event["requestId"]] = event["request"]["url"]

    def _answer(self, event: dict[str, Any]) -> None:
        size = int(event["encodedDataLength"])
        address = self.addresses.get(event["requestId"], "")
        self.answers += size
        self.by_address[address] = self.by_address.get(address, 0) + size

    def _frame(self, event: dict[str, Any]) -> None:
        frame = event["response"]
        data = frame["payloadData"]
        # Binary frames are told in base64.
        sent = base64.b64decode(data) if frame["opcode"] == BINARY else data.encode()
        text = zlib.decompress(sent) if frame["opcode"] == BINARY else sent
        self.frames.append(len(sent))
        self.snapshots += len(sent) if "snapshot" in orjson.loads(text) else 0

    @property
    def load_bytes(self) -> int:
        """The page with its files, and the snapshot if its socket sends one; not the seconds' updates."""
        return self.answers + self.snapshots


def measure_in_browser(browser: Browser, plant: LargePlant) -> dict[str, float]:
    context = browser.new_context(base_url=plant.url, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    log_in(page)
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.clearBrowserCache")
    first, first_map = visit(page, context.new_cdp_session(page), "/", MAP)
    chart, first_chart = visit(page, context.new_cdp_session(page), "/nodes/node001/", CHART)
    again, _ = visit(page, context.new_cdp_session(page), "/", MAP)
    live = main_thread_share(browser, page)
    wire = Wire(context.new_cdp_session(page))
    page.wait_for_timeout(5_000)
    context.close()
    return {
        "large_first_bytes": float(first + chart),
        "large_again_bytes": float(again),
        "large_first_map_seconds": first_map,
        "large_first_chart_seconds": first_chart,
        **{f"large_live_{name}": value for name, value in live.items()},
        "large_message_bytes": float(np.median(wire.frames)),
    }


def log_in(page: Page) -> None:
    page.goto("/login/?next=/settings/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/settings/")


MAIN_THREAD_TASKS = {
    "main_thread_seconds_per_second": ("RunTask",),
    "script_seconds_per_second": ("FunctionCall", "RunMicrotasks"),
    "layout_seconds_per_second": ("Layout", "UpdateLayoutTree", "PrePaint"),
    "paint_seconds_per_second": ("Paint", "Layerize", "Commit"),
}
MAP, CHART = "#flow path.band", ".plot .main-svg"
DRAWN = """(wanted) => new Promise((resolve) => {
  const look = () => {
    const drawn = document.querySelector(wanted);
    if (drawn) requestAnimationFrame(() => resolve(performance.now() / 1000));
    else requestAnimationFrame(look);
  };
  look();
})"""


def visit(page: Page, session: CDPSession, path: str, chart: str) -> tuple[int, float]:
    """A visit's bytes, until its socket has said its first word; and when what is drawn was first painted."""
    wire = Wire(session)
    page.goto(path, wait_until="commit")
    drawn_seconds = page.evaluate(DRAWN, chart)
    page.wait_for_load_state("networkidle", timeout=20_000)
    until = time.monotonic() + 10.0
    while not wire.frames and time.monotonic() < until:
        page.wait_for_timeout(100)
    session.detach()
    return wire.load_bytes, float(drawn_seconds)


def main_thread_share(browser: Browser, page: Page) -> dict[str, float]:
    """Processor seconds of the page's main thread per second while updates come, as the browser traces them:
    all its tasks, and of them scripts, layout with styles, and painting.
    """
    page.wait_for_timeout(3_000)  # what was loaded is parsed, and drawn
    began = time.perf_counter()
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    page.wait_for_timeout(LIVE_SECONDS * 1000)
    events = orjson.loads(browser.stop_tracing())["traceEvents"]
    seconds = time.perf_counter() - began
    main = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    spent = Counter[str]()
    for event in events:
        if (event["pid"], event["tid"]) in main:
            spent[event["name"]] += event.get("tdur", 0)
    return {name: sum(spent[task] for task in tasks) / 1e6 / seconds for name, tasks in MAIN_THREAD_TASKS.items()}
