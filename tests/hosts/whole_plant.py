"""A whole plant over hosts: a control server, a database, three nodes, the console, and two hosts of workers,
which a third may join. The producer is the test itself, on its host "desk". A pipeline is there where it is begun, on a
host of its own.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis

from bench.plant.running_plant import ROOT, clean_environment
from console.embedded.processes import WEB_OPTIONS, WORKER_OPTIONS
from queues import keys
from queues.nodes.server import ServerConfig, prepare_server_command
from tests.hosts.network import Network, missing, network
from tests.postgres import as_postgres, folder_of_postgres, server_binary
from tests.waiting import until

NODES, WORKERS = ("n1", "n2", "n3"), ("w1", "w2", "w3")
PIPELINE = "pipeline"
HOSTS = ("control", "database", *NODES, "console", *WORKERS, PIPELINE)
CLOCKED = ("n2", "w2")
SERVER_PORT, DATABASE_PORT, WEB_PORT = 6379, 5432, 8000
STARTED_SECONDS = 240.0
PASSWORD = "a long enough pass phrase"
SECRET = "of all hosts of this plant alike, and of no other plant there is"
QUEUE, TABLE = "alert", "orders"


@dataclass
class WholePlant:
    """Its processes stand on the hosts of `net`; what is asked of it here is asked from the desk. code: the
    checkout that they run from; database: the folder of PostgreSQL.
    """

    net: Network
    folder: Path
    database: Path
    code: Path = ROOT
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def database_url(self) -> str:
        return f"postgresql://postgres@{self.net.of('database')}:{DATABASE_PORT}/postgres"

    def server_url(self, host: str) -> str:
        return f"redis://{self.net.of(host)}:{SERVER_PORT}/0"

    def server(self, host: str) -> redis.Redis:
        timeouts = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
        return redis.Redis.from_url(self.server_url(host), retry=None, **timeouts)

    def environment(self, host: str) -> dict[str, str]:
        data = self.folder / f"data-{host}"
        data.mkdir(mode=0o700, exist_ok=True)
        return {
            **clean_environment(),
            "WEIR_DATA": str(data),
            "WEIR_ADMIN_PASSWORD": PASSWORD,
            "WEIR_SECRET_KEY": SECRET,
            "WEIR_HOSTS": f"{self.net.of('console')} localhost",
            "REDIS_URL": self.server_url("control"),
            "DATABASE_URL": self.database_url,
            "WEIR_NODES": " ".join(f"{name}={self.server_url(name)}" for name in NODES),
            "WEIR_EGRESS_ALLOW": "10.77.0.0/24",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }

    def start(self, host: str, name: str, *line: str) -> None:
        place = self.code
        self.processes[name] = self.net.start(host, line, self.environment(host), name, place)

    def program(self, name: str) -> str:
        """Of the environment that the checkout's packages are in."""
        return str(self.code / ".venv" / "bin" / name)

    def begin(self) -> None:
        """Servers first, then a migrated and seeded database, then everything that works on them."""
        self._servers()
        self._database()
        self.set_up()
        # Effects of all worker hosts in one place.
        options = json.dumps({"url": self.database_url, "table": TABLE})
        self.ask(
            "UPDATE queues_queue SET handler = 'sql', handler_options = %s WHERE name = %s RETURNING name",
            *(options, QUEUE),
        )
        self.manage("seed")
        for name in self.parts():
            self.begin_part(name)

    def set_up(self) -> None:
        """As Compose's service of that name."""
        for words in (("migrate", "--skip-checks", "-v0"), ("collectstatic", "--noinput", "-v0"), ("seed",)):
            self.manage(*words)

    def parts(self) -> list[str]:
        """Everything but the servers, in the order of starting."""
        workers = [f"{role}-{host}" for host in WORKERS[:2] for role in ("control", "jobs")]
        return [*(f"agent-{name}" for name in NODES), "observer", "alerter", "web", "beat", *workers]

    def begin_part(self, name: str) -> None:
        python = self.program("python")
        kind, _, host = name.partition("-")
        if kind == "agent":
            self.start(host, name, python, "-m", "queues.nodes.agent", host)
        elif kind in ("control", "jobs"):
            self.join(kind, host)
        elif kind == "beat":
            # A version before may have the workers' application alone.
            app = "console.beat" if (self.code / "console" / "beat.py").exists() else "console.celery"
            beat = (self.program("celery"), "--app", app, "beat", "--loglevel", "WARNING")
            self.start("console", name, *beat)
        elif kind == PIPELINE:
            self.start(PIPELINE, name, python, "-m", "workers.pipeline.runtime.application")
        elif kind == "web":
            address = ("--host", "0.0.0.0", "--port", str(WEB_PORT))
            uvicorn = (self.program("uvicorn"), "console.asgi:application")
            # The version before an upgrade lacks the protocols that limit connections.
            options = WEB_OPTIONS if (self.code / "console" / "connections" / "web_protocols.py").exists() else ()
            self.start("console", name, *uvicorn, *address, *options)
        else:
            command = {"observer": "observe", "alerter": "alert"}[kind]
            self.start("console", name, python, "manage.py", command)

    def _servers(self) -> None:
        for host in ("control", *NODES):
            config = ServerConfig(SERVER_PORT, self.folder / host, 128 * 2**20, bind="0.0.0.0")
            line = prepare_server_command(config)
            with Path(line[-1]).open("a") as file:
                file.write("protected-mode no\n")
            self.start(host, f"server-{host}", *line)
        for host in ("control", *NODES):
            until(self.server(host).ping, 20)

    def _database(self) -> None:
        folder, initdb, postgres = self.database, server_binary("initdb"), server_binary("postgres")
        assert initdb and postgres
        making = as_postgres([initdb, "-D", str(folder / "data"), "-A", "trust", "-N", "-U", "postgres"])
        subprocess.run(making, check=True, cwd=folder, capture_output=True)
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 10.77.0.0/24 trust\n")
        options = ["-D", str(folder / "data"), f"-p{DATABASE_PORT}", f"-k{folder}", "-h*", "-F"]
        self.start("database", "postgres", *as_postgres([postgres, *options]))
        until(self._database_answers, 60)

    def _database_answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.database_url, connect_timeout=2).close()
            return True
        return False

    def join(self, role: str, host: str) -> None:
        """Workers of a role begin on a host: that is all that it takes."""
        pool = {"control": ("threads", "2"), "jobs": ("prefork", "1")}[role]
        place = ("--queues", role, "--hostname", f"{role}@{host}", "--pool", pool[0], "--concurrency", pool[1])
        celery = (self.program("celery"), "--app", "console.celery", "worker")
        self.start(host, f"{role}-{host}", *celery, *place, *WORKER_OPTIONS)

    def end_part(self, name: str) -> None:
        """It is asked to end, as by whoever takes its host away."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(60)

    def manage(self, *words: str) -> str:
        """A command of manage.py on the console's host."""
        line = [self.program("python"), "manage.py", *words]
        inside = ["ip", "netns", "exec", self.net.space("console"), *line]
        made = subprocess.run(
            inside, cwd=self.code, env=self.environment("console"), capture_output=True, text=True, timeout=600
        )
        assert made.returncode == 0, f"{words}: {made.stdout}{made.stderr}"
        return made.stdout

    def ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as connection:
            return connection.execute(question, values).fetchall()

    def decisions(self) -> int:
        ((count,),) = self.ask("SELECT count(*) FROM workers_ledgerentry")
        return int(count)

    def assert_loops_tick(self, seconds: float = 30.0) -> None:
        before = self.decisions()
        until(lambda: self.decisions() > before + 4, seconds, 0.5)

    def snapshot(self) -> dict[str, Any] | None:
        with self.server("control") as control:
            stored = control.get(keys.SNAPSHOT)
        return json.loads(stored) if stored else None

    def until(self, condition: Any, seconds: float, what: str) -> tuple[float, dict[str, Any]]:
        """(seconds until then, the first snapshot on which the condition holds). Raises AssertionError."""
        began, seen = time.monotonic(), None
        while time.monotonic() - began < seconds:
            with suppress(redis.RedisError):
                seen = self.snapshot()
                if seen and condition(seen):
                    return time.monotonic() - began, seen
            time.sleep(0.25)
        told = {name: seen and seen.get(name) for name in ("at", "nodes", "hosts", "states")}
        raise AssertionError(f"not within {seconds:g} s: {what}; {json.dumps(told)[:6000]}\n{self.ends_of_logs()}")

    def page_answers(self) -> bool:
        with suppress(httpx.HTTPError):
            url = f"http://{self.net.of('console')}:{WEB_PORT}/login/"
            return httpx.get(url, timeout=5).status_code == 200
        return False

    def act(self, path: str, **body: Any) -> None:
        """POST to the API, as the administrator at the console's address."""
        base = f"http://{self.net.of('console')}:{WEB_PORT}"
        with httpx.Client(base_url=base, follow_redirects=True, timeout=30, headers={"Referer": base}) as web:
            web.get("/login/")
            form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": web.cookies["csrftoken"]}
            web.post("/login/", data=form).raise_for_status()
            headers = {"X-CSRFToken": web.cookies["csrftoken"]}
            answer = web.post(f"/api/v1/{path}", json={"reason": "A test.", **body}, headers=headers)
            assert answer.is_success, answer.text

    def ends_of_logs(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {each.name}\n{each.read_text(errors='replace')[-1200:]}" for each in logs)


@contextmanager
def whole_plant(folder: Path, code: Path = ROOT) -> Iterator[WholePlant]:
    """Started from a checkout, and whole; everything ends with it."""
    if absent := missing():
        pytest.skip(absent)
    if not server_binary("initdb"):
        pytest.skip("needs PostgreSQL; install postgresql to run this.")
    with folder_of_postgres() as database, network(HOSTS, folder, clocked=CLOCKED) as net:
        plant = WholePlant(net, folder, database, code)
        plant.begin()
        plant.until(is_whole, STARTED_SECONDS, "the plant is whole")
        until(plant.page_answers, 60)
        yield plant


def is_whole(snapshot: dict[str, Any]) -> bool:
    """All nodes are heard, two hosts of jobs report, every loop has decided lately."""
    states = [node["state"] for node in snapshot["nodes"].values()]
    loops = snapshot["loops"].values()
    return (
        len(states) == len(NODES)
        and all(state not in (None, "OFFLINE") for state in states)
        and {"jobs@w1", "jobs@w2"} <= set(snapshot["hosts"])
        and bool(loops)
        and all(loop["at"] is not None for loop in loops)
    )
