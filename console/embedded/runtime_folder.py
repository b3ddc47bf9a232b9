"""The folder of a launcher's control socket, in /tmp/weir-….

The path of a Unix socket is short (108 bytes) and a data folder's may not be. A launcher that is killed removes
nothing, so the next one removes its folder. /tmp is writable for everybody: only a folder that belongs to this user and
is closed to all others is taken for a launcher's, links are not followed, and only a launcher's own files are removed.
"""

import fcntl
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX, LOCK, SOCKET = "weir-", "lock", "supervisor.sock"
NAME = re.compile(rf"{PREFIX}[a-z0-9_]{{8}}")
# supervisord creates its socket under the second name, and then renames it to the first.
OWN = re.compile(rf"{LOCK}|{re.escape(SOCKET)}(\.\d+)?")
# A launcher of an earlier version has no lock. It is dead if nobody listens, after the time of a start.
STARTING_SECONDS = 3_600.0
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
    if LOCK in names:
        return not _is_locked(folder)
    return abs(time.time() - seen.st_mtime) > STARTING_SECONDS


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
