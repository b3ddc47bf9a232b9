"""Attacks on the websocket `/live/` of a console as it is served: large frames, many sockets, nonsense."""

import asyncio
import socket
import time
from contextlib import AsyncExitStack

import orjson
import pytest
import websockets
from channels.routing import URLRouter
from channels.sessions import CookieMiddleware
from django.urls import path
from websockets.exceptions import ConnectionClosed

from console.live.consumer import MAX_FRAME_BYTES, LiveConsumer
from queues import keys
from tests.console.conftest import sample_snapshot
from tests.console.live.sockets import Socket
from tests.console.live.test_live import HOST, OUR_ORIGIN, cookie_of, opened
from tests.waiting import MAX_SECONDS

PER_PERSON = 20
NONSENSE = [
    "", "null", "[1, 2", '{"ask": 7}', '{"ask": {"ask": "snapshot"}}', '{"command": "stop"}', "[" * 4000,
    '"\\ud800"', b"\x00\xff", "\N{GRINNING FACE}" * 1000,
]  # fmt: skip


def options_of(served):
    """max_queue: a socket that is held and not read must still hear the answer to its closing frame."""
    headers = {"Cookie": served.log_in()}
    return {"origin": f"http://127.0.0.1:{served.port}", "additional_headers": headers, "max_queue": None}


async def closing(connection):
    """The close code and reason; what is sent before is passed over."""
    with pytest.raises(ConnectionClosed) as closed:
        async with asyncio.timeout(MAX_SECONDS):
            while True:
                await connection.recv()
    return closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.fixture
def quiet_log(served):
    """Whatever a test does, the console's log tells of no traceback."""
    before = len(served.log.read_text())
    yield
    said = served.log.read_text()[before:]
    assert "Traceback" not in said and "Error" not in said, said


async def test_a_frame_over_4_kib_closes_the_socket(served, control, quiet_log):
    options = options_of(served)
    for frame in ("x" * (MAX_FRAME_BYTES + 1), b"x" * 100_000):
        async with websockets.connect(served.live, **options) as connection:
            await connection.recv()
            await connection.send(frame)
            assert (await closing(connection))[0] == 1009


async def test_a_frame_of_many_fragments_is_counted_as_a_whole(served, control, quiet_log):
    async with websockets.connect(served.live, **options_of(served)) as connection:
        await connection.recv()
        with pytest.raises(ConnectionClosed) as closed:
            await connection.send("x" * 500 for _ in range(10))
            async with asyncio.timeout(MAX_SECONDS):
                await connection.recv()
                await connection.recv()
        # Closed before the last of them was sent, what it said of it may be lost; it serves the next one.
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
    async with websockets.connect(served.live, **options_of(served)) as connection:
        assert await connection.recv()


async def test_nonsense_closes_the_socket_and_leaves_no_traceback(served, control, quiet_log):
    options = options_of(served)
    for said in NONSENSE:
        async with websockets.connect(served.live, **options) as connection:
            await connection.recv()
            await connection.send(said)
            # A second one is under way when the first is answered.
            await connection.send(said)
            assert (await closing(connection))[0] == 4400, said


@pytest.mark.parametrize("query", ["of=" + "x" * 2000, "of=%ff%00", "after=x&at=nan", f"after={'9' * 5000}&at=1"])
async def test_a_strange_address_leaves_no_traceback(served, control, quiet_log, query):
    async with websockets.connect(f"{served.live}?{query}", **options_of(served)) as connection:
        try:
            await asyncio.wait_for(connection.recv(), MAX_SECONDS)
        except ConnectionClosed as closed:
            assert closed.rcvd.code == 4400 and len(closed.rcvd.reason.encode()) <= 123


HANDSHAKE = (
    b"GET /live/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n\r\n"
)


@pytest.mark.parametrize(
    "header", [b"Origin: http://[", b"Authorization: Bearer \xff\xfe", b"Cookie: sessionid=\xff\xfe%00", b"Host: [::1"]
)
def test_a_strange_handshake_leaves_no_traceback(served, control, quiet_log, header):
    with socket.create_connection(("127.0.0.1", served.port), timeout=MAX_SECONDS) as connection:
        connection.sendall(HANDSHAKE % (served.port, header))
        assert connection.recv(4096).startswith(b"HTTP/1.1 ")


@pytest.mark.thorough
async def test_a_change_reaches_many_sockets_at_once(served, control):
    """What the observer publishes arrives at each of 100 sockets, as the same delta."""
    snapshot = {**sample_snapshot(), "at": time.time()}
    control.set(keys.SNAPSHOT, orjson.dumps(snapshot))
    options = options_of(served)

    async def numbered(connection):
        """The next message with a number: on a slow machine others say first that nothing came for a while."""
        while "seq" not in (message := orjson.loads(await asyncio.wait_for(connection.recv(), MAX_SECONDS))):
            pass
        return message

    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(websockets.connect(served.live, **options)) for _ in range(100)]
        firsts = [orjson.loads(await asyncio.wait_for(each.recv(), MAX_SECONDS)) for each in sockets]
        assert all("snapshot" in first or "silent_seconds" in first for first in firsts)
        message = {
            "seq": 2, "at": time.time(), "topic": "plant", "snapshot": {**snapshot, "seq": 2}, "delta": {"seq": 2},
        }  # fmt: skip
        control.publish(keys.LIVE, orjson.dumps(message))
        assert {(await numbered(each))["seq"] for each in sockets} == {2}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "limit", "roles", "code"),
    [
        ("WEIR_LIVE_SOCKETS_PER_PERSON", 2, ("viewer", "viewer", "operator"), 4429),
        ("WEIR_LIVE_SOCKETS", 3, ("viewer", "operator", "administrator"), 1013),
    ],
    ids=["person", "process"],
)
async def test_so_many_sockets_are_open_and_the_next_is_answered_so(
    name, limit, roles, code, application, control, browsers, people, stored_snapshot, settings
):
    assert settings.WEIR_LIVE_SOCKETS_PER_PERSON == PER_PERSON
    setattr(settings, name, limit)
    app = CookieMiddleware(URLRouter([path("live/", LiveConsumer.as_asgi())]))
    async with AsyncExitStack() as stack:
        for role in roles:
            held = await stack.enter_async_context(opened(app, OUR_ORIGIN, cookie_of(browsers[role])))
            await held.receive()
        one_more = Socket(app, [HOST, OUR_ORIGIN, cookie_of(browsers["viewer"])])
        assert await one_more.connect()
        assert await one_more.closing_code() == code
    async with opened(app, OUR_ORIGIN, cookie_of(browsers["viewer"])) as after:
        assert "snapshot" in await after.receive()
