"""A plant to disturb: set the modes and values of its loops, publish events, and sample snapshots."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from bench.plant.api_plant import ApiPlant
from common.errors import WeirError
from queues.publishing.client import Client

START_SECONDS, HOLD_MINUTES = 300.0, 30
ROUNDS_PER_SECOND = 10
HANDLER = "bench.laws.on_plant.work"  # the module of a handler that computes
Snapshot = Mapping[str, Any]
Rate = Callable[[float], float]  # events/s, by the seconds since the stream's start


class DisturbedPlant(ApiPlant):
    """A plant to disturb. Use it as a context manager, then call `open`."""

    def environment_of_run(self) -> dict[str, str]:
        return {**super().environment_of_run(), "WEIR_HANDLERS": HANDLER}

    def open(self) -> None:
        self.wait_until(lambda snapshot: (snapshot["pipeline"] or {}).get("state") == "running", START_SECONDS, "start")
        self.sign_in()

    @contextmanager
    def use_mode(self, laws: Sequence[str], mode: str) -> Iterator[None]:
        """Set the loops of these laws to a mode, and restore their own mode on exit."""
        loops = [row for row in self.answer("loops")["loops"] if row["law"] in laws and "plant" not in row["target"]]
        for loop in loops:
            self.ask(f"loops/{loop['id']}/mode", mode=mode, **({"minutes": HOLD_MINUTES} if mode == "hold" else {}))
        try:
            yield
        finally:
            self.sign_in()
            for loop in loops:
                self.ask(f"loops/{loop['id']}/mode", mode=loop["base_mode"])

    @contextmanager
    def override(self, law: str, values: Mapping[str, Any], **scope: str) -> Iterator[None]:
        """Override values of a law until the context exits."""
        made = [
            self.ask("overrides", name=name, value=value, law=law, minutes=HOLD_MINUTES, **scope)
            for name, value in values.items()
        ]
        try:
            yield
        finally:
            for override in made:
                self.ask(f"overrides/{override['id']}/end")

    def sample(self, seconds: float, read: Callable[[Snapshot], Any]) -> list[Any]:
        """Read the newest snapshot each second, for this time."""
        samples = []
        due = time.monotonic()
        for _ in range(round(seconds)):
            due += 1.0
            time.sleep(max(0.0, due - time.monotonic()))
            samples.append(read(self.snapshot() or {}))
        return samples

    @contextmanager
    def publish(self, queue: str, rate: Rate, types: Sequence[str] = ("event",)) -> Iterator["Stream"]:
        """Publish events at this rate until the context exits."""
        with Client(self.control_url(), producer=f"bench-{queue}") as client:
            stream = Stream(client, queue, rate, types)
            try:
                yield stream
            finally:
                stream.close()


class Stream:
    """A thread that publishes events until it is closed. Each key gets the types in turn. `published` counts events."""

    def __init__(self, client: Client, queue: str, rate: Rate, types: Sequence[str]) -> None:
        self.published = 0
        self._client, self._queue, self._rate, self._types = client, queue, rate, types
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"publish to {queue}")
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        began = due = time.monotonic()
        owed = 0.0
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due += 1 / ROUNDS_PER_SECOND
            owed += self._rate(time.monotonic() - began) / ROUNDS_PER_SECOND
            count = int(owed)
            owed -= count
            if count:
                self._publish(count)

    def _publish(self, count: int) -> None:
        numbers = np.arange(self.published, self.published + count)
        kinds, size = np.array(self._types), len(self._types)
        events = pa.table(
            {
                "time": pa.array(np.full(count, int(time.time() * 1e6)) + np.arange(count), pa.timestamp("us", "UTC")),
                "type": pa.array(kinds[numbers % size]),
                "source": pa.array(["bench"] * count),
                "key": pa.array(np.char.add("k", (numbers // size).astype("U"))),
                "value": pa.array(np.zeros(count)),
            }
        )
        try:
            self._client.publish(self._queue, events)
            self.published += count
        except WeirError:
            return  # the queue is full or paused
