"""A worker whose threads are gone ends, and is started anew; one that has lost its broker comes back to it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from kombu.exceptions import OperationalError

from common.own_process import STUCK, STUCK_CHECKS
from console.celery import app
from queues.nodes.server import free_port
from tests.waiting import until
from workers.coordination.celery_worker import PAUSES_SECONDS, STOP_CHECKS, PoolFigures, PoolWatchdog

START_SECONDS = 60.0


# Its threads end as one does that finds no memory between two tasks: outside of any task.
THREADS_THAT_END = """
import pathlib
import threading
from celery.signals import worker_ready
from console.celery import app

@app.task(name="tests.begins")
def begins():
    pathlib.Path(__file__).with_suffix(".begun").touch()

def end(executor):
    both = threading.Barrier(2)
    for begun in [executor.submit(both.wait) for _ in range(2)]:
        begun.result()
    for _ in range(2):
        executor._work_queue.put("no work item")
    for thread in executor._threads:
        thread.join(10)

@app.task(name="tests.starts")
def starts():
    def no_memory(thread):
        raise MemoryError
    threading.Thread._bootstrap_inner = no_memory
    threading.Thread().start()

if {ends}:
    worker_ready.connect(lambda sender, **_: end(sender.pool.executor), weak=False)
"""


def ends_at(*figures: tuple[bool, int, int, int]) -> int | None:
    """The first check at which it has to end, of (runs, taken, at work, begun) with two threads."""
    given = iter([figures[0], *figures])

    def next_one() -> PoolFigures:
        runs, taken, at_work, begun = next(given)
        return PoolFigures(runs, 2, taken, at_work, begun)

    watchdog = PoolWatchdog(next_one)
    return next((at for at, _ in enumerate(figures, 1) if watchdog.detect_fault()), None)


@pytest.mark.parametrize(
    "figures",
    [
        [(True, 0, 0, 7)] * 60,  # nothing to do
        [(True, 9, 2, 7)] * 60,  # all threads are at work, for long
        [(True, 9, 1, 7), (True, 9, 1, 8)] * 30,  # tasks are begun
        [*[(True, 1, 0, 7)] * (STUCK_CHECKS - 1), (True, 0, 0, 7)] * 9,
        [(True, 1, 0, 7), *[(False, 1, 0, 7)] * STOP_CHECKS],  # it is being stopped
    ],
)
def test_a_worker_that_works_waits_or_ends_goes_on(figures):
    assert ends_at(*figures) is None


def test_a_worker_ends_when_tasks_wait_beside_a_free_thread_or_it_does_not_come_to_its_end():
    assert ends_at(*[(True, 1, 0, 7)] * 60) == STUCK_CHECKS
    assert ends_at(*[(True, 5, 1, 7)] * 60) == STUCK_CHECKS, "one of two threads is gone"
    assert ends_at((True, 1, 0, 7), *[(False, 1, 0, 7)] * 60) == STOP_CHECKS + 2


@contextmanager
def worker_of(url: str, data: Path, pool: str, slots: int, ends: bool = False) -> Iterator[subprocess.Popen]:
    """A worker of the real application, and of the tasks above."""
    (data / "ending.py").write_text(THREADS_THAT_END.replace("{ends}", str(ends)))
    command = [sys.executable, "-m", "celery", "-A", "console.celery", "worker", "-I", "ending"]
    options = ["-Q", "control", "--pool", pool, "-c", str(slots), "--without-gossip", "--without-mingle"]
    environment = {**os.environ, "REDIS_URL": url, "WEIR_DATA": str(data), "PYTHONPATH": str(data)}
    with (data / "log").open("wb") as log:
        worker = subprocess.Popen([*command, *options], env=environment, stdout=log, stderr=log)
        try:
            yield worker
        finally:
            stop_family(worker)


def stop_family(worker: subprocess.Popen) -> None:
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(worker.pid).children(recursive=True):
            each.kill()
    worker.kill()
    worker.wait()


def send(url: str, *tasks: str) -> None:
    with app.connection_for_write(url) as connection:
        for task in tasks:
            app.send_task(task, queue="control", connection=connection)


@pytest.mark.parametrize(
    ("ends", "task", "why"),
    [
        (True, "tests.begins", "threads free, 1 unfinished tasks) and exits so that it is restarted"),
        (False, "tests.starts", "waits for a thread that never starts and exits so that it is restarted"),
    ],
)
def test_a_worker_of_threads_ends_once_they_are_stuck(control_server, tmp_path, ends, task, why):
    with worker_of(control_server.url, tmp_path, "threads", 2, ends) as worker:
        send(control_server.url, task)
        assert worker.wait(START_SECONDS) == STUCK
    assert why in (tmp_path / "log").read_text()
    assert not (tmp_path / "ending.begun").exists()


def test_a_process_of_a_pool_ends_where_a_thread_does_not_start_and_another_takes_its_place(control_server, tmp_path):
    with worker_of(control_server.url, tmp_path, "prefork", 1) as worker:
        send(control_server.url, "tests.starts", "tests.begins")
        until((tmp_path / "ending.begun").exists, START_SECONDS)
        assert worker.poll() is None
    assert "waits for a thread that never starts and exits so that it is restarted" in (tmp_path / "log").read_text()


def test_a_broker_that_is_away_is_tried_again_each_second_at_most_and_for_ever():
    pauses: list[float] = []

    def failed(_error, pause_seconds):
        pauses.append(round(pause_seconds, 3))

    away = app.connection_for_read(f"redis://127.0.0.1:{free_port()}/0")
    with away as connection, pytest.raises(OperationalError):
        connection.ensure_connection(failed, 2)
    assert pauses == [0.2, 0.4]
    assert PAUSES_SECONDS["interval_max"] == 1.0 and app.conf.broker_connection_max_retries is None
