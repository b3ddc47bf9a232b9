"""Every process of a plant ends where a thread finds no memory to start with, and is started anew then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from common.own_process import STUCK
from console import release
from console.embedded.processes import Process, list_plant_processes
from queues.nodes.server import free_port

pytestmark = pytest.mark.slow
ENDS_SECONDS = 120.0
# The next thread behind the watchdog's ends as one that finds no memory, and whoever starts it waits.
NO_MEMORY_FOR_THE_NEXT = """
import threading

start, begin = threading.Thread.start, threading.Thread._bootstrap_inner

def no_memory(thread):
    raise MemoryError

def start_one_more(thread):
    start(thread)
    if thread.name == "process watchdog":
        threading.Thread._bootstrap_inner = no_memory
        start(threading.Thread())

threading.Thread.start = start_one_more
"""
# Those of their pools are killed and seen to otherwise (tests/workers/coordination/test_pool_watchdog.py).
OF_CELERY = ("worker-jobs", "worker-spark")
WATCHED = [each for each in list_plant_processes(["n1"], 1, "127.0.0.1", free_port()) if each.name not in OF_CELERY]


@pytest.fixture
def surroundings(control_server, transactional_db, tmp_path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(NO_MEMORY_FOR_THE_NEXT)
    return {
        **os.environ,
        "REDIS_URL": control_server.url,
        "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "WEIR_DATA": str(tmp_path),
        "PYTHONPATH": str(tmp_path),
    }


def begun(process: Process, surroundings: dict[str, str], log: Path) -> subprocess.Popen:
    program, *rest = process.command
    command = [str(Path(sys.executable).with_name(program)), *rest]
    with log.open("wb") as stream:
        return subprocess.Popen(command, cwd=release.ROOT, env=surroundings, stdout=stream, stderr=stream)


@pytest.mark.parametrize("process", WATCHED, ids=lambda each: each.name)
def test_a_process_ends_that_waits_for_a_thread_without_memory(process, surroundings, tmp_path):
    log = tmp_path / "log"
    started = begun(process, surroundings, log)
    try:
        assert started.wait(ENDS_SECONDS) == STUCK, log.read_text()
    finally:
        started.kill()
        started.wait()
    assert "waits for a thread that never starts; it ends" in log.read_text()
