"""weir top by its keys, on a console that is really served: what it shows, and what a person does there."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from console.api.request.calls import NoAnswer, RemoteConsole
from console.terminal.app import Top
from console.terminal.confirm import Confirm
from console.terminal.more import RowDetails
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.console.served import Served
from tests.waiting import MAX_SECONDS
from tests.workers.snapshots import judged_document

HOSTILE = "[bold red]boo[/] \x1b]0;owned\x07 [link=file:///etc/passwd]x[/link]"
NO_ALERT = 1_000_000_000  # the number of none that any test makes


class Line(RemoteConsole):
    """A console elsewhere. `is_cut`: nobody answers any more; `lost`: so many answers get lost; `slow`: the
    answer to a change comes once it is set.
    """

    is_cut, lost = False, 0
    slow: threading.Event | None = None

    def send(self, method: str, address: str, content: bytes, key: str = "") -> tuple[int, Iterable[bytes]]:
        if self.is_cut:
            raise NoAnswer("The console does not answer (ConnectError); try again.")
        answer = super().send(method, address, content, key)
        if method == "POST" and self.slow is not None:
            assert self.slow.wait(MAX_SECONDS)
        if method == "POST" and self.lost:
            self.lost -= 1
            raise NoAnswer("The console does not answer (ReadTimeout); try again.")
        return answer


@pytest.fixture(scope="module")
def token(served: Served) -> str:
    """Of an operator, made over the API as a person would."""
    cookie = served.log_in()
    csrf = next(each.split("=", 1)[1] for each in cookie.split("; ") if "csrf" in each)
    headers = {"Cookie": cookie, "X-CSRFToken": csrf, "Referer": served.address}
    body = {"name": f"top-{time.time_ns()}", "role": "operator", "days": 1}
    answer = httpx.post(f"{served.address}/api/v1/tokens", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


@pytest.fixture
def line(served: Served, token: str) -> Iterator[Line]:
    made = Line(served.address, token, 20.0)
    yield made
    made.close()


@pytest.fixture
def observed(control, line) -> Callable[..., None]:
    """Writes a snapshot as the observer does: of one loop and one queue that the console has."""
    loop = line.ask("GET", "/api/v1/loops")["loops"][0]
    for each in line.ask("GET", "/api/v1/overrides")["overrides"]:
        line.ask("POST", f"/api/v1/overrides/{each['id']}/end")
    seq = iter(range(1, 1000))

    def write(**changes: Any) -> None:
        held = line.ask("GET", "/api/v1/overrides")["overrides"]
        document = {
            **sample_snapshot(),
            "seq": next(seq),
            "at": time.time(),
            "loops": {loop["name"]: {"id": loop["id"], "law": loop["law"], "target": loop["target"]}},
            "overrides": [
                {name: each[name] for name in ("id", "name", "value", "scope", "owner", "reason")} for each in held
            ],
            **changes,
        }
        control.set(keys.SNAPSHOT, orjson.dumps({**judged_document(document), **changes}))

    write()
    return write


@asynccontextmanager
async def opened(line: Line, size: tuple[int, int] = (80, 24)) -> AsyncIterator[tuple[Top, Pilot[None]]]:
    app = Top(line, line._client.base_url.host)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.seen.snapshot is not None)
        yield app, pilot


async def until(pilot: Pilot[None], condition: Callable[[], Any]) -> None:
    """The condition becomes true while the application runs."""
    deadline = time.monotonic() + MAX_SECONDS
    while not condition():
        assert time.monotonic() < deadline, screen(pilot.app)
        await pilot.pause(0.05)


def screen(app: Any) -> str:
    """All that stands on the terminal now."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def noticed(app: Any) -> str:
    """What was said beside the lists."""
    return "\n".join(each.message for each in app._notifications)


async def type_reason(pilot: Pilot[None], text: str) -> None:
    pilot.app.screen.query_one("#why", Input).value = text
    await pilot.press("enter")


@pytest.mark.slow
async def test_it_shows_the_plant_live_and_a_loop_is_held_with_a_reason(served, line, observed):
    async with opened(line) as (app, pilot):
        await until(pilot, lambda: observed() or "Live: " in screen(app))
        shown = screen(app)
        assert "The only node is normal" in shown and "in 41.0/s" in shown and "3 Loops" in shown
        await until(pilot, lambda: "● Normal" in screen(app) and "node n1" in screen(app))
        await pilot.press("3", "h")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        asked = screen(app)
        assert "stops acting" in asked and "Duration in minutes" in asked
        await pilot.press("enter")  # without a reason nothing is sent
        assert "reason: is missing" in screen(app)
        line.lost = 1  # it is done, but nobody hears so: asking again does nothing twice
        await type_reason(pilot, "the owner's sale")
        await until(pilot, lambda: "result is unknown" in screen(app))
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        (held,) = line.ask("GET", "/api/v1/overrides")["overrides"]
        assert (held["name"], held["value"], held["reason"]) == ("mode", "hold", "the owner's sale")
        observed()
        await pilot.press("5")
        await until(pilot, lambda: "the owner's sale" in screen(app))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        await type_reason(pilot, "the sale is over")
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        assert line.ask("GET", "/api/v1/overrides")["overrides"] == []


@pytest.mark.slow
async def test_a_queue_is_paused_and_what_the_console_refuses_is_said_in_place(line, observed):
    async with opened(line) as (app, pilot):
        await pilot.press("4", "p")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        app.screen.query_one("#minutes", Input).value = "9e9"
        await type_reason(pilot, "a bad release")
        await until(pilot, lambda: "minutes: must be" in screen(app))
        assert line.ask("GET", "/api/v1/overrides")["overrides"] == []
        app.screen.query_one("#minutes", Input).value = "5"
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, Confirm))
        (paused,) = line.ask("GET", "/api/v1/overrides")["overrides"]
        assert (paused["name"], paused["reason"]) == ("consumption", "a bad release")
        await pilot.press("i", "escape")  # left: nothing is done
        assert len(line.ask("GET", "/api/v1/overrides")["overrides"]) == 1


@pytest.mark.thorough
async def test_who_leaves_an_act_that_was_sent_is_not_made_to_believe_that_nothing_is_done(line, observed):
    async with opened(line) as (app, pilot):
        await pilot.press("4", "p")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        assert "nothing is done" in screen(app)
        line.lost = 1
        await type_reason(pilot, "a bad release")
        await until(pilot, lambda: "result is unknown" in screen(app))
        assert "nothing is done" not in screen(app)
        await pilot.press("escape")
        assert "Result unknown" in noticed(app)
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, Confirm))
        line.slow = threading.Event()
        await type_reason(pilot, "a bad release")
        await until(pilot, lambda: "Waiting for the console" in screen(app))
        assert "nothing is done" not in screen(app)
        await pilot.press("escape")
        line.slow.set()
        await until(pilot, lambda: "Done: Pause intake of" in noticed(app))
        assert len(line.ask("GET", "/api/v1/overrides")["overrides"]) == 2


@pytest.mark.thorough
async def test_what_is_old_is_never_shown_as_live(line, observed):
    async with opened(line) as (app, pilot):
        line.is_cut = True
        await until(pilot, lambda: "DISCONNECTED" in screen(app))
        assert "Last known: The only node is normal" in screen(app) and "Live" not in screen(app)
        line.is_cut = False
        await until(pilot, lambda: observed() or "Live: " in screen(app))
        observed(at=time.time() - 90)
        await until(pilot, lambda: "OBSERVER NOT RESPONDING" in screen(app))
        assert "2 min old" in screen(app)


@pytest.mark.thorough
async def test_what_can_not_be_listed_is_not_shown_as_live(line, observed):
    async with opened(line) as (app, pilot):
        await until(pilot, lambda: observed() or "Live: " in screen(app))
        observed(states={"queue/gone": {"kind": "queue", "name": "gone"}})
        await until(pilot, lambda: "snapshot (KeyError)" in screen(app))
        assert "DISCONNECTED" in screen(app) and "Last known: The only node is normal" in screen(app)
        await until(pilot, lambda: observed() or "Live: " in screen(app))


@pytest.mark.thorough
async def test_text_from_outside_is_plain_on_the_terminal(line, observed):
    words = {"title": HOSTILE, "sentence": HOSTILE}
    alert = {"id": NO_ALERT, "severity": "critical", "since": time.time(), **words}
    observed(alerts=[alert], health={"state": "TOOBUSY", "sentence": HOSTILE, "doing": HOSTILE})
    async with opened(line) as (app, pilot):
        await until(pilot, lambda: "[bold red]boo[/] ?]0;owned?" in screen(app))
        assert "\x1b" not in screen(app)
        await pilot.press("2", "enter")
        await until(pilot, lambda: isinstance(app.screen, RowDetails) and "Changes not available" in screen(app))
        assert "[bold red]boo[/]" in screen(app) and "\x1b" not in screen(app)
