"""The Spark cluster of docker-compose.yml, started here by the same commands."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from common.errors import BadInput
from queues.nodes.server import free_port
from tests.waiting import until
from workers.pipeline.runtime.cluster import build_command, build_environment

MODULE = [sys.executable, "-m", "workers.pipeline.runtime.cluster"]


def test_a_role_that_does_not_exist_is_named():
    with pytest.raises(BadInput, match="role: must be master or worker, not 'boss'"):
        build_command(["boss"])


def test_what_a_worker_keeps_of_applications_that_ended_and_of_what_executors_say_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIR_SPARK_SECRET", "s" * 32)
    options = build_environment(tmp_path)["SPARK_WORKER_OPTS"].split()
    assert "-Dspark.worker.cleanup.enabled=true" in options
    assert any(re.fullmatch(r"-Dspark\.worker\.cleanup\.appDataTtl=\d+", each) for each in options)
    assert "-Dspark.executor.logs.rolling.strategy=size" in options


@pytest.fixture
def started(tmp_path):
    processes = []

    def start(*arguments: str, secret: str = "s" * 32) -> subprocess.Popen:
        with (tmp_path / f"{arguments[0]}.log").open("w") as log:
            folder = tmp_path / arguments[0]
            environment = {**os.environ, "WEIR_DATA": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
            environment["WEIR_SPARK_SECRET"] = secret
            process = subprocess.Popen(
                [*MODULE, *arguments], stdout=log, stderr=log, env=environment, start_new_session=True
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def alive_workers(web_port: int) -> int | None:
    """None while the master's page does not answer, or not with JSON: it is just starting."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=2) as answer:
            return json.load(answer)["aliveworkers"]
    except (OSError, ValueError):
        return None


@pytest.mark.slow
@pytest.mark.spark
def test_a_worker_joins_the_master(started):
    port, web_port = free_port(), free_port()
    started("master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "512m", "--webui-port", str(free_port())]
    started("worker", f"spark://127.0.0.1:{port}", *worker)
    until(lambda: alive_workers(web_port) == 1)


@pytest.mark.slow
@pytest.mark.spark
def test_a_worker_with_another_secret_is_refused_and_no_secret_is_on_a_command_line(started, tmp_path):
    port, web_port = free_port(), free_port()
    master = started("master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    until(lambda: alive_workers(web_port) is not None and listens(port))
    worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "512m", "--webui-port", str(free_port())]
    stranger = started("worker", f"spark://127.0.0.1:{port}", *worker, secret="another secret".replace(" ", "-") * 3)
    until(lambda: "Failed to connect to master" in (tmp_path / "worker.log").read_text())
    assert alive_workers(web_port) == 0
    for process in (master, stranger):
        line = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert "ssss" not in line and "another-secret" not in line


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
