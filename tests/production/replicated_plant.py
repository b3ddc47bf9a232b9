"""A plant whose control side fails over: a replicated control server, PostgreSQL with a stand-by, two web
processes and two control workers; and one node, one observer, one host of jobs, one beat.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from bench.plant.running_plant import ROOT, clean_environment
from console.embedded.processes import WEB_OPTIONS, WORKER_OPTIONS
from queues import keys
from queues.control.connection import connect
from queues.nodes.server import free_port
from tests.postgres import as_postgres, folder_of_postgres, server_binary
from tests.sentinels import Replicated, replicated
from tests.servers import Server, new_server
from tests.waiting import until

PASSWORD = "a long enough pass phrase"
BIN = Path(sys.executable).parent
NODE = "n1"
STARTED_SECONDS = 180.0


@dataclass
class PostgresServer:
    """One PostgreSQL server of a pair."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self, *settings: str) -> "PostgresServer":
        options = [f"-p{self.port}", f"-k{self.folder}", "-h127.0.0.1", "-cwal_level=replica", *settings]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                as_postgres([str(server_binary("postgres")), "-D", str(self.data), *options]),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(self.answers, 60)
        return self

    def answers(self) -> bool:
        try:
            psycopg.connect(f"{self.url}?connect_timeout=1").close()
        except psycopg.OperationalError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def ask(self, question: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(question).fetchone()
        return row and row[0]

    def kill(self) -> None:
        """At once, as if its host had lost its power: PostgreSQL's immediate stop, and its process gone."""
        if self.process is not None:
            with suppress(ProcessLookupError, FileNotFoundError):
                pid = int((self.data / "postmaster.pid").read_text().split()[0])
                os.kill(pid, signal.SIGQUIT)  # to the postmaster, which takes its children with it
            self.process.wait(30)
            self.process = None


@contextmanager
def postgres_pair() -> Iterator[list[PostgresServer]]:
    """A primary and a stand-by that has what the primary has committed. It needs root, to be another user."""
    initdb, basebackup = server_binary("initdb"), server_binary("pg_basebackup")
    if not initdb or not basebackup or os.geteuid() != 0:
        pytest.skip("needs PostgreSQL and root; install postgresql to run this.")
    with folder_of_postgres() as folder:
        yield from _pair(initdb, basebackup, [PostgresServer(folder / name) for name in ("first", "second")])


def _pair(initdb: str, basebackup: str, pair: list[PostgresServer]) -> Iterator[list[PostgresServer]]:
    try:
        for server in pair:
            server.folder.mkdir()
            shutil.chown(server.folder, "postgres")
        _run([initdb, "-D", str(pair[0].data), "-A", "trust", "-N", "-U", "postgres"], pair[0].folder)
        first = pair[0].start()
        source = f"-dhost=127.0.0.1 port={first.port} user=postgres application_name=second"
        _run([basebackup, source, "-D", str(pair[1].data), "-R", "-X", "stream"], pair[1].folder)
        pair[1].start()
        with psycopg.connect(first.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'second'")
            connection.execute("SELECT pg_reload_conf()")
        until(lambda: first.ask("SELECT sync_state FROM pg_stat_replication") == "sync", 30)
        yield pair
    finally:
        for server in pair:
            server.kill()


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(as_postgres(command), check=True, cwd=folder, capture_output=True)


@dataclass
class ReplicatedPlant:
    """Its processes by name, and what they share."""

    control: Replicated
    databases: list[PostgresServer]
    node: Server
    data: Path
    web_ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.databases)
        return {
            **clean_environment(),
            "WEIR_DATA": str(self.data),
            "WEIR_ADMIN_PASSWORD": PASSWORD,
            "REDIS_URL": self.control.url,
            "DATABASE_URL": f"postgres://postgres@{hosts}/postgres",
            "WEIR_NODES": f"{NODE}={self.node.url}",
            "WEIR_EGRESS_ALLOW": "127.0.0.0/8",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def manage(self, *command: str) -> str:
        line = [sys.executable, "manage.py", *command]
        made = subprocess.run(line, cwd=ROOT, env=self.environment, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return made.stdout

    def start(self, name: str, *command: str) -> None:
        with (self.data / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start_all(self) -> None:
        """Everything, on a migrated and seeded database."""
        for command in (("migrate", "--skip-checks", "-v0"), ("collectstatic", "--noinput", "-v0"), ("seed",)):
            self.manage(*command)
        self.start("agent", sys.executable, "-m", "queues.nodes.agent", NODE)
        self.start("observer", sys.executable, "manage.py", "observe")
        for number, port in enumerate(self.web_ports, 1):
            address = ("--host", "127.0.0.1", "--port", str(port))
            self.start(f"web-{number}", str(BIN / "uvicorn"), "console.asgi:application", *address, *WEB_OPTIONS)
        for number in (1, 2):
            self.worker("control", f"control{number}", "threads", 2)
        self.worker("jobs", "jobs", "prefork", 2)
        self.start("beat", str(BIN / "celery"), "--app", "console.beat", "beat", "--loglevel", "WARNING")

    def worker(self, role: str, name: str, pool: str, processes: int) -> None:
        place = ("--queues", role, "--hostname", f"{name}@%h", "--pool", pool, "--concurrency", str(processes))
        line = (str(BIN / "celery"), "--app", "console.celery", "worker", *place, *WORKER_OPTIONS)
        self.start(f"worker-{name}", *line)

    def snapshot(self) -> dict[str, Any] | None:
        with connect(self.control.url, socket_timeout=2.0, retry=None) as client:
            stored = client.get(keys.SNAPSHOT)
        return json.loads(stored) if stored else None

    def until_whole(self, seconds: float = STARTED_SECONDS) -> None:
        """Return when pages are served and loops have ticked."""

        def served() -> bool:
            pages = [httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5) for port in self.web_ports]
            snapshot = self.snapshot()
            return all(page.status_code == 200 for page in pages) and bool(snapshot) and self.ticks() > 3

        def safely() -> bool:
            with suppress(httpx.HTTPError, psycopg.Error):
                return served()
            return False

        try:
            until(safely, seconds, 0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.ends_of_logs()}") from None

    def ends_of_logs(self) -> str:
        logs = sorted(self.data.glob("*.log"))
        return "\n".join(f"== {each.name}\n{each.read_text()[-1500:]}" for each in logs)

    def database(self) -> PostgresServer:
        """The one that takes writes."""
        running = [each for each in self.databases if each.process is not None]
        return next(each for each in running if not each.ask("SELECT pg_is_in_recovery()"))

    def ticks(self) -> int:
        return int(self.database().ask("SELECT count(*) FROM workers_ledgerentry") or 0)

    def signed_in(self, port: int) -> httpx.Client:
        """An HTTP client with the administrator's session at one web process."""
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True, timeout=20)
        client.get("/login/")
        form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        client.post("/login/", data=form, headers={"Referer": str(client.base_url)}).raise_for_status()
        return client

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + 20
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def replicated_plant(folder: Path) -> Iterator[ReplicatedPlant]:
    """Started and whole; everything ends with it."""
    with ExitStack() as stack:
        control = stack.enter_context(replicated(folder / "control"))
        databases = stack.enter_context(postgres_pair())
        node = new_server(folder / NODE)
        stack.callback(node.close)
        data = _made(folder / "data")
        data.chmod(0o700)
        plant = ReplicatedPlant(control, databases, node, data)
        stack.callback(plant.close)
        plant.start_all()
        plant.until_whole()
        yield plant


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
