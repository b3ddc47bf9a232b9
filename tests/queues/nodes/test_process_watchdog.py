"""A process whose threads can't start ends; one that starts many goes on."""

import subprocess
import sys

from common.own_process import STUCK, STUCK_CHECKS, StartWatchdog
from tests.waiting import MAX_SECONDS

A_THREAD_THAT_NEVER_BEGINS = """
import threading
from common import own_process

def no_memory(thread):
    raise MemoryError

own_process.CHECK_SECONDS = 0.01
own_process.watch()
threading.Thread._bootstrap_inner = no_memory
threading.Thread().start()
"""


def test_a_process_ends_when_a_thread_does_not_start_however_many_others_do():
    given = iter([[1, 100 + at] for at in range(STUCK_CHECKS)])
    watchdog = StartWatchdog(lambda: iter(next(given)))
    found = [watchdog.detect_fault() is not None for _ in range(STUCK_CHECKS)]
    assert found == [False] * (STUCK_CHECKS - 1) + [True]


def test_a_process_that_starts_a_thread_at_every_check_goes_on():
    watchdog = StartWatchdog(lambda: iter([object()]))
    assert all(watchdog.detect_fault() is None for _ in range(10 * STUCK_CHECKS))


def test_a_process_that_waits_for_a_thread_without_memory_ends_by_itself():
    command = [sys.executable, "-c", A_THREAD_THAT_NEVER_BEGINS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS)
    assert ended.returncode == STUCK
    assert "waits for a thread that never starts and exits so that it is restarted" in ended.stderr
