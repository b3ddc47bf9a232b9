"""What a plant that ended badly left running: found by its data folder, and ended before another begins.

Two servers that write the same files would spoil them.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from queues import environment as variables
from queues.nodes.server import NAMES

STOP_SECONDS = 15.0  # that the plant has, and then the servers it writes to, before they are killed
_STARTED_BY_A_SUPERVISOR = "SUPERVISOR_ENABLED"  # it says so in the environment of all that it starts


def end_leftovers(data: Path) -> int:
    """Ends every process of the folder's plant, its supervisor first: it would start the others again. The
    servers are asked last, so that they keep what the others still write. Returns how many there were.
    """
    supervisors, left = _supervisors(data), _left_over(data)
    for supervisor in supervisors:
        with suppress(psutil.NoSuchProcess):
            supervisor.kill()
    psutil.wait_procs(supervisors, timeout=STOP_SECONDS)
    left += [process for process in _left_over(data) if process not in left]
    servers = [process for process in left if _name(process) in NAMES]
    _end([process for process in left if process not in servers])
    _end(servers)
    return len(supervisors) + len(left)


def _supervisors(data: Path) -> list[psutil.Process]:
    configuration = str(data / "supervisor.conf")
    return [
        each for each in psutil.process_iter(["cmdline"]) if configuration in (each.info["cmdline"] or ())
    ]


def _left_over(data: Path) -> list[psutil.Process]:
    """What a supervisor of this folder started, and what that started."""
    found = [each for each in psutil.process_iter(["environ"]) if _is_of(each.info["environ"] or {}, data)]
    for process in list(found):
        with suppress(psutil.Error):
            found += [child for child in process.children(recursive=True) if child not in found]
    return [each for each in found if each.pid != os.getpid()]


def _is_of(started_with: dict[str, str], data: Path) -> bool:
    return started_with.get(variables.DATA.name) == str(data) and _STARTED_BY_A_SUPERVISOR in started_with


def _end(processes: list[psutil.Process]) -> None:
    """Asked to end, then killed; one that was frozen goes on, to end."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
    for process in psutil.wait_procs(processes, timeout=STOP_SECONDS)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + STOP_SECONDS
    while any(map(_lives, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""
