"""Remaining processes of a plant that was killed: found by its data folder, and ended before another starts.

Two servers that write the same files would corrupt them.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from common import environment as variables
from queues.nodes.server import NAMES

STOP_SECONDS = 15.0  # for the plant, and then for the servers it writes to, before they are killed
STARTED_BY_A_SUPERVISOR = "SUPERVISOR_ENABLED"  # set in the environment of every process that a supervisor starts
_PIPELINE = "workers.pipeline.runtime.application"


def end_leftovers(data: Path) -> int:
    """End every process of the folder's plant; return their number.

    The supervisor is ended first, as it would restart the others; the servers last, so that they store what the others
    still write.
    """
    supervisors, left = _find_supervisors(data), _find_leftovers(data)
    for supervisor in supervisors:
        with suppress(psutil.NoSuchProcess):
            supervisor.kill()
    psutil.wait_procs(supervisors, timeout=STOP_SECONDS)
    left += [process for process in _find_leftovers(data) if process not in left]
    servers = [process for process in left if _get_process_name(process) in NAMES]
    _end([process for process in left if process not in servers])
    _end(servers)
    return len(supervisors) + len(left)


def _find_supervisors(data: Path) -> list[psutil.Process]:
    configuration = str(data / "supervisor.conf")
    return [process for process in psutil.process_iter(["cmdline"]) if configuration in (process.info["cmdline"] or ())]


def _find_leftovers(data: Path) -> list[psutil.Process]:
    """Return the processes that a supervisor of this folder started, and their children."""
    seen = psutil.process_iter(["environ", "cmdline", "cwd", "name"])
    leftovers = [process for process in seen if _is_of_plant(process.info, data)]
    for process in list(leftovers):
        with suppress(psutil.Error):
            leftovers += [child for child in process.children(recursive=True) if child not in leftovers]
    # A supervisor that forks programs has the same environment as its forks.
    passed_over = {os.getpid(), *(supervisor.pid for supervisor in _find_supervisors(data))}
    return [leftover for leftover in leftovers if leftover.pid not in passed_over]


def _is_of_plant(seen: dict[str, Any], data: Path) -> bool:
    """Return whether the process was supervised, or is a server.

    The pipeline runs with less of its original environment. Servers overwrite their environment with a title, and run
    in their files' folder.
    """
    if seen["name"] in NAMES and Path(seen["cwd"] or "/").is_relative_to(data / "servers"):
        return True
    started_with = seen["environ"] or {}
    was_supervised = STARTED_BY_A_SUPERVISOR in started_with or _PIPELINE in (seen["cmdline"] or ())
    return started_with.get(variables.DATA.name) == str(data) and was_supervised


def _end(processes: list[psutil.Process]) -> None:
    """End processes, then kill them; a frozen one is resumed so that it can end."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
    for process in psutil.wait_procs(processes, timeout=STOP_SECONDS)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + STOP_SECONDS
    while any(map(_is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _get_process_name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""
