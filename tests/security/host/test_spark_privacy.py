"""Spark's callbacks admit this user's processes only, and keys are given only to the processes that use them."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.java_gateway import CallbackServer, CallbackServerParameters

from common.environment import SPARK_SECRET
from common.errors import BadInput
from tests.waiting import MAX_SECONDS, until
from workers.host.environment import select_needed
from workers.host.spark import ThisUserOnly, build_cluster_environment, build_private_settings, find_connection_owner
from workers.pipeline.runtime.cluster import build_environment

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


KEYS = ("WEIR_SECRET_KEY", "DATABASE_URL", "WEIR_WEBHOOK_SECRET", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def keys(monkeypatch):
    for name in KEYS:
        monkeypatch.setenv(name, "hunter2")


def test_only_what_a_process_needs_is_passed_on(keys):
    assert "hunter2" not in select_needed(os.environ).values()
    assert select_needed({"PATH": "a", "SPARK_MASTER": "b", "LC_ALL": "c", "REDIS_URL": "d", "X": "e"}) == {
        "PATH": "a",
        "SPARK_MASTER": "b",
        "LC_ALL": "c",
    }


def test_a_cluster_of_ours_knows_no_key(keys, tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_SPARK_SECRET", "s" * 32)
    assert "hunter2" not in build_environment(tmp_path).values()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_sparks_java_and_its_python_workers_know_no_key_and_reach_no_file_by_text(keys, tmp_path):
    from pyspark.errors import AnalysisException, PySparkException

    from workers.pipeline.runtime.session import start_session

    spark = start_session("environment", "local[1]", tmp_path)
    try:
        assert os.environ["WEIR_SECRET_KEY"] == "hunter2"  # this process keeps its own
        java = dict(spark._jvm.System.getenv())
        (python,) = spark.sparkContext.parallelize([0], 1).map(lambda _: dict(os.environ)).collect()
        for name in KEYS:
            assert name not in java
            assert name not in python
        for text in (
            "select reflect('java.lang.System', 'getenv', 'PATH')",
            "select java_method('java.lang.System', 'getenv', 'PATH')",
            "select try_reflect('java.lang.System', 'getenv', 'PATH')",
            "select * from text.`/etc/passwd`",
            "select * from binaryFile.`/etc/passwd`",
        ):
            with pytest.raises((AnalysisException, PySparkException)):
                spark.sql(text).collect()
    finally:
        spark.stop()


def test_the_pipeline_goes_on_without_the_keys_it_was_started_with(keys, tmp_path):
    """Also in /proc, where all that it starts could read them. It waits for a declaration meanwhile."""
    os.mkfifo(tmp_path / "declaration.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.pipeline.runtime.application", "--application", tmp_path / "declaration.yaml"],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "REDIS_URL": "redis://127.0.0.1:1/0"},
    )
    try:
        listed = Path(f"/proc/{process.pid}/environ")
        until(lambda: b"REDIS_URL" in listed.read_bytes() and b"hunter2" not in listed.read_bytes(), 120)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
