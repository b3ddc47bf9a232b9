"""What a killed launcher left: processes and the folder of its control socket. Both go before another plant starts.

**Processes** are found by the data folder. Two servers that write the same files would corrupt them.

**The folder**, /tmp/weir-…, exists because the path of a Unix socket is short (108 bytes) and a data folder's may not
be. /tmp is writable for everybody: only a folder that belongs to this user and is closed to all others is taken for a
launcher's, links are not followed, and only a launcher's own files are removed.
"""

import fcntl
import os
import re
import shutil
import signal
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from common import environment as variables
from queues.nodes.server import NAMES

STOP_SECONDS = 15.0  # for the plant, and then for the servers it writes to, before they are killed
_STARTED_BY_A_SUPERVISOR = "SUPERVISOR_ENABLED"  # set in the environment of all that it starts
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
    return [leftover for leftover in leftovers if leftover.pid != os.getpid()]


def _is_of_plant(seen: dict[str, Any], data: Path) -> bool:
    """Return whether the process was supervised, or is a server.

    The pipeline runs with less of its original environment. Servers overwrite their environment with a title, and run
    in their files' folder.
    """
    if seen["name"] in NAMES and Path(seen["cwd"] or "/").is_relative_to(data / "servers"):
        return True
    started_with = seen["environ"] or {}
    was_supervised = _STARTED_BY_A_SUPERVISOR in started_with or _PIPELINE in (seen["cmdline"] or ())
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


PREFIX, LOCK, SOCKET = "weir-", "lock", "supervisor.sock"
NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
# supervisord creates its socket under the second name, and then renames it to the first.
OWN = re.compile(rf"{LOCK}|{re.escape(SOCKET)}(\.\d+)?")
ANSWER_SECONDS = 1.0


class RuntimeFolder:
    """A folder that is locked while this process lives: the kernel releases the lock however it ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.socket = self.path / SOCKET
        # It gets its name once it is locked: nobody sees it unlocked.
        new = self.path / f"{LOCK}.new"
        self._lock = new.open("x")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / LOCK)

    def remove(self) -> None:
        """Remove it with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def remove_of_dead_launchers() -> int:
    """Remove the folders of dead launchers; return their number."""
    with os.scandir(tempfile.gettempdir()) as entries:
        named = [entry.path for entry in entries if NAME.fullmatch(entry.name)]
    return sum(map(_remove_folder, named))


def _remove_folder(path: str) -> bool:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone, a link, or another user's
        return False
    try:
        if not _is_of_a_dead_launcher(folder):
            return False
        for name in _list_entry_names(folder):
            os.unlink(name, dir_fd=folder)
        Path(path).rmdir()
    except OSError:  # another start removes it, too
        return False
    finally:
        os.close(folder)
    return True


def _list_entry_names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _is_of_a_dead_launcher(folder: int) -> bool:
    """Return whether the folder is of a dead launcher. Raises `OSError`."""
    seen, names = os.fstat(folder), _list_entry_names(folder)
    is_closed = seen.st_uid == os.geteuid() and not stat.S_IMODE(seen.st_mode) & 0o077
    if not is_closed or not all(map(OWN.fullmatch, names)) or _has_listener(folder):
        return False
    return LOCK in names and not _is_locked(folder)


def _is_locked(folder: int) -> bool:
    lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True
    finally:
        os.close(lock)


def _has_listener(folder: int) -> bool:
    """Return whether a process listens at the socket.

    The socket is opened relative to the folder: a path could have changed.
    """
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    asked.settimeout(ANSWER_SECONDS)
    with asked:
        try:
            asked.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # it is overloaded, or this is not Linux: unknown
            return True
        return True
