"""A small installation of Weir whose processes can be killed: web, observer, and control worker, as ./run forks them.

The control server and the database stay. One process imports the programs once, and forks them at each start.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import redis

from bench.plant.running_plant import ROOT, clean_environment, manage
from bench.queues.node_servers import node_servers
from console.embedded.forked_programs import find_program, import_programs, run_forked
from console.embedded.processes import build_web_process, build_worker_process
from queues import keys
from queues.nodes.server import free_port

START_SECONDS = 180.0


class ApiRefusal(RuntimeError):  # noqa: N818
    """The API rejected a request."""


class VanishingWeir:
    """An installation, as a context manager. plants: the arguments of `manage.py attach` for each."""

    def __init__(self, folder: Path, plants: Mapping[str, list[str]]) -> None:
        self._folder, self._plants = folder, plants
        self._stack, self._pids = ExitStack(), list[int]()
        folder.mkdir()

    def __enter__(self) -> Self:
        control = self._stack.enter_context(node_servers(("control",)))["control"]
        self._control: Any = self._stack.enter_context(redis.Redis.from_url(control))
        environment = {
            **clean_environment(),
            "WEIR_DATA": str(self._folder),
            "DATABASE_URL": f"sqlite:///{self._folder}/weir.sqlite3",
            "REDIS_URL": control,
            "WEIR_NODES": "",
            "WEIR_SECRET_KEY": secrets.token_urlsafe(48),
            "WEIR_ADMIN_PASSWORD": secrets.token_urlsafe(16),
            "WEIR_EGRESS_ALLOW": "127.0.0.0/8",
            "WEIR_CONTROL_BEAT": "1",
        }
        manage(environment, "migrate", "--verbosity=0", "--no-input")
        manage(environment, "seed")
        for name, arguments in self._plants.items():
            manage(environment, "attach", *arguments, "--name", name, "--register", "--yes")
        token = json.loads(manage(environment, "token", "bench", "--role", "administrator", "--json"))["token"]
        headers = {"Authorization": f"Bearer {token}"}
        self.api = self._stack.enter_context(httpx.Client(headers=headers, timeout=30.0))
        log = self._stack.enter_context((self._folder / "log").open("w"))
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "bench.vanish.installation"],
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()
        self._forker.kill()
        self._forker.communicate()
        self._stack.close()

    def start(self) -> None:
        """Start all processes, and wait until every plant is observed."""
        assert self._forker.stdin is not None and self._forker.stdout is not None
        port = free_port()  # while Weir is gone, any connection of this host may take a port that it had
        self.api.base_url = f"http://127.0.0.1:{port}/api/v1"
        self._forker.stdin.write(f"{port}\n")
        self._forker.stdin.flush()
        self._pids = json.loads(self._forker.stdout.readline())
        started_at, deadline = time.time(), time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError):
                rows = self.api.get("/plants").raise_for_status().json()["plants"]
                is_seen = all((row["seen"] or {}).get("state") == "seen" for row in rows)
                # A snapshot of the killed processes is not enough: the new ones must have observed the plants.
                snapshot = json.loads(self._control.get(keys.SNAPSHOT) or b"{}")
                if is_seen and snapshot.get("at", 0.0) > started_at + 1.0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"Weir did not start:\n{(self._folder / 'log').read_text()[-3000:]}")

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """Post to the API. Raises `ApiRefusal`."""
        answer = self.api.post(path, json={"reason": "benchmark", **body})
        if answer.status_code >= 300:
            raise ApiRefusal(f"{path}: {answer.status_code} {answer.text[:500]}")
        document: dict[str, Any] = answer.json()
        return document

    def vanish(self) -> None:
        """Kill all processes of Weir with SIGKILL."""
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._pids = []


def fork_programs() -> None:
    """Fork all programs for each line of standard input, which is the port of web; print their pids as JSON."""
    environment = dict(os.environ)
    import_programs()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed forks are not waited for
    others = [
        ("python", "manage.py", "observe"),
        build_worker_process("control", "--pool", "threads", "--concurrency", "2").command,
    ]
    for line in sys.stdin:
        pids = []
        for command in [build_web_process("127.0.0.1", int(line)).command, *others]:
            program = find_program(command)
            assert program is not None
            pid = os.fork()
            if pid == 0:
                os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
                run_forked(command, program, environment)
            pids.append(pid)
        sys.stdout.write(json.dumps(pids) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    fork_programs()
