"""Syncs the append-only files of servers to the disk every second.

A server that does so itself (`appendfsync everysec`) delays writing while it waits for the disk, for up to two seconds.
What it has acknowledged by then is in its own memory, and lost when it is killed. With `appendfsync no` it always
writes before it answers, so a killed server loses nothing. As this process waits for the disk, a host that loses power
loses one second, as before.
"""

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

EVERY_SECONDS = 1.0
FILES = "appendonlydir/*.aof"


class FileSync:
    """The servers' folders, and whether the last sync succeeded."""

    def __init__(self, folders: Iterable[Path], say: Callable[[str], None]) -> None:
        """Prepare to sync the folders.

        `say`: called with a sentence when the disk starts to reject a server's file, and when that ends.
        """
        self._folders = list(folders)
        self._say = say
        self._refused: set[Path] = set()

    def sync(self) -> None:
        """Return when all present files are on the disk."""
        for folder in self._folders:
            try:
                for path in folder.glob(FILES):
                    put_on_disk(path)
            except OSError as error:
                if folder not in self._refused:
                    self._say(
                        f"Can't sync the file of {folder.name} to disk ({error.strerror}): writes that "
                        "are acknowledged now are lost if the host loses power. Check the disk."
                    )
                self._refused.add(folder)
            else:
                if folder in self._refused:
                    self._say(f"The file of {folder.name} is synced to disk again.")
                self._refused.discard(folder)

    def begin(self) -> None:
        """Sync every second, in a thread, until the process ends."""
        threading.Thread(target=self._run, daemon=True, name="file-sync").start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(EVERY_SECONDS):
            self.sync()


def put_on_disk(path: Path) -> None:
    """Return when what was written to the file is on the disk. Raises `OSError`."""
    try:
        opened = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return  # the server has replaced it by a shorter one, which it synced itself
    try:
        os.fdatasync(opened)
    finally:
        os.close(opened)
