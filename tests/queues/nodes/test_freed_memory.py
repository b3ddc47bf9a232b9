"""What a process has freed goes back to the system, once a minute."""

import subprocess
import sys

import pytest

from common.own_process import SECONDS, FreedMemory

HELD = """
import psutil, sys
from common import own_process
def bytes_held(): return psutil.Process().memory_info().rss
before = bytes_held()
several = [bytes(2_000) for _ in range(50_000)]
peak = bytes_held()
several = several[::100]  # what stays lies between what goes
own_process._give_back()
print(before, peak, bytes_held())
"""


def test_it_is_given_back_once_a_minute_however_often_one_asks():
    now, trims = [0.0], []
    memory = FreedMemory(lambda: now[0], lambda: trims.append(now[0]))
    for second in range(181):
        now[0] = float(second)
        memory.give_back()
    assert trims == [SECONDS, 2 * SECONDS, 3 * SECONDS]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_what_lies_between_what_is_still_in_use_goes_back_too():
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=True)
    before, peak, after = map(int, done.stdout.split())
    assert peak - before > 80e6
    assert after - before < 0.3 * (peak - before)
