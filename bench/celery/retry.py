"""Retry plans of a stock app: each task is sent once although Weir's processes are killed, at a pace that a downstream
service can take.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from bench.celery.brokers import RABBITMQ, rabbitmq, valkey
from bench.celery.downstream import CAPACITY, run_downstream
from bench.plant.running_plant import ROOT, clean_environment, manage
from bench.queues.node_servers import node_servers

TASKS = 100_000
MODULE = "bench.celery.retry_weir"
OBSERVE, SEND = ("observe",), ("shell", "-v", "0", "-c", f"from {MODULE} import *; send()")
MIN_KILL_SECONDS, MAX_KILL_SECONDS = 3.0, 20.0
KILLS = 8
PACED_SECONDS = 120.0
# Of the downstream service's other users: 99 % within this time.
OBJECTIVE_SECONDS = 0.25
WAIT_SECONDS = 1_800.0


def run(seconds: float, count: int = TASKS) -> dict[str, Any]:
    """Retry `count` tasks on each broker; the pace is measured for two minutes. `seconds` is not needed."""
    figures: dict[str, float] = {}
    for kind in ("valkey", *(["rabbitmq"] if RABBITMQ else [])):
        with tempfile.TemporaryDirectory(prefix="weir-retry-") as folder:
            exact = _retry_with_kills(kind, Path(folder) / "exact", count)
            figures |= {f"{kind}_{name}": value for name, value in exact.items()}
    with tempfile.TemporaryDirectory(prefix="weir-retry-") as folder:
        paced = _retry_paced(Path(folder))
    limits = {"highest_rate": CAPACITY, "own_p99_seconds": OBJECTIVE_SECONDS}
    return {
        "figures": {**figures, **paced},
        "peers": {f"limit_{name}": limit for name, limit in limits.items()},
        "ratio": {name: paced[name] / limit for name, limit in limits.items()},
    }


def _retry_with_kills(kind: str, folder: Path, count: int) -> dict[str, float]:
    chance = random.Random(1)
    with _Installation(kind, folder, count, 100.0, 5_000.0) as weir:
        weir.start(OBSERVE)
        weir.start(SEND)
        began_at = time.monotonic()
        kills, kill_at = 0, began_at + chance.uniform(MIN_KILL_SECONDS, MAX_KILL_SECONDS)
        while time.monotonic() < began_at + WAIT_SECONDS and weir.show()["state"] not in ("done", "paused"):
            if kills < KILLS and time.monotonic() >= kill_at:
                weir.kill_all()
                kills, kill_at = kills + 1, time.monotonic() + chance.uniform(MIN_KILL_SECONDS, MAX_KILL_SECONDS)
                weir.start(OBSERVE)
                weir.start(SEND)
            time.sleep(1.0)
        took_seconds = time.monotonic() - began_at
        runs = weir.count_runs(count)
    return {
        "dry_run_seconds": weir.prepared["dry_run_seconds"],
        "tasks": count,
        "kills": kills,
        "sent_twice": sum(times - 1 for times in runs.values()),
        "forgotten": count - len(runs),
        "tasks_per_second": len(runs) / took_seconds,
    }


def _retry_paced(folder: Path) -> dict[str, float]:
    with (
        run_downstream() as downstream,
        _Installation("valkey", folder, round(CAPACITY * PACED_SECONDS), 0.5, 5_000.0, downstream.port) as weir,
    ):
        weir.start(OBSERVE)
        weir.start(SEND)
        time.sleep(PACED_SECONDS)
        state = weir.show()
    took = sorted(downstream.own_seconds)
    return {
        "highest_rate": downstream.compute_highest_rate(),
        "last_rate": state["rate"],
        "paced_tasks": float(len(downstream.arrivals)),
        "own_p99_seconds": took[int(0.99 * (len(took) - 1))],
    }


class _Installation:
    """Weir, attached to a stock app with failed tasks and an approved plan. Use as a context manager."""

    def __init__(
        self, kind: str, folder: Path, count: int, min_rate: float, max_rate: float, downstream: int = 0
    ) -> None:
        self._kind, self._folder, self._downstream = kind, folder, downstream
        self._plan = count, min_rate, max_rate
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self.prepared: dict[str, Any] = {}

    def __enter__(self) -> "_Installation":
        self._folder.mkdir(parents=True, exist_ok=True)
        brokers = valkey(["shop"]) if self._kind == "valkey" else rabbitmq(["shop"], self._folder / "rabbitmq")
        broker = self._stack.enter_context(brokers)["shop"]
        control = self._stack.enter_context(node_servers(("control",)))["control"]
        self._record = self._folder / "record"
        self._record.touch()
        self._environment = {
            **clean_environment(),
            "WEIR_DATA": str(self._folder),
            "DATABASE_URL": f"sqlite:///{self._folder}/weir.sqlite3",
            "REDIS_URL": control,
            "WEIR_EGRESS_ALLOW": "127.0.0.0/8",
            "SHOP_BROKER": broker,
            "SHOP_RECORD": str(self._record),
            "SHOP_DOWNSTREAM": str(self._downstream),
        }
        self._stack.enter_context(self._run_worker())
        manage(self._environment, "migrate", "--skip-checks", "--verbosity=0", "--no-input")
        self.prepared = self._call(f"prepare({broker!r}, {', '.join(map(str, self._plan))})")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        self._stack.close()

    def start(self, arguments: tuple[str, ...]) -> None:
        self._processes.append(self._spawn("manage.py", *arguments))

    def kill_all(self) -> None:
        """Kill all of Weir's processes with SIGKILL."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def show(self) -> dict[str, Any]:
        return self._call("show()")

    def count_runs(self, count: int) -> Counter[str]:
        """Return the runs of each task, once all have run or nothing more happens for half a minute."""
        lines, changed_at = 0, time.monotonic()
        while lines < count and time.monotonic() < changed_at + 30.0:
            now = len(self._record.read_text().splitlines())
            lines, changed_at = now, time.monotonic() if now != lines else changed_at
            time.sleep(1.0)
        return Counter(self._record.read_text().splitlines())

    def _call(self, call: str) -> dict[str, Any]:
        answer = manage(self._environment, "shell", "-v", "0", "-c", f"from {MODULE} import *; {call}")
        document: dict[str, Any] = orjson.loads(answer)
        return document

    @contextmanager
    def _run_worker(self) -> Iterator[None]:
        options = ("-E", "--concurrency", "16" if self._downstream else "2", "--without-mingle", "--without-gossip")
        process = self._spawn("-m", "celery", "-A", "bench.celery.retry_shop", "worker", *options)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)

    def _spawn(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
