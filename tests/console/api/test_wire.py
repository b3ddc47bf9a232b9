"""The console as it is served: a real uvicorn, real sockets, its own data folder."""

import asyncio
import time
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
