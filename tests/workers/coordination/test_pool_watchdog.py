"""A worker whose threads are gone ends, and is started anew; one that only has much to do goes on."""

import os
import subprocess
import sys

import pytest

from console.celery import app
from tests.waiting import until
from workers.coordination.pool_watchdog import STOP_CHECKS, STUCK, UNBEGUN_CHECKS, PoolFigures, PoolWatchdog

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
    return next((at for at, _ in enumerate(figures, 1) if watchdog.finding()), None)


@pytest.mark.parametrize(
    "figures",
    [
        [(True, 0, 0, 7)] * 60,  # nothing to do
        [(True, 9, 2, 7)] * 60,  # all threads are at work, for long
        [(True, 9, 1, 7), (True, 9, 1, 8)] * 30,  # tasks are begun
        [*[(True, 1, 0, 7)] * (UNBEGUN_CHECKS - 1), (True, 0, 0, 7)] * 9,
        [(True, 1, 0, 7), *[(False, 1, 0, 7)] * STOP_CHECKS],  # it is being stopped
    ],
)
def test_a_worker_that_works_waits_or_ends_goes_on(figures):
    assert ends_at(*figures) is None


def test_a_worker_ends_when_tasks_wait_beside_a_free_thread_or_it_does_not_come_to_its_end():
    assert ends_at(*[(True, 1, 0, 7)] * 60) == UNBEGUN_CHECKS
    assert ends_at(*[(True, 5, 1, 7)] * 60) == UNBEGUN_CHECKS, "one of two threads is gone"
    assert ends_at((True, 1, 0, 7), *[(False, 1, 0, 7)] * 60) == STOP_CHECKS + 2


def test_a_worker_ends_when_a_thread_does_not_start_however_many_others_do():
    stuck = [PoolFigures(True, 2, 2, 2, at, frozenset({1, 100 + at})) for at in range(UNBEGUN_CHECKS)]
    given = iter([PoolFigures(True, 2, 0, 0, 0), *stuck])
    watchdog = PoolWatchdog(lambda: next(given))
    assert [watchdog.finding() is not None for _ in stuck] == [False] * (UNBEGUN_CHECKS - 1) + [True]


@pytest.mark.parametrize(
    ("ends", "task", "why"),
    [
        (True, "tests.begins", "threads free and 1 tasks taken; it ends"),
        (False, "tests.starts", "waits for a thread that never begins; it ends"),
        (False, "tests.begins", None),
    ],
)
def test_the_control_worker_ends_once_its_threads_are_stuck_and_not_before(
    control_server, tmp_path, ends, task, why
):
    (tmp_path / "ending.py").write_text(THREADS_THAT_END.replace("{ends}", str(ends)))
    begun = tmp_path / "ending.begun"
    command = [sys.executable, "-m", "celery", "-A", "console.celery", "worker", "-I", "ending"]
    log = (tmp_path / "log").open("wb")
    worker = subprocess.Popen(
        [*command, "-Q", "control", "--pool", "threads", "-c", "2", "--without-gossip", "--without-mingle"],
        env={
            **os.environ,
            "REDIS_URL": control_server.url,
            "WEIR_DATA": str(tmp_path),
            "PYTHONPATH": str(tmp_path),
        },
        stdout=log,
        stderr=log,
    )
    try:
        with app.connection_for_write(control_server.url) as connection:
            app.send_task(task, queue="control", connection=connection)
            if why:
                assert worker.wait(START_SECONDS) == STUCK
                assert why in (tmp_path / "log").read_text()
            else:
                until(begun.exists, START_SECONDS)
        assert begun.exists() is (why is None)
    finally:
        worker.kill()
        worker.wait()
        log.close()
