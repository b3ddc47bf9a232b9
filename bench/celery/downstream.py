"""A service that degrades above its capacity: it works at a few requests at once, and others wait."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SLOTS, SERVICE_SECONDS = 4, 0.02
CAPACITY = SLOTS / SERVICE_SECONDS  # requests per second


class Downstream:
    """arrivals: when requests of tasks arrived; own_seconds: how long requests of its other users took."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.own_seconds: list[float] = []
        self.port = 0

    async def serve(self, started: threading.Event, ended: threading.Event, own_per_second: float) -> None:
        slots = asyncio.Semaphore(SLOTS)

        async def work() -> None:
            async with slots:
                await asyncio.sleep(SERVICE_SECONDS)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            self.arrivals.append(time.monotonic())
            await work()
            writer.write(b"!")
            writer.close()

        async def use() -> None:
            began_at = time.monotonic()
            await work()
            self.own_seconds.append(time.monotonic() - began_at)

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        users = set()
        while not ended.is_set():
            users.add(asyncio.create_task(use()))
            await asyncio.sleep(1.0 / own_per_second)
        server.close()

    def compute_highest_rate(self, window_seconds: float = 5.0) -> float:
        """Return the most requests of tasks per second within a window."""
        first, highest = 0, 0
        for last, at in enumerate(self.arrivals):
            while self.arrivals[first] < at - window_seconds:
                first += 1
            highest = max(highest, last - first + 1)
        return highest / window_seconds


@contextmanager
def run_downstream(own_per_second: float = 10.0) -> Iterator[Downstream]:
    """Give a running service that others use, too."""
    downstream, started, ended = Downstream(), threading.Event(), threading.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(downstream.serve(started, ended, own_per_second)), name="downstream"
    )
    thread.start()
    try:
        started.wait(10)
        yield downstream
    finally:
        ended.set()
        thread.join()
