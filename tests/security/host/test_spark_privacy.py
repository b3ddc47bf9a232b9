"""Spark's callbacks into Python admit this user's processes only, and its secret stands in a private file."""

import os
import shutil
import socket
import subprocess
import sys

import pytest
from py4j.java_gateway import CallbackServer, CallbackServerParameters

from common.environment import SPARK_SECRET
from common.errors import BadInput
from tests.waiting import MAX_SECONDS
from workers.host.spark import ThisUserOnly, build_cluster_environment, build_private_settings, find_connection_owner

SPEAK = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
try:
    connection.sendall(b"c\\np0\\nstolen\\ne\\n")
    sys.stdout.write(connection.recv(100).decode())
except OSError:
    pass
"""
as_another_user = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("runuser"), reason="only root can become another user"
)


class Callback:
    """What Spark would call; here whoever gets in."""

    def __init__(self) -> None:
        self.calls = 0

    def stolen(self) -> str:
        self.calls += 1
        return "done"


class Pool(dict):
    def clear(self) -> None:
        """Py4J empties it when the server ends."""


@pytest.fixture
def callback():
    return Callback()


@pytest.fixture
def server(callback):
    """Py4J's callback server as Spark starts it, behind our guard."""
    parameters = CallbackServerParameters(
        port=0, daemonize=True, daemonize_connections=True, ssl_context=ThisUserOnly()
    )
    running = CallbackServer(Pool(p0=callback), None, callback_server_parameters=parameters)
    running.start()
    yield running
    running.shutdown()


def speak(server: CallbackServer, *become: str) -> str:
    command = [*become, "/usr/bin/python3" if become else sys.executable, "-c", SPEAK]
    port = str(server.get_listening_port())
    return subprocess.run([*command, port], capture_output=True, text=True, timeout=MAX_SECONDS, check=True).stdout


@as_another_user
def test_another_users_process_calls_nothing_back_and_ends_nothing(server, callback):
    assert speak(server, "runuser", "-u", "nobody", "--") == ""
    assert callback.calls == 0
    assert speak(server).startswith("!y"), "this user's own process is heard, then and after"
    assert callback.calls == 1


def test_the_owner_of_a_connection_is_who_opened_it():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.connect(listening.getsockname())
        with listening.accept()[0] as accepted:
            assert find_connection_owner(accepted) == os.getuid()
    with socket.socket() as nowhere:
        assert find_connection_owner(nowhere) == -1


def test_a_cluster_takes_its_secret_from_a_private_file_and_no_command_line(tmp_path):
    secret = "s" * 32
    told = build_cluster_environment({SPARK_SECRET.name: secret}, tmp_path / "conf")
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    assert told == {"SPARK_CONF_DIR": str(defaults.parent)}
    assert f"spark.authenticate.secret {secret}\n" in defaults.read_text()
    assert "spark.authenticate true\n" in defaults.read_text()
    assert defaults.stat().st_mode & 0o077 == 0
    assert not any(secret in value for value in build_private_settings("local[2]", tmp_path).values())


@pytest.mark.parametrize("secret", ["", "short", "s" * 31, "s" * 40 + "\nspark.ui.enabled true", "s" * 40 + " x"])
def test_a_cluster_without_a_proper_secret_does_not_start(tmp_path, secret):
    with pytest.raises(BadInput, match="WEIR_SPARK_SECRET: must have 32 or more") as refused:
        build_cluster_environment({SPARK_SECRET.name: secret}, tmp_path)
    assert not secret or secret not in str(refused.value)
    assert not list(tmp_path.iterdir())
