"""Random kill -9 of every kind of process during load: the matches are those of an undisturbed run, each once.

WEIR_TEST_KILLS is the number of kills, by default 30.
"""

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import psutil
import pytest
import redis

from common.errors import WeirError
from queues.publishing.client import Client
from tests.servers import Server
from tests.waiting import until
from tests.workers.pipeline.pipeline_process import (
    CHUNK_SECONDS,
    DECLARATION,
    START_SECONDS,
    Running,
    assert_each_found_once,
    chunks_of_events,
    undisturbed,
)

KILLS = int(os.environ.get("WEIR_TEST_KILLS", "30"))
CHUNKS_PER_KILL = 75  # more than can be published: a start after a kill takes up to 10 s
PUBLISH_SECONDS = 0.2
SHARES = {"python": 55, "jvm": 8, "driver": 8, "node": 20, "control": 9}
# The pipeline skips a node that is down. Its events must not be late when it is back: 100 s of publishing.
LATENESS_SECONDS = 2_000.0
log = logging.getLogger("tests.kills")
pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900 + 30 * KILLS)]


@pytest.fixture(params=["tasks", "micro-batches"])
def running(tmp_path, control_server, control, plant_topology, request) -> Iterator[Running]:
    declaration = DECLARATION.replace("lateness_seconds: 20", f"lateness_seconds: {LATENESS_SECONDS}")
    execution = {"WEIR_PIPELINE_EXECUTION": request.param}
    application = Running(tmp_path, control_server.url, control, declaration, **execution)
    yield application
    application.end()


class Publisher:
    """Publishes chunks at a steady rate, and repeats each block until it is stored."""

    def __init__(self, url: str, chunks: list[list[dict]]) -> None:
        self._url, self._chunks, self._ended = url, chunks, threading.Event()
        self.published = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with Client(self._url, producer="test") as client:
            while not self._ended.wait(PUBLISH_SECONDS):
                publish_surely(client, self._chunks[self.published])
                self.published += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def publish_surely(client: Client, events: list[dict]) -> None:
    blocks = client.build_blocks(events)

    def stored() -> bool:
        with suppress(WeirError):
            client.publish_blocks("telemetry", blocks)
            return True
        return False

    until(stored, every_seconds=0.1)


class Killer:
    """Kills a random process of each kind, and restarts it as its supervisor does."""

    def __init__(self, running: Running, control_server: Server, nodes: Mapping[str, Server], seed: int) -> None:
        self._running, self._control_server, self._nodes = running, control_server, nodes
        self._random = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], bool]] = {
            "python": self._kill_python,
            "jvm": self._kill_jvm,
            "driver": self._kill_driver,
            "node": lambda: self._restart(self._random.choice(list(self._nodes.values()))),
            "control": lambda: self._restart(self._control_server),
        }

    def kill(self) -> None:
        kind = self._random.choices(list(SHARES), list(SHARES.values()))[0]
        if self._running.process.poll() is not None:
            self._running.process.wait()
            self._running.start()
        if self._kinds[kind]():
            self.killed[kind] += 1
        assert not self._count_late(), "events of a node that was down are late"
        if kind in ("jvm", "driver", "control") and self._random.random() < 0.7:
            self._await_progress()
        time.sleep(self._random.uniform(0.1, 2.0))

    def _count_late(self) -> int:
        with suppress(redis.RedisError):
            return int(self._running.status().get("late_events") or 0)
        return 0

    def _await_progress(self) -> None:
        """Wait until the pipeline has finished another batch; restart it when it ends."""

        def progressed() -> bool:
            if self._running.process.poll() is not None:
                self._running.process.wait()
                self._running.start()
            status = self._running.status()
            return status.get("state") == "running" and (status.get("batch") or 0) > before

        before = until(lambda: self._running.status() or {"batch": 0}).get("batch") or 0
        until(progressed, START_SECONDS, every_seconds=0.1)

    def _kill_python(self) -> bool:
        """Kill a worker, or the process that forks workers."""
        return self._kill_below("worker_daemon")

    def _kill_jvm(self) -> bool:
        return self._kill_below("java")

    def _kill_below(self, name: str) -> bool:
        found = []
        with suppress(psutil.Error):
            for process in psutil.Process(self._running.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if name in " ".join(process.cmdline()[:4]):
                        found.append(process)
        if not found:
            return False
        with suppress(psutil.Error):
            self._random.choice(found).kill()
            return True
        return False

    def _kill_driver(self) -> bool:
        self._running.kill(everything=self._random.random() < 0.5)
        self._running.start()
        return True

    def _restart(self, server: Server) -> bool:
        server.kill()
        time.sleep(self._random.uniform(0.0, 0.5))
        server.start()
        return True


def test_matches_are_those_of_an_undisturbed_run_through_random_kills(
    running, control_server, control, nodes, tmp_path
):
    count = CHUNKS_PER_KILL * KILLS
    begin = float(int(time.time() - CHUNK_SECONDS * count - 3_600))
    chunks = chunks_of_events(11, begin, count)
    publisher, killer = Publisher(control_server.url, chunks), Killer(running, control_server, nodes, seed=5)

    running.start()
    began = time.monotonic()
    with publisher.at_work():
        until(lambda: running.works_past(-1), START_SECONDS)
        while sum(killer.killed.values()) < KILLS:
            killer.kill()
    seconds = time.monotonic() - began
    if running.process.poll() is not None:
        running.process.wait()
        running.start()
    ended = begin + CHUNK_SECONDS * publisher.published + 2 * LATENESS_SECONDS
    with Client(control_server.url, producer="test") as client:
        publish_surely(client, [{"id": "end", "time": ended, "type": "N", "source": "s"}])

    expected = undisturbed(tmp_path / "exact.yaml", chunks[: publisher.published])
    assert_each_found_once(nodes, control, expected)
    log.info("%s killed in %.0f s; %d matches, each found once", dict(killer.killed), seconds, len(expected))
    assert running.process.poll() is None
