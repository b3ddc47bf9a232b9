"""A thousand sockets on one web process, over 200 nodes with 1000 containers: who hears what, how soon.

Each client is what the overview is: the view `flow`, packed. A message's latency is counted from its arrival at a
subscriber of the control server beside the clients to its arrival at each of them. A few clients, which take the whole
snapshot unpacked, stop reading until all buffers on the way are full; they may lose messages or be closed, since they
answer no ping, and never delay others'; with their first gap they have to ask.
"""

import asyncio
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
import psutil
import redis
import websockets
from websockets.typing import Origin

from bench.console.large_plant import LargePlant, large_plant
from queues import keys

CLIENTS, STALLED, AT_ONCE = 1000, 5, 50
LIMITS = {"p95_seconds": 0.25, "web_cores": 0.2, "lost_without_snapshot": 0}
QUERY, STALLED_QUERY = "of=flow&packed=1", "of=whole"
RECEIVE_BUFFER_BYTES = 4_096  # of a client that will stall, so that it takes seconds and not minutes
SETTLE_SECONDS = 5.0


@dataclass(frozen=True)
class Received:
    """A message's number (None: it tells of silence), and whether it is a snapshot."""

    seq: int | None
    whole: bool


def receive(document: dict[str, Any]) -> Received:
    return Received(document.get("seq"), "snapshot" in document)


@lru_cache(maxsize=32)
def unpack_message(message: bytes) -> Received:
    """All clients get the same bytes: they are unpacked once here, so that the clients cost little."""
    return receive(orjson.loads(zlib.decompress(message)))


@dataclass
class Client:
    """One socket, and what came through it. A gap is made good when a snapshot comes after it."""

    connection: Any
    arrivals: dict[int, float] = field(default_factory=dict)
    seq: int | None = None
    gaps: int = 0
    asked: int = 0
    made_good: int = 0

    async def read(self) -> None:
        while True:
            message = await self.connection.recv()
            now = time.perf_counter()
            received_one = unpack_message(message) if isinstance(message, bytes) else receive(orjson.loads(message))
            if received_one.seq is not None:
                await self.take(received_one.seq, received_one.whole, now)

    async def take(self, seq: int, whole: bool, now: float) -> None:
        """As live.js does: a snapshot is taken, a delta only after the one before it, else it asks."""
        if whole:
            self.made_good += self.asked > self.made_good
            self.seq = seq
        elif self.seq is not None and seq == self.seq + 1:
            self.seq = seq
            self.arrivals[seq] = now
        elif self.seq is not None and seq > self.seq and self.asked == self.made_good:
            self.gaps += 1
            self.asked += 1
            await self.connection.send('{"ask": "snapshot"}')


@contextmanager
def publications(control_url: str) -> Iterator[dict[int, float]]:
    """When each message was published, by its number, as a subscriber sees it."""
    seen: dict[int, float] = {}
    stop = threading.Event()

    def listen() -> None:
        with redis.Redis.from_url(control_url) as client, client.pubsub() as subscription:
            subscription.subscribe(keys.LIVE)
            while not stop.is_set():
                message = subscription.get_message(ignore_subscribe_messages=True, timeout=0.5)
                if message:
                    now = time.perf_counter()
                    seen[int(message["data"][7:40].split(b",")[0])] = now

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


async def connect_all(plant: LargePlant, cookie: str) -> list[Client]:
    """The sockets, those that will stall first; opened some at a time, as pages would be."""
    clients = [Client(await connect(plant, cookie, STALLED_QUERY, RECEIVE_BUFFER_BYTES)) for _ in range(STALLED)]
    while len(clients) < CLIENTS:
        count = min(AT_ONCE, CLIENTS - len(clients))
        opened_now = await asyncio.gather(*(connect(plant, cookie, QUERY) for _ in range(count)))
        clients += [Client(open_socket) for open_socket in opened_now]
    return clients


async def connect(plant: LargePlant, cookie: str, query: str, buffer_bytes: int | None = None) -> Any:
    connection = socket.socket()
    if buffer_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    connection.connect(("127.0.0.1", plant.port))
    connection.setblocking(False)
    return await websockets.connect(
        f"ws://127.0.0.1:{plant.port}/live/?{query}",
        sock=connection,
        origin=Origin(plant.url),
        additional_headers={"Cookie": cookie},
        compression=None,
        max_size=None,
        max_queue=2,
        ping_interval=None,
    )


async def watch(plant: LargePlant, seconds: float) -> dict[str, Any]:
    clients = await connect_all(plant, plant.log_in())
    readers = [asyncio.create_task(client.read()) for client in clients]
    await asyncio.sleep(SETTLE_SECONDS)
    stalled, reading = clients[:STALLED], clients[STALLED:]
    for task in readers[:STALLED]:
        task.cancel()
    web = psutil.Process(plant.processes["web"].pid)
    before, began = web.cpu_times(), time.perf_counter()
    with publications(plant.control_url) as published:
        await asyncio.sleep(seconds)
    after, spent = web.cpu_times(), time.perf_counter() - began
    memory_bytes = web.memory_info().rss
    resumed = [asyncio.create_task(each.read()) for each in stalled]
    await asyncio.sleep(SETTLE_SECONDS)
    closed = sum(task.done() for task in resumed)
    for task in [*readers, *resumed]:
        task.cancel()
    await asyncio.gather(*readers, *resumed, return_exceptions=True)
    newest = max(client.seq or 0 for client in clients)
    await asyncio.gather(*(client.connection.close() for client in clients))
    latencies = [each.arrivals[seq] - at for each in reading for seq, at in published.items() if seq in each.arrivals]
    expected = len(reading) * len(published)
    return {
        "p50_seconds": float(np.quantile(latencies, 0.5)),
        "p95_seconds": float(np.quantile(latencies, 0.95)),
        "p99_seconds": float(np.quantile(latencies, 0.99)),
        "web_cores": (after.user + after.system - before.user - before.system) / spent,
        "web_memory_bytes": float(memory_bytes),
        "heard_share": len(latencies) / expected,
        "lost_without_snapshot": float(sum(client.gaps - client.made_good for client in clients)),
        "readers_gaps": float(sum(each.gaps for each in reading)),
        "stalled_closed": float(closed),
        "stalled_gaps_made_good": float(sum(each.made_good for each in stalled)),
        "stalled_behind_messages": float(max(newest - (each.seq or 0) for each in stalled)),
    }


def run(seconds: float) -> dict[str, Any]:
    """Over at least 35 seconds: a socket that stops reading is noticed only when its buffers are full."""
    with ExitStack() as stack:
        plant = stack.enter_context(large_plant())
        figures = asyncio.run(watch(plant, max(35.0, seconds)))
    return {
        "figures": {"clients": float(CLIENTS), **figures},
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items() if limit},
    }
