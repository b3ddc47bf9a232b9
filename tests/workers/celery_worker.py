"""A real Celery worker host as a subprocess, for tests whose claim is about processes."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil
import redis

from queues import keys
from tests.waiting import MAX_SECONDS, until

START_SECONDS = 60.0


@dataclass
class CeleryWorker:
    """`celery -A console.celery worker -Q jobs` against a control server, with its own data folder.

    machine: what it calls the host that it runs on, so that several may run on this one.
    """

    control: redis.Redis
    url: str
    data: Path
    slots: int = 1
    queues: str = "jobs"
    machine: str = "%h"
    capabilities: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> "CeleryWorker":
        """Start, and wait until the host has reported itself."""
        environment = {**os.environ, "REDIS_URL": self.url, "WEIR_DATA": str(self.data)}
        environment["WEIR_CAPABILITIES"] = self.capabilities
        arguments = ["-Q", self.queues, "-n", f"jobs@{self.machine}", "--pool", "prefork", "-c", str(self.slots)]
        celery = [sys.executable, "-m", "celery", "-A", "console.celery", "worker", *arguments]
        log = (self.data / "celery.log").open("ab")
        self.process = subprocess.Popen(
            [*celery, "--without-gossip", "--without-mingle"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        until(self.reports, START_SECONDS)
        return self

    def reports(self) -> bool:
        """Whether it has reported, in this life."""
        assert self.process is not None
        rows = (orjson.loads(row) for row in self.control.hvals(keys.HOSTS))
        return any(row["pid"] == self.process.pid for row in rows)

    def kill(self) -> None:
        """kill -9 to the host and all its pool processes at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(MAX_SECONDS)
        self.process = None

    def pool_pids(self) -> list[int]:
        """The pool's processes."""
        assert self.process is not None
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def log(self) -> str:
        return (self.data / "celery.log").read_text()

    def close(self) -> None:
        """End it for good; safe when it is gone already."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
