"""Who asks too much of a console, in a process of their own: sockets, readers, publishers.

`python -m bench.plant.overload_callers URL COOKIE READER PUBLISHER SECONDS`; prints {who: {status: how often}}, with
the close codes of sockets that were refused.
"""

import asyncio
import json
import sys
import time
from collections import Counter

import httpx
import websockets
from websockets.typing import Origin

SOCKETS, READERS, PUBLISHERS = 1_000, 300, 150
ADDRESSES = ("/api/v1/snapshot", "/api/v1/ledger", "/api/v1/loops", "/api/v1/alerts", "/api/v1/runs")
EVENTS = b"\n".join(json.dumps({"type": "tick", "attributes": {"n": n}}).encode() for n in range(20))
PAUSE_SECONDS = 0.02
Heard = dict[str, Counter[str]]


async def sockets(url: str, cookie: str, until: float, heard: Heard) -> None:
    """As many as they can open, each read as long as it lasts."""

    async def one() -> None:
        address = f"{url.replace('http', 'ws', 1)}/live/?of=flow&packed=1"
        try:
            async with websockets.connect(
                address, origin=Origin(url), additional_headers={"Cookie": cookie}, open_timeout=60, compression=None
            ) as socket:
                heard["sockets"]["open"] += 1
                async with asyncio.timeout(max(0.0, until - time.monotonic())):
                    async for _ in socket:
                        pass
                heard["sockets"][str(socket.close_code)] += 1
        except websockets.ConnectionClosed as closed:
            heard["sockets"][str(closed.rcvd.code if closed.rcvd else "broken")] += 1
        except TimeoutError:
            pass
        except (OSError, websockets.WebSocketException) as error:
            heard["sockets"][type(error).__name__] += 1

    await asyncio.gather(*(one() for _ in range(SOCKETS)))


async def callers(client: httpx.AsyncClient, kind: str, count: int, until: float, heard: Heard) -> None:
    """So many, each with one request after the other; who is refused comes back when it may."""

    async def one(number: int) -> None:
        turn = number
        while time.monotonic() < until:
            turn += 1
            try:
                if kind == "readers":
                    answer = await client.get(ADDRESSES[turn % len(ADDRESSES)])
                else:
                    answer = await client.post("/api/v1/queues/alert/events", content=EVENTS)
                heard[kind][str(answer.status_code)] += 1
                refused = answer.status_code in (429, 503)
                await asyncio.sleep(float(answer.headers.get("retry-after", 1)) if refused else PAUSE_SECONDS)
            except httpx.HTTPError as error:
                heard[kind][type(error).__name__] += 1

    await asyncio.gather(*(one(number) for number in range(count)))


async def main(url: str, cookie: str, reader: str, publisher: str, seconds: float) -> Heard:
    """What everybody heard."""
    heard: Heard = {name: Counter() for name in ("sockets", "readers", "publishers")}
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)

    def parse_token(token: str) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        return httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60)

    async with parse_token(reader) as reading, parse_token(publisher) as publishing:
        await asyncio.gather(
            sockets(url, cookie, until, heard),
            callers(reading, "readers", READERS, until, heard),
            callers(publishing, "publishers", PUBLISHERS, until, heard),
        )
    return heard


if __name__ == "__main__":
    url, cookie, reader, publisher, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(main(url, cookie, reader, publisher, float(seconds)))))
