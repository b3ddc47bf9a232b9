"""A console over 200 nodes with 1000 containers: the real observer and web process on made heartbeats.

Everything is as on a real plant but the nodes themselves: their heartbeats, the producers' counts and the workers' are
written to the control server each second by `Heart`, with loads that wander. So what is measured behind them (observer,
fan-out, pages, browser) does all of its work.
"""

import http.client
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson
import redis

from bench.plant.running_plant import ROOT, clean_environment
from bench.queues.node_servers import node_servers
from console.embedded.processes import build_web_process
from queues import keys
from queues.nodes.node_state import BUSY, NORMAL, TOOBUSY
from queues.nodes.server import free_port
from queues.topology import Topology

NODES = [f"node{number:03}" for number in range(1, 201)]
PASSWORD = "a long enough pass phrase"
START_SECONDS = 60.0


@dataclass
class Heart:
    """Beats for every node once a second, a little before the observer looks."""

    control: redis.Redis
    topology: Topology
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.pairs = [(queue.name, node) for queue in self.topology.queues.values() for node in queue.points]
        self.rates = {pair: self.chance.uniform(20.0, 400.0) for pair in self.pairs}
        self.counters = {pair: [0, 0] for pair in self.pairs}
        self.started = dict.fromkeys(self.pairs, 0)
        self.loads = {name: self.chance.uniform(0.1, 0.6) for name in self.topology.nodes}
        self.seq = 0

    def run(self) -> None:
        while not self.stop.wait((0.02 - time.time()) % 1.0 or 1.0):
            self.beat()

    def beat(self) -> None:
        """A second passes on every node."""
        self.seq += 1
        now = time.time()
        for pair in self.pairs:
            self._flow(pair)
        with self.control.pipeline(transaction=False) as pipe:
            pipe.hset(keys.HEARTBEATS, mapping={name: self._heartbeat(name, now) for name in self.loads})
            for name in ("north", "south"):
                for queue in self.topology.queues:
                    document = orjson.dumps(
                        {"events": self.seq * 500, "blocks": self.seq, "rejected": 0, "rerouted": 0, "at": now}
                    )
                    pipe.hset(keys.PRODUCERS, f"{name}|{queue}", document)
            for queue, node in self.chance.sample(self.pairs, len(self.pairs) // 4):
                self.started[queue, node] += 1
                pipe.hset(keys.WORK.build(queue, node), "started", self.started[queue, node])
            pipe.set(keys.PIPELINE, orjson.dumps({"state": "running", "batch": self.seq, "at": now}))
            pipe.execute()

    def _flow(self, pair: tuple[str, str]) -> None:
        """What comes and goes in a second: the rate wanders, and what goes follows it."""
        rate = self.rates[pair] = min(500.0, max(5.0, self.rates[pair] * self.chance.uniform(0.97, 1.03)))
        counts = self.counters[pair]
        counts[0] += round(rate)
        counts[1] = min(counts[0], counts[1] + round(rate * self.chance.uniform(0.9, 1.12)))

    def _heartbeat(self, node: str, now: float) -> bytes:
        load = self.loads[node] = min(0.95, max(0.02, self.loads[node] + self.chance.uniform(-0.02, 0.02)))
        containers = {queue: self._gauge(queue, node) for queue in self.topology.on_node(node)}
        return orjson.dumps(
            {
                "node": node,
                "seq": self.seq,
                "at": now,
                "state": TOOBUSY if load > 0.9 else BUSY if load > 0.7 else NORMAL,
                "utilisation": round(load, 4),
                "raw": round(load, 4),
                "parts": {"cpu": round(load, 4), "memory": 0.1, "events": round(load / 3, 4)},
                "memory_bytes": 50_000_000 + self.seq * 1000,
                "containers": containers,
            }
        )

    def _gauge(self, queue: str, node: str) -> dict[str, Any]:
        inserted, removed = self.counters[queue, node]
        return {
            "inserted_events": inserted,
            "inserted_blocks": inserted // 64,
            "inserted_bytes": inserted * 80,
            "removed_events": removed,
            "removed_blocks": removed // 64,
            "removed_bytes": removed * 80,
            "dead_events": 0,
            "received_events": 0,
            "sent_events": 0,
            "length_blocks": (inserted - removed) // 64,
            "pending_blocks": 0,
            "retry_blocks": 0,
            "dead_letters": 0,
            "leaving_blocks": 0,
            "oldest_seconds": round(self.chance.uniform(0.1, 4.0), 3) if inserted > removed else None,
            "server_time_share": round(self.chance.uniform(0.01, 0.1), 5),
        }


@dataclass(frozen=True)
class LargePlant:
    """Where it is, and who may look at it."""

    port: int
    control_url: str
    data: Path
    processes: dict[str, subprocess.Popen[bytes]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def log_in(self) -> str:
        """The Cookie header of the administrator."""
        with closing(self.connection()) as connection:
            connection.request("GET", "/login/")
            answer = connection.getresponse()
            answer.read()
            csrf = answer.headers["Set-Cookie"].split(";")[0]
            form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": csrf.split("=", 1)[1]}
            headers = {"Cookie": csrf, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/login/", urlencode(form), headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 302:
                raise AssertionError(f"the login answered {answer.status}")
            return "; ".join(value.split(";")[0] for value in answer.headers.get_all("Set-Cookie") or ())


@contextmanager
def large_plant() -> Iterator[LargePlant]:
    """The console, its observer and the heart, running; all gone afterwards."""
    with node_servers(("control",)) as urls, tempfile.TemporaryDirectory(prefix="weir-large-") as folder:
        data = Path(folder)
        environment = {
            **clean_environment(),
            # A thousand clients of one person, on one process.
            "WEIR_CONNECTIONS_PER_ADDRESS": "1200",
            "WEIR_LIVE_SOCKETS": "1100",
            "WEIR_LIVE_SOCKETS_PER_PERSON": "1100",
            "WEIR_DATA": folder,
            "REDIS_URL": urls["control"],
            "WEIR_ADMIN_PASSWORD": PASSWORD,
            "DATABASE_URL": f"sqlite:///{data / 'weir.sqlite3'}",
            "WEIR_NODES": " ".join(f"{name}=redis://127.0.0.1:1/0" for name in NODES),
            "DJANGO_SETTINGS_MODULE": "console.settings",
        }
        for command in (
            ("manage.py", "migrate", "--verbosity=0", "--no-input"),
            ("manage.py", "collectstatic", "--verbosity=0", "--no-input"),
            ("manage.py", "shell", "-c", "from bench.console.large_seed import seed; seed()"),
        ):
            subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
        control = redis.Redis.from_url(urls["control"])
        heart = Heart(control, Topology.from_json(control.get(keys.TOPOLOGY)))
        beating = threading.Thread(target=heart.run, daemon=True)
        beating.start()
        port = free_port()
        commands = {"web": ["-m", *build_web_process("127.0.0.1", port).command], "observer": ["manage.py", "observe"]}
        running = {name: _start_process(command, environment, data, name) for name, command in commands.items()}
        plant = LargePlant(port, urls["control"], data, running)
        try:
            _await(plant, control)
            yield plant
        finally:
            heart.stop.set()
            beating.join()
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait(20)
            control.close()


def _start_process(command: list[str], environment: dict[str, str], data: Path, name: str) -> subprocess.Popen[bytes]:
    with (data / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _await(plant: LargePlant, control: redis.Redis) -> None:
    """Until the console answers, and the observer has looked twice."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        stored = control.get(keys.SNAPSHOT)
        if stored and orjson.loads(stored)["seq"] > 2 and _answers(plant):
            return
        time.sleep(0.2)
    logs = "\n".join((plant.data / f"{name}.log").read_text()[-2000:] for name in plant.processes)
    raise AssertionError(f"not up within {START_SECONDS:.0f} s:\n{logs}")


def _answers(plant: LargePlant) -> bool:
    with closing(plant.connection()) as connection:
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
