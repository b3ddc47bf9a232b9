"""Workers as their owner starts them: `celery worker`, and what came of the tasks that each was sent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil
from celery import Celery

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_SECONDS = 0.5
START_SECONDS, DONE_SECONDS = 120.0, 180.0


@dataclass(frozen=True)
class Rival:
    """Who sizes a pool: its name, and how the worker is started for it."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """Of a task, seconds since 1970."""

    number: int
    sent_at: float
    begun_at: float
    ended_at: float


class StockWorker:
    """One worker of an app of its own; use as a context manager."""

    def __init__(self, baseline: Rival, broker: str, folder: Path) -> None:
        self.name, self.broker = baseline.name, broker
        self._arguments = baseline.arguments
        folder.mkdir(parents=True, exist_ok=True)
        self._record, self._log = folder / f"{baseline.name}.tasks", folder / f"{baseline.name}.log"
        self._record.touch()
        app: Any = Celery("shop", set_as_current=False, broker=broker)
        self._work = app.signature("bench.celery.shop.work")
        self._app = app

    def __enter__(self) -> Self:
        environment = {**os.environ, "SHOP_BROKER": self.broker, "SHOP_RECORD": str(self._record)}
        command = [sys.executable, "-m", "celery", "-A", "bench.celery.shop", "worker", *self._arguments]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGQUIT)  # its tasks are done
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(self.pid).children(recursive=True):
                child.kill()
            self._process.kill()
            self._process.wait()

    def begin(self) -> None:
        """Wait until it takes tasks."""
        deadline = time.monotonic() + START_SECONDS
        while not self._app.control.ping(timeout=1.0, limit=1):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start:\n{self._log.read_text()[-3000:]}")

    def send(self, number: int, work_seconds: float) -> None:
        self._app.send_task("bench.celery.shop.work", (number, work_seconds, time.time()), ignore_result=True)

    def count_done(self) -> list[Done]:
        """As they ended."""
        rows = (line.split() for line in self._record.read_text().splitlines())
        return [Done(int(row[0]), *map(float, row[1:])) for row in rows]

    def wait_until_done(self, count: int) -> None:
        """Until so many have ended, or nothing has for long enough."""
        deadline = time.monotonic() + DONE_SECONDS
        while len(self._record.read_text().splitlines()) < count and time.monotonic() < deadline:
            time.sleep(0.5)

    def processes(self) -> int:
        """That work at tasks, by the operating system."""
        return len(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())


def drive(workers: Sequence[StockWorker], load: Sequence[tuple[float, float]]) -> dict[int, float]:
    """Send each task at its instant to all of them, and wait until it is worked off; pid → worker-seconds of
    the time of the load.
    """
    for worker in workers:
        worker.begin()
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(_sample, workers, ended)
        try:
            _send(workers, load)
        finally:
            ended.set()
        for worker in workers:
            worker.wait_until_done(len(load))
        return counted.result()


def _send(workers: Sequence[StockWorker], load: Sequence[tuple[float, float]]) -> None:
    started = time.monotonic()
    for number, (at, work_seconds) in enumerate(load):
        time.sleep(max(0.0, started + at - time.monotonic()))
        for worker in workers:
            worker.send(number, work_seconds)


def _sample(workers: Sequence[StockWorker], ended: threading.Event) -> dict[int, float]:
    """Until it has ended."""
    total, before = dict.fromkeys((worker.pid for worker in workers), 0.0), time.monotonic()
    while not ended.wait(SAMPLE_SECONDS):
        now = time.monotonic()
        for worker in workers:
            total[worker.pid] += worker.processes() * (now - before)
        before = now
    return total
