"""The Spark cluster of docker-compose.yml, started here by the same commands."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from queues.errors import BadInput
from queues.server import free_port
from tests.waiting import until
from workers.pipeline.cluster import command

MODULE = [sys.executable, "-m", "workers.pipeline.cluster"]


def test_a_role_that_does_not_exist_is_named():
    with pytest.raises(BadInput, match="role: takes master or worker, not 'boss'"):
        command(["boss"])


@pytest.fixture
def started(tmp_path: Path) -> Iterator:
    processes = []

    def start(*arguments: str) -> subprocess.Popen:
        with (tmp_path / f"{arguments[0]}.log").open("w") as log:
            environment = {**os.environ, "WEIR_DATA": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
            process = subprocess.Popen(
                [*MODULE, *arguments], stdout=log, stderr=log, env=environment, start_new_session=True
            )
        processes.append(process)
        return process

    yield start
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def alive_workers(web_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=2) as answer:
            return json.load(answer)["aliveworkers"]
    except OSError:
        return 0


@pytest.mark.spark
def test_a_worker_joins_the_master(started):
    port, web_port = free_port(), free_port()
    started("master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web_port))
    worker = ["--host", "127.0.0.1", "--cores", "1", "--memory", "512m", "--webui-port", str(free_port())]
    started("worker", f"spark://127.0.0.1:{port}", *worker)
    until(lambda: alive_workers(web_port) == 1, 60)
