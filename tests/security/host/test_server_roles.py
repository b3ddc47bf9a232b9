"""Each role's user at the servers can do its work, with the real processes, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from common.environment import NODE_LOGIN, PROCESS
from common.errors import BadInput
from queues import keys
from queues.nodes import server_roles
from queues.nodes.addresses import add_login
from queues.nodes.server import ServerConfig, free_port
from queues.nodes.server_roles import ROLES, build_acl_files, get_user_variable
from queues.publishing.client import Client
from tests.servers import Server
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
PASSWORDS = {role.name: f"{role.name}-" + "x" * 32 for role in ROLES}
ENVIRONMENT = {get_user_variable(role.name): PASSWORDS[role.name] for role in ROLES}
ONCE = Retry(NoBackoff(), 0)  # a wrong password does not become right
NO_LOGIN = pytest.raises(redis.AuthenticationError)
INSPECTOR = "user inspector on >inspector ~* &* +@all\n"


class GuardedServer(Server):
    """Only users of its ACL file may speak to it."""

    @property
    def url(self) -> str:
        return f"redis://health:any@127.0.0.1:{self.config.port}/0"

    def user(self, name: str) -> redis.Redis:
        password = PASSWORDS.get(name, name)
        return redis.Redis(port=self.config.port, username=name, password=password)

    def url_of(self, name: str) -> str:
        return f"redis://{name}:{PASSWORDS[name]}@127.0.0.1:{self.config.port}/0"

    def refused(self) -> list[str]:
        with self.user("inspector") as inspector:
            rows = inspector.acl_log()
        # The test's own client introduces itself also as `health`.
        return [f"{row['username']}: {row['reason']} {row['object']}" for row in rows if row["username"] in PASSWORDS]


@dataclass
class Plant:
    control: GuardedServer
    node: GuardedServer
    data: Path

    def environment(self, role: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "WEIR_DATA": str(self.data),
            "REDIS_URL": self.control.url_of(role),
            "WEIR_NODES": f"n1=redis://127.0.0.1:{self.node.config.port}/0",
            NODE_LOGIN.name: f"{role}:{PASSWORDS[role]}",
        }

    def manage(self, role: str, *command: str, **options: str) -> str:
        line = [sys.executable, "manage.py", *command]
        environment = self.environment(role)
        answer = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, **options)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def refused(self) -> list[str]:
        return self.control.refused() + self.node.refused()

    @contextmanager
    def running(self, role: str, *command: str) -> Iterator[None]:
        with (self.data / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=self.environment(role), stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    folder = tmp_path_factory.mktemp("roles")
    servers = []
    for name, text in build_acl_files(ENVIRONMENT).items():
        (folder / name).write_text(text + INSPECTOR)
        place = folder / name.removesuffix(".acl")
        servers.append(GuardedServer(ServerConfig(free_port(), place, aclfile=folder / name)).start())
    plant = Plant(servers[0], servers[1], folder)
    plant.manage("web", "migrate", "--skip-checks", "--verbosity", "0")
    plant.manage("web", "seed")
    yield plant
    for server in servers:
        server.close()


@pytest.mark.slow
def test_the_hosts_telemetry_publishes_with_its_own_rights(plant, monkeypatch):
    """Twice: from the second time on it asks for the queues' pauses, too."""
    monkeypatch.setitem(PROCESS, NODE_LOGIN.name, f"telemetry:{PASSWORDS['telemetry']}")
    event = {"type": "cpu", "source": "host", "key": "core0", "value": 1.0}
    for _ in range(2):
        with Client(plant.control.url_of("telemetry"), producer="host") as client:
            assert client.publish("telemetry", [event]).events == 1
            assert client.publish("process", [event]).events == 1
    assert plant.refused() == []


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_every_role_does_its_work_and_is_refused_nothing_that_it_needs(plant):
    """Agent, telemetry, observer and worker, as compose starts them; a producer of the web process."""
    celery = ["-m", "celery", "--app", "console.celery", "worker", "--without-gossip", "--without-mingle"]
    jobs = [*celery, "--queues", "jobs,control", "--hostname", "jobs@%h", "--pool", "prefork", "-c", "1"]
    before = plant.node.user("inspector").hget("weir:telemetry:counters", "inserted_events") or 0
    with ExitStack() as stack, plant.control.user("inspector") as control, plant.node.user("inspector") as node:
        for role, command in {
            "agent": ["-m", "queues.nodes.agent", "n1"],
            "telemetry": ["-m", "queues.publishing.telemetry"],
            "observer": ["manage.py", "observe"],
            "workers": jobs,
        }.items():
            stack.enter_context(plant.running(role, *command))
        for worked in (
            lambda: control.hget("weir:heartbeats", "n1"),
            lambda: control.get("weir:snapshot"),
            lambda: control.xlen("weir:metrics"),
            lambda: int(node.hget("weir:telemetry:counters", "inserted_events") or 0) > int(before),
            lambda: control.hlen(keys.HOSTS),
        ):
            until(lambda worked=worked: worked() or plant.refused(), 120)
            assert plant.refused() == []
        rows = "type\nalert\n"
        plant.manage("web", "publish", "alert", "-", "--format", "csv", "--type", "type", input=rows)
        ask = "from workers.tasks import consume; print(consume.name)"
        assert "consume" in plant.manage("workers", "shell", "-c", ask)
        inspect = ["-m", "celery", "--app", "console.celery", "inspect", "ping", "--timeout", "30"]
        environment = plant.environment("workers")
        said = subprocess.run([sys.executable, *inspect], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert "pong" in said.stdout, said.stdout + said.stderr
    assert plant.refused() == []


def commands(text: str) -> list[list[str]]:
    return [each.split() for each in text.split(" | ")]


REFUSED_EVERYWHERE = [
    ["EVAL", "return redis.call('GET', 'elsewhere')", "0"],
    *commands("FLUSHALL | CONFIG REWRITE | CONFIG RESETSTAT | KEYS * | ACL LIST | CLIENT LIST | SAVE"),
    *commands("SHUTDOWN | MODULE LIST | REPLICAOF 127.0.0.1 1 | FUNCTION LIST | MONITOR | SET elsewhere 1"),
]
TOPOLOGY, CONTROLS = "SET weir:topology {} | ", "SET weir:pipeline:controls:performance {} | "
BEAT, JOB, LIVE = "HSET weir:heartbeats n1 {}", "LPUSH weir:celery:jobs x | ", "PUBLISH weir:live {}"
CONFIGURE = commands("CONFIG GET requirepass | CONFIG SET dir /tmp")
REFUSED_AT_CONTROL = {
    "agent": commands(TOPOLOGY + "GET weir:snapshot | LPUSH weir:celery:control x | " + LIVE),
    "telemetry": commands(TOPOLOGY + JOB + CONTROLS + BEAT),
    "observer": commands(TOPOLOGY + JOB + CONTROLS + BEAT),
    "pipeline": commands(TOPOLOGY + JOB + "SET weir:snapshot {} | " + LIVE),
}
ADD, DELETE = "XADD weir:alert:segment * a b | ", "DEL weir:alert:segment"
REFUSED_AT_NODE = {
    "agent": commands(ADD + DELETE),
    "telemetry": commands(ADD + "XRANGE weir:alert:segment - +"),
    "observer": commands(ADD + DELETE),
}


def is_refused(client: redis.Redis, command: list[str]) -> bool:
    try:
        client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    except redis.exceptions.ResponseError as error:  # a script's own answer
        return "NOPERM" in str(error) or "ACL failure" in str(error)
    return False


@pytest.mark.parametrize("role", [role.name for role in ROLES])
def test_a_role_can_do_nothing_else(plant, role):
    for server, more in ((plant.control, REFUSED_AT_CONTROL), (plant.node, REFUSED_AT_NODE)):
        with server.user(role) as client:
            assert client.ping()
            may_configure = server is plant.node and role == "agent"
            refused = (*REFUSED_EVERYWHERE, *more.get(role, ()), *([] if may_configure else CONFIGURE))
            assert [command for command in refused if not is_refused(client, command)] == []


def test_an_agent_lets_its_node_sync_writes_and_can_not_move_its_files(plant):
    with plant.node.user("agent") as client:
        assert client.config_set("appendfsync", "no")
        with pytest.raises(redis.exceptions.ResponseError, match="protected"):
            client.config_set("dir", "/tmp")


def test_agents_and_workers_choose_the_primary_of_a_node_only_if_nodes_have_replicas():
    replicated = {**ENVIRONMENT, "WEIR_PASSWORD_REPLICA": "r" * 40, "WEIR_PASSWORD_SENTINEL": "s" * 40}
    assert "+replicaof" not in build_acl_files(ENVIRONMENT)["node.acl"]
    lines = build_acl_files(replicated)["node.acl"].splitlines()
    assert {line.split()[1] for line in lines if "+replicaof" in line} == {"agent", "workers"}
    assert any(line.startswith("user replica ") and "+psync" in line for line in lines)


def test_without_a_users_password_nothing_is_answered(plant):
    for server in (plant.control, plant.node):
        for login in ({}, {"username": "web", "password": "guess"}, {"username": "default", "password": ""}):
            with redis.Redis(port=server.config.port, retry=ONCE, **login) as client, NO_LOGIN:
                client.get("weir:topology")
        with server.user("health") as health:
            assert health.ping()
            with pytest.raises(redis.exceptions.NoPermissionError):
                health.get("weir:topology")


def test_a_producer_reaches_a_node_by_its_own_login_and_the_topology_holds_none(plant, monkeypatch):
    monkeypatch.setenv(NODE_LOGIN.name, f"web:{PASSWORDS['web']}")
    with Client(plant.control.url_of("web"), "test") as client:
        client.publish("alert", [{"type": "alert"}])
    with plant.control.user("web") as control:
        assert not any(password.encode() in control.get("weir:topology") for password in PASSWORDS.values())


def test_a_url_with_a_login_keeps_it_and_special_characters_are_quoted():
    assert add_login("redis://:own@n1:6379/0", {NODE_LOGIN.name: "web:other"}) == "redis://:own@n1:6379/0"
    assert add_login("redis://n1:6379/0", {NODE_LOGIN.name: "web:a/b@c"}) == "redis://web:a%2Fb%40c@n1:6379/0"
    assert add_login("redis://n1:6379/0", {}) == "redis://n1:6379/0"


@pytest.mark.parametrize("password", ["", "short", PASSWORDS["web"]])
def test_a_password_that_is_missing_short_or_anothers_is_refused_by_name(password):
    with pytest.raises(BadInput, match=r"^WEIR_PASSWORD_WORKERS: must") as refused:
        build_acl_files({**ENVIRONMENT, "WEIR_PASSWORD_WORKERS": password})
    assert "xxxx" not in str(refused.value)


def test_the_command_writes_digests_only(tmp_path):
    line = [sys.executable, "-m", "queues.nodes.server_roles", str(tmp_path)]
    assert subprocess.run(line, env={**os.environ, **ENVIRONMENT}, cwd=ROOT).returncode == 0
    for name in ("control.acl", "node.acl"):
        text = (tmp_path / name).read_text()
        assert not any(password in text for password in PASSWORDS.values())
        assert text.startswith("user default off")
    assert server_roles.main([]) == 2
