"""Where the control server fails over, replicas, sentinels and roles log in, and may do their work only."""

import pytest
import redis

from queues.control.connection import connect
from queues.nodes.server import ServerConfig, free_port
from queues.nodes.server_roles import FAILING_OVER, ROLES, build_acl_files, get_user_variable
from tests.sentinels import NAME, Replicated, Sentinel, ended
from tests.servers import Server
from tests.waiting import until

PASSWORDS = {name: f"{name}-" + "x" * 32 for name in (*(role.name for role in ROLES), *FAILING_OVER)}
ENVIRONMENT = {get_user_variable(name): password for name, password in PASSWORDS.items()}


class GuardedReplica(Server):
    """It knows only the users of its ACL file."""

    @property
    def url(self) -> str:
        return f"redis://health:any@127.0.0.1:{self.config.port}/0"


@pytest.fixture
def plant(tmp_path):
    for name, text in build_acl_files(ENVIRONMENT).items():
        (tmp_path / name).write_text(text)
    plant = Replicated()
    with ended(plant):
        for number in range(3):
            primary = plant.servers[0].config.port if plant.servers else None
            config = ServerConfig(free_port(), tmp_path / f"s{number}", aclfile=tmp_path / "control.acl")
            login = (f"masteruser replica\nmasterauth {PASSWORDS['replica']}\n",)
            follows = (f"replicaof 127.0.0.1 {primary}\n",) if primary else ()
            plant.servers.append(GuardedReplica(config, settings=(*login, *follows)).start())
        for number in range(3):
            (tmp_path / f"sentinel-{number}").mkdir()
            lines = (
                f"sentinel auth-user {NAME} sentinel",
                f"sentinel auth-pass {NAME} {PASSWORDS['sentinel']}",
                "sentinel sentinel-user sentinel",
                f"sentinel sentinel-pass {PASSWORDS['sentinel']}",
                f'aclfile "{tmp_path / "sentinel.acl"}"',
            )
            sentinel = Sentinel(free_port(), tmp_path / f"sentinel-{number}", extra=lines)
            plant.sentinels.append(sentinel.start(plant.servers[0].config.port))
        yield plant


def url_of(plant: Replicated, user: str) -> str:
    return plant.url.replace("://", f"://{user}:{PASSWORDS[user]}@")


@pytest.mark.slow
@pytest.mark.faults
def test_with_their_passwords_roles_follow_a_fail_over_and_nobody_steers_a_sentinel(plant):
    with connect(url_of(plant, "workers"), socket_timeout=2.0, retry=None) as control:
        until(lambda: control.set("weir:kept", "1"))
        first = control.connection_pool.get_master_address()
        asked = redis.Redis(port=plant.sentinels[0].port, username="workers", password=PASSWORDS["workers"])
        until(lambda: asked.sentinel_master(NAME)["num-other-sentinels"] == 2)
        until(lambda: asked.sentinel_master(NAME)["num-slaves"] == 2)
        for forbidden in (asked.sentinel_failover, asked.sentinel_remove):
            with pytest.raises(redis.exceptions.NoPermissionError):
                forbidden(NAME)
        next(each for each in plant.servers if each.config.port == first[1]).kill()
        assert until(lambda: control.get("weir:kept")) == b"1"
        assert until(lambda: control.set("weir:kept", "2"))
    for user in ("web", "observer", "agent", "telemetry", "pipeline"):
        with connect(url_of(plant, user), acknowledged=False, socket_timeout=2.0, retry=None) as control:
            assert control.get("weir:topology") is None


def test_without_their_passwords_there_are_no_such_users():
    roles = {get_user_variable(role.name): PASSWORDS[role.name] for role in ROLES}
    made = build_acl_files(roles)
    assert set(made) == {"control.acl", "node.acl"}
    assert "replica" not in made["control.acl"] and "sentinel" not in made["control.acl"]
