"""A night on the whole plant in a real browser: whatever is killed, frozen or starved, each page says of each
subject what it was evaluated to be, or marks it old; nothing is cut off, overlaps or leaves its frame.
"""

import logging
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
import redis
from playwright.sync_api import Error, Page

from bench.console.page import sign_in
from bench.plant.running_plant import RunningPlant
from queues.publishing.client import Client
from tests.console.browser.screen import BROWSER, overhang
from tests.console.browser.seen import CUT_OFF, OVERLAPPING, SAID, is_true

logger = logging.getLogger(__name__)
pytestmark = [*BROWSER, pytest.mark.slow, pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1800)]
# Each page on a screen of its own.
WINDOWS = {"/": 1440, "/nodes/": 1024, "/queues/": 1280, "/pipeline/": 390, "/loops/": 1920}
STEP_SECONDS = 0.5
# A page may show what was evaluated so long ago: then it says that the plant is silent, over all it shows.
GRACE_SECONDS = 6.0
BURST_EVENTS = 30_000
# What a browser itself writes while nobody answers, or while the web process starts.
OF_THE_NETWORK = ("Failed to load resource", "WebSocket connection", "net::ERR", "NetworkError")
# Pages that have not heard of the plant yet show nothing of it, or what the server wrote, with its time.
SEEN = f"""() => {{
  const connection = document.body.dataset.connection ?? 'starting';
  const bar = document.getElementById('disconnected');
  const notice = document.querySelector('#frame-outage h2') !== null;
  const says_so = ['starting', 'reading'].includes(connection) || notice || Boolean(bar) && !bar.hidden;
  return {{ connection, says_so, said: ({SAID})() }};
}}"""
OLD = ("silent", "down", "reading", "starting")


@dataclass
class Night:
    """The pages, what the plant evaluated lately, and what was found wrong."""

    plant: RunningPlant
    pages: dict[str, Page]
    evaluated: deque[tuple[float, dict[str, Any]]] = field(default_factory=lambda: deque(maxlen=60))
    wrong: list[str] = field(default_factory=list)
    samples: int = 0
    said: int = 0

    def note_states(self) -> None:
        """The newest states, where the control server answers."""
        try:
            snapshot = self.plant.snapshot()
        except (redis.RedisError, OSError):
            return
        if snapshot and (not self.evaluated or self.evaluated[-1][1] != snapshot["states"]):
            self.evaluated.append((time.monotonic(), snapshot["states"]))

    def known(self, subject: str) -> list[dict[str, Any] | None]:
        """The states of a subject that a page may show now: those of the last seconds, and the one before."""
        since = time.monotonic() - GRACE_SECONDS
        fresh = [states for at, states in self.evaluated if at >= since]
        before = [states for at, states in self.evaluated if at < since][-1:]
        return [states.get(subject) for states in (*before, *fresh)]

    def sample(self, during: str) -> None:
        self.note_states()
        for path, page in self.pages.items():
            try:
                seen = page.evaluate(SEEN)
                self._layout(page, path, during)
            except Error as error:  # it is being written anew
                if "context was destroyed" not in str(error):
                    raise
                continue
            self.samples += 1
            if seen["connection"] not in OLD:
                self._compare(seen["said"], path, during)
            elif not seen["says_so"]:
                self._find(during, path, f"{seen['connection']}, but nothing says that all is old")

    def _compare(self, said: list[dict[str, Any]], path: str, during: str) -> None:
        self.note_states()
        for each in said:
            self.said += 1
            known = self.known(each["subject"])
            if not each["stale"] and not any(is_true(each, state) for state in known):
                self._find(during, path, f"says {each}, evaluated was {known[-1:]}")

    def _find(self, during: str, path: str, what: str) -> None:
        self.wrong.append(f"{during}: {path}: {what}")
        logger.warning(self.wrong[-1])  # shown while it runs, with -o log_cli=true

    def _layout(self, page: Page, path: str, during: str) -> None:
        for what, found in (
            ("cut off", page.evaluate(CUT_OFF)),
            ("overlapping", page.evaluate(OVERLAPPING)),
            ("wider than its screen, px", [wide] if (wide := overhang(page)) > 0 else []),
        ):
            if found:
                self._find(during, path, f"{what}: {found}")

    def watch(self, seconds: float, during: str) -> None:
        deadline = time.monotonic() + seconds
        while (began := time.monotonic()) < deadline:
            self.sample(during)
            self.pages["/"].wait_for_timeout(max(0.0, STEP_SECONDS - (time.monotonic() - began)) * 1000)

    def watch_until(self, condition: Callable[[dict[str, Any]], bool], seconds: float, during: str) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.watch(2 * STEP_SECONDS, during)
            try:
                snapshot = self.plant.snapshot()
            except (redis.RedisError, OSError):
                continue
            if snapshot and condition(snapshot):
                return
        self.wrong.append(f"{during}: not over within {seconds:.0f} s")


@pytest.fixture
def night(plant, browser):
    context = browser.new_context()
    sign_in(context.new_page(), plant)
    made = Night(plant, {})

    def heard(message):
        if message.type == "error" and not any(each in message.text for each in OF_THE_NETWORK):
            made.wrong.append(f"console: {message.text}")

    for path, width in WINDOWS.items():
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.on("console", heard)
        page.on("pageerror", lambda error: made.wrong.append(f"script: {error}"))
        page.goto(plant.url + path)
        made.pages[path] = page
    yield made
    context.close()


@contextmanager
def frozen(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@contextmanager
def starved(count: int) -> Iterator[None]:
    """So many processes that do nothing but calculate."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in burning:
            each.kill()
            each.wait()


def is_well(snapshot: dict[str, Any]) -> bool:
    """The pipeline runs and every node reports."""
    nodes = all(node["state"] not in (None, "OFFLINE") for node in snapshot["nodes"].values())
    return nodes and snapshot["pipeline"].get("state") == "running"


# Killed with -9: its words on the command line.
PARTS = {
    "observer": ("manage.py", "observe"),
    "alerter": ("manage.py", "alert"),
    "jobs worker": ("console.celery", "--queues jobs"),
    "control worker": ("console.celery", "--queues control"),
    "pipeline": ("workers.pipeline.runtime.application",),
}
FROZEN = ("observer", "control worker", "pipeline")


def test_a_night_in_which_everything_fails_is_said_truly_on_every_page(plant, night):
    night.watch_until(is_well, 300, "start")
    with Client(plant.control_url(), producer="burst") as client:
        client.publish("alert", [{"type": "burst", "key": str(at)} for at in range(BURST_EVENTS)])
    night.watch(15, "burst")
    for name in FROZEN:
        with frozen(plant.process_matching(*PARTS[name])):
            night.watch(14, f"frozen {name}")
        night.watch(4, f"{name} goes on")
    with frozen(plant.node_server("n2")):
        night.watch(20, "frozen node n2")
    night.watch(5, "node n2 goes on")
    for name, words in PARTS.items():
        plant.process_matching(*words).send_signal(signal.SIGKILL)
        night.watch(8, f"killed {name}")
    plant.node_server("n3").send_signal(signal.SIGKILL)
    night.watch(10, "killed node n3")
    with starved(8):
        night.watch(40, "starved host")
    night.watch_until(is_well, 300, "after the starved host")
    back = seconds_until_live(night)
    night.watch(5, "web is back")
    plant.node_server("control").send_signal(signal.SIGKILL)
    night.watch(10, "killed control server")
    night.watch_until(is_well, 300, "dawn")
    assert night.wrong == [], f"{len(night.wrong)} of {night.said} statements:\n" + "\n".join(night.wrong[:60])
    assert night.samples > 300 and night.said > 3_000
    assert back <= 5.0, f"a page was live {back:.1f} s after the web process answered again"


def seconds_until_live(night: Night) -> float:
    """From the first answer of a killed web process until the overview follows again."""
    night.plant.process_matching("console.asgi").send_signal(signal.SIGKILL)
    page, answered, was_down = night.pages["/"], None, False
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        night.sample("web is gone")
        connection = page.evaluate("document.body.dataset.connection")
        was_down = was_down or connection == "down"
        if was_down and answered is None and answers(night.plant):
            answered = time.monotonic()
        if answered is not None and connection == "live":
            return time.monotonic() - answered
        page.wait_for_timeout(100)
    raise AssertionError(f"no page was live again within 120 s; it was {'' if was_down else 'never '}down")


def answers(plant: RunningPlant) -> bool:
    """Whether somebody listens at the console's address."""
    port = int(plant.url.rpartition(":")[2])
    listening = [each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port]
    return any(each.status == psutil.CONN_LISTEN for each in listening)
