"""The console as it is served: a real uvicorn, real sockets, its own data folder."""

import asyncio
import socket
import time
from contextlib import closing
from typing import Any

import orjson
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from queues import keys
from tests.console.conftest import sample_snapshot
from tests.console.served import Served
from tests.waiting import MAX_SECONDS


def origin_of(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


async def numbered(connection: Any) -> Any:
    """The next message with a number: on a slow machine others say first that nothing came for a while."""
    while "seq" not in (message := orjson.loads(await asyncio.wait_for(connection.recv(), MAX_SECONDS))):
        pass
    return message


@pytest.mark.thorough
async def test_a_change_reaches_many_sockets_at_once(served, control):
    """What the observer publishes arrives at each of 100 sockets, as the same delta."""
    cookie = served.log_in()
    snapshot = {**sample_snapshot(), "at": time.time()}
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    options: dict[str, Any] = {
        "origin": origin_of(served),
        "additional_headers": {"Cookie": cookie},
        "max_queue": None,  # what is held and not read must still hear the answer to its closing frame
    }
    sockets = [await websockets.connect(served.live, **options) for _ in range(100)]
    try:
        firsts = [orjson.loads(await asyncio.wait_for(each.recv(), MAX_SECONDS)) for each in sockets]
        assert all("snapshot" in first or "silent_seconds" in first for first in firsts)
        message = {
            "seq": 2,
            "at": time.time(),
            "topic": "plant",
            "snapshot": {**snapshot, "seq": 2},
            "delta": {"seq": 2},
        }
        control.publish(keys.LIVE, orjson.dumps(message))
        deltas = [await numbered(each) for each in sockets]
        assert {delta["seq"] for delta in deltas} == {2}
    finally:
        await asyncio.gather(*(each.close() for each in sockets))


async def closing_code(address: str, **options: Any) -> int:
    async with websockets.connect(address, **options) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(connection.recv(), MAX_SECONDS)
        return closed.value.rcvd.code


async def test_a_browser_that_is_not_logged_in_reads_4401(served, control):
    assert await closing_code(served.live, origin=origin_of(served)) == 4401


async def test_a_page_of_another_site_gets_no_socket(served, control):
    cookie = served.log_in()
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(served.live, origin="http://elsewhere", additional_headers={"Cookie": cookie})
    assert refused.value.response.status_code == 403


def test_an_oversized_body_is_answered_before_it_is_sent(served, control):
    """Only the head of a request of 1 GB is sent: the 413 comes all the same."""
    head = (
        "POST /api/v1/queues/alert/events HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/x-ndjson\r\nContent-Length: 1000000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=MAX_SECONDS) as connection:
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
