"""Weir, attached to a stock app with failed tasks, and an approved retry plan of them."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import orjson

from bench.celery.brokers import rabbitmq, valkey
from bench.plant.running_plant import ROOT, clean_environment, manage, start_program
from bench.queues.node_servers import node_servers
from console.embedded.processes import build_worker_process

WEIR, SHOP = "bench.celery.retry_weir", "bench.celery.retry_shop"
OBSERVER, CONTROL = "observer", "control worker"
ALL = (CONTROL, OBSERVER)
COMMANDS = {
    OBSERVER: ("manage.py", "observe"),
    CONTROL: ("-m", *build_worker_process("control", "--pool", "threads", "--concurrency", "2").command),
}
REAL_SHARE = 0.05  # of the tasks fail in the app's worker; the others are only stored as failed
FAILING_SECONDS = 600.0
QUIET_SECONDS = 30.0


class RetryInstallation:
    """Use as a context manager. On entry, the observer runs; the control worker does not, so nothing is sent."""

    def __init__(
        self, kind: str, folder: Path, count: int, min_rate: float, max_rate: float, downstream: int = 0
    ) -> None:
        self._kind, self._folder, self._downstream = kind, folder, downstream
        self._count, self._rates = count, (min_rate, max_rate)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self.prepared: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        brokers = valkey(["shop"]) if self._kind == "valkey" else rabbitmq(["shop"], self._folder / "rabbitmq")
        broker = self._stack.enter_context(brokers)["shop"]
        control = self._stack.enter_context(node_servers(("control",)))["control"]
        self._database = self._folder / "weir.sqlite3"
        self._record, away = self._folder / "record", self._folder / "away"
        self._record.touch()
        self._environment = {
            **clean_environment(),
            "WEIR_DATA": str(self._folder),
            "DATABASE_URL": f"sqlite:///{self._database}",
            "REDIS_URL": control,
            "WEIR_NODES": "",
            "WEIR_CONTROL_BEAT": "1",
            "WEIR_EGRESS_ALLOW": "127.0.0.0/8",
            "SHOP_BROKER": broker,
            "SHOP_RECORD": str(self._record),
            "SHOP_AWAY": str(away),
            "SHOP_DOWNSTREAM": str(self._downstream),
        }
        away.touch()
        self._start_shop()
        manage(self._environment, "migrate", "--skip-checks", "--verbosity=0", "--no-input")
        self._call(f"attach({broker!r})")
        self.start(OBSERVER)
        first = round(REAL_SHARE * self._count)
        self._await_rows("workers_taskfeed", 1)
        submit = [sys.executable, "-c", f"from {SHOP} import submit; submit({first})"]
        subprocess.run(submit, cwd=ROOT, env=self._environment, check=True)
        self._await_rows("workers_recenttask WHERE finished", first)
        away.unlink()
        self.prepared = orjson.loads(self._call(f"prepare({first}, {self._count}, *{self._rates})"))
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill(name)
        self._stack.close()

    def start(self, name: str) -> None:
        self._processes[name] = self._spawn(*COMMANDS[name])

    def kill(self, name: str) -> None:
        """Kill a process of Weir and its children with SIGKILL."""
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def read_plan(self) -> dict[str, Any]:
        """Return the state of the plan. It is read from the file: a process of Weir would cost more than sending."""
        names = ("state", "note", "sent", "succeeded", "failed", "unheard", "pace")
        [values] = self._query(f"SELECT {', '.join(names)} FROM workers_retryplan")
        plan = dict(zip(names, values, strict=True))
        return {**plan, "rate": orjson.loads(plan["pace"]).get("rate")}

    def resume(self) -> None:
        """Continue the plan, which has stopped."""
        self._call("resume()")

    def count_runs(self, count: int) -> Counter[str]:
        """Return the runs of each task, once all have run or nothing more happens for QUIET_SECONDS."""
        lines, changed_at = 0, time.monotonic()
        while lines < count and time.monotonic() < changed_at + QUIET_SECONDS:
            now = len(self._record.read_text().splitlines())
            lines, changed_at = now, time.monotonic() if now != lines else changed_at
            time.sleep(1.0)
        return Counter(self._record.read_text().splitlines())

    def _start_shop(self) -> None:
        """Start the app's worker. It is never killed."""
        threads = "16" if self._downstream else "4"
        options = ("-E", "--pool", "threads", "--concurrency", threads, "--without-mingle", "--without-gossip")
        process = self._spawn("-m", "celery", "-A", SHOP, "worker", *options)
        self._stack.callback(process.wait, 60)
        self._stack.callback(process.terminate)

    def _await_rows(self, table: str, count: int) -> None:
        deadline = time.monotonic() + FAILING_SECONDS
        while self._query(f"SELECT COUNT(*) FROM {table}")[0][0] < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{table} has too few rows:\n{(self._folder / 'log').read_text()[-3000:]}")
            time.sleep(0.5)

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True, timeout=30.0)) as database:
            return database.execute(sql).fetchall()

    def _call(self, call: str) -> str:
        return manage(self._environment, "shell", "-v", "0", "-c", f"from {WEIR} import *; {call}")

    def _spawn(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return start_program([sys.executable, *arguments], self._environment, self._folder / "log")
