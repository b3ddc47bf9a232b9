"""A whole plant, started by ./run in a folder of its own: benches measure it, acceptance tests break it."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import redis

from console.embedded.local import EmbeddedServers
from queues import keys

ROOT = Path(__file__).resolve().parents[2]
OWN_SETTINGS = (
    "WEIR_DATA",
    "REDIS_URL",
    "DATABASE_URL",
    "WEIR_NODES",
    "WEIR_SECRET_KEY",
    "WEIR_ADMIN_PASSWORD",
    "PYTHONPATH",  # a session of Spark in this process has set it
)


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}


def manage(environment: dict[str, str], *arguments: str) -> str:
    """What a management command prints, in a process with that environment."""
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def start_program(command: Sequence[str], environment: Mapping[str, str], log_file: Path) -> "subprocess.Popen[bytes]":
    """Start a program in a session of its own. It appends its output to the log file."""
    with log_file.open("ab") as log:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


@dataclass
class RunningPlant:
    """Use as a context manager. `log` holds what ./run printed; `arguments` are further ones of ./run.

    launcher, manager: other words for ./run and manage.py, as an installed wheel has them; place: where they are typed.
    """

    log: list[str] = field(default_factory=list)
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = (str(ROOT / "run"),)
    manager: tuple[str, ...] = (str(ROOT / ".venv/bin/python"), "manage.py")
    place: Path = ROOT
    url: str = ""
    password: str = ""

    def __enter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory(prefix="weir-plant-", ignore_cleanup_errors=True)
        self.data = self.folder_of_data()
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*self.launcher, "--port", "0", *self.options_of_data(), *self.arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self.environment_of_run(),
            cwd=self.place,
        )
        self._read_until_announced()
        # Somebody must go on reading, or the launcher stops at a full pipe.
        self.reader = threading.Thread(target=self._read_on, daemon=True)
        self.reader.start()
        self.control = redis.Redis.from_url(self.control_url())
        return self

    def folder_of_data(self) -> Path:
        """Where ./run keeps the plant's data: a folder that goes with the plant."""
        return Path(self.folder.name)

    def options_of_data(self) -> tuple[str, ...]:
        """The options of ./run that name the data folder."""
        return "--data", str(self.data)

    def environment_of_run(self) -> dict[str, str]:
        """What ./run is started with."""
        return clean_environment()

    def _read_until_announced(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(line.rstrip())
            if match := re.search(r"Weir is at (\S+)", line):
                self.url = match[1].rstrip("/")
                self.seconds_to_page = time.monotonic() - self.started
            if match := re.search(r"admin / (\S+)", line):
                self.password = match[1]
            if "Ctrl-C" in line:
                return
        raise RuntimeError("./run ended before it said where Weir is:\n" + "\n".join(self.log))

    def _read_on(self) -> None:
        assert self.process.stdout is not None
        self.log.extend(line.rstrip() for line in self.process.stdout)

    def __exit__(self, *_: object) -> None:
        self.control.close()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=90)
        except subprocess.TimeoutExpired:
            for process in self.processes():
                process.kill()
            self.process.kill()
            self.process.wait()
        self.reader.join(timeout=5)
        if self.process.stdout:
            self.process.stdout.close()
        self.folder.cleanup()

    def control_url(self) -> str:
        return EmbeddedServers(self.data).build_url("control")

    def snapshot(self) -> dict[str, Any] | None:
        text = self.control.get(keys.SNAPSHOT)
        return json.loads(text) if text else None

    def wait_until(self, condition: Callable[[dict[str, Any]], Any], seconds: float, what: str) -> dict[str, Any]:
        """The first snapshot on which the condition holds; AssertionError with the last one otherwise."""
        deadline, snapshot = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            snapshot = self.snapshot()
            if snapshot and condition(snapshot):
                return snapshot
            time.sleep(0.2)
        raise AssertionError(f"not within {seconds} s: {what}; the last snapshot: {json.dumps(snapshot)[:4000]}")

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def process_matching(self, *words: str) -> psutil.Process:
        """The oldest process whose command line has all the words."""
        processes = []
        for process in self.processes():
            try:
                line = " ".join(process.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                processes.append(process)
        if not processes:
            raise AssertionError(f"no process of the plant has {words} in its command line")
        return min(processes, key=lambda process: process.create_time())

    def node_server(self, name: str) -> psutil.Process:
        port = EmbeddedServers(self.data).ports[name]
        for process in self.processes():
            try:
                if any(c.laddr.port == port and c.status == "LISTEN" for c in process.net_connections("inet")):
                    return process
            except psutil.Error:
                continue
        raise AssertionError(f"nothing listens for {name}")

    def manage(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.manage_command(*arguments),
            capture_output=True,
            text=True,
            cwd=self.place,
            env=self.environment(),
            timeout=timeout,
        )

    def manage_command(self, *arguments: str) -> list[str]:
        return [*self.manager, *arguments]

    def environment(self) -> dict[str, str]:
        return {**clean_environment(), "WEIR_DATA": str(self.data)}

    def log_in(self) -> httpx.Client:
        """An HTTP client with the administrator's session."""
        client = httpx.Client(base_url=self.url, follow_redirects=True, timeout=10)
        client.get("/login/")
        form = {"username": "admin", "password": self.password, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        client.post("/login/", data=form, headers={"Referer": self.url}).raise_for_status()
        return client
