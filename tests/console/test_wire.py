"""The console as it is served: a real uvicorn, real sockets, its own data folder."""

import asyncio
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from console.control_server import SNAPSHOT_KEY
from console.live.fanout import CHANNEL
from console.processes import web
from queues.server import free_port
from tests.console.conftest import sample_snapshot
from tests.servers import Server
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a long enough pass phrase"


@dataclass(frozen=True)
class Served:
    """A running console."""

    port: int
    log: Path

    @property
    def live(self) -> str:
        return f"ws://127.0.0.1:{self.port}/live/"

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def answers(self) -> bool:
        with closing(self.connection()) as connection:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200

    def log_in(self) -> str:
        """The Cookie header of a logged-in administrator."""
        with closing(self.connection()) as connection:
            connection.request("GET", "/login/")
            answer = connection.getresponse()
            answer.read()
            csrf = answer.headers["Set-Cookie"].split(";")[0]
            body = urlencode(
                {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": csrf.split("=", 1)[1]}
            )
            headers = {"Cookie": csrf, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/login/", body, headers)
            answer = connection.getresponse()
            assert answer.status == 302, answer.read()[:500]
            cookies = [value.split(";")[0] for value in answer.headers.get_all("Set-Cookie")]
        return "; ".join(cookies)


@pytest.fixture(scope="module")
def served(_control_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("console")
    environment = {
        **os.environ,
        "WEIR_DATA": str(data),
        "REDIS_URL": _control_server.url,
        "WEIR_NODES": f"n1={_control_server.url}",
        "WEIR_ADMIN_PASSWORD": PASSWORD,
        "DATABASE_URL": f"sqlite:///{data / 'weir.sqlite3'}",
    }
    for command in ("migrate", "collectstatic", "seed"):
        more = [] if command == "seed" else ["--verbosity=0", "--no-input"]
        arguments = [sys.executable, "manage.py", command, *more]
        subprocess.run(arguments, cwd=ROOT, env=environment, check=True, capture_output=True)
    port = free_port()
    log = data / "web.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *web("127.0.0.1", port).command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    console = Served(port, log)
    try:
        until(console.answers, 40)
        yield console
    finally:
        process.terminate()
        process.wait(20)


def origin_of(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


async def test_a_change_reaches_many_sockets_at_once(served, control):
    """What the observer publishes arrives at each of 100 sockets, as the same delta."""
    cookie = served.log_in()
    snapshot = {**sample_snapshot(), "at": time.time()}
    control.set(SNAPSHOT_KEY, orjson.dumps(snapshot))
    options: dict[str, Any] = {"origin": origin_of(served), "additional_headers": {"Cookie": cookie}}
    sockets = [await websockets.connect(served.live, **options) for _ in range(100)]
    try:
        firsts = [orjson.loads(await asyncio.wait_for(each.recv(), 10)) for each in sockets]
        assert all("snapshot" in first or "silent_seconds" in first for first in firsts)
        message = {
            "seq": 2,
            "at": time.time(),
            "topic": "plant",
            "snapshot": {**snapshot, "seq": 2},
            "delta": {"seq": 2},
        }
        control.publish(CHANNEL, orjson.dumps(message))
        deltas = [orjson.loads(await asyncio.wait_for(each.recv(), 10)) for each in sockets]
        assert {delta["seq"] for delta in deltas} == {2}
    finally:
        await asyncio.gather(*(each.close() for each in sockets))


async def closing_code(address: str, **options: Any) -> int:
    async with websockets.connect(address, **options) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(connection.recv(), 10)
        return closed.value.rcvd.code


async def test_a_browser_that_is_not_logged_in_reads_4401(served, control):
    assert await closing_code(served.live, origin=origin_of(served)) == 4401


async def test_a_page_of_another_site_gets_no_socket(served, control):
    cookie = served.log_in()
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(
            served.live, origin="http://elsewhere", additional_headers={"Cookie": cookie}
        )
    assert refused.value.response.status_code == 403


def test_an_oversized_body_is_answered_before_it_is_sent(served, control):
    """Only the head of a request of 1 GB is sent: the 413 comes all the same."""
    head = (
        "POST /api/v1/queues/alert/events HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/x-ndjson\r\nContent-Length: 1000000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    assert answer.startswith("HTTP/1.1 413")
    assert "several requests" in answer


def test_pages_and_their_static_files_are_served(served, control):
    cookie = served.log_in()
    with closing(served.connection()) as connection:
        connection.request("GET", "/", headers={"Cookie": cookie})
        page = connection.getresponse()
        text = page.read().decode()
        assert page.status == 200
        styles = [part.split('"')[0] for part in text.split('href="') if part.startswith("/static/")]
        assert styles
        for style in styles:
            connection.request("GET", style)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, style


def test_nothing_went_wrong_in_the_log(served, control):
    assert "Traceback" not in served.log.read_text()
