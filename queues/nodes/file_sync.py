"""Puts the append-only files of servers on the disk each second.

A server that does so itself (`appendfsync everysec`) puts off writing while it waits for the disk, up to two
seconds: what it has acknowledged then is in its own memory, and gone when it is killed. With `appendfsync no`
it writes before it answers, always, so a killed server loses nothing; and as this process waits for the disk,
a host that loses its power loses a second, as before.
"""

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

EVERY_SECONDS = 1.0
FILES = "appendonlydir/*.aof"


class FileSync:
    """The servers' folders, and whether the disk took them the last time."""

    def __init__(self, folders: Iterable[Path], say: Callable[[str], None]) -> None:
        """`say`: takes a sentence when the disk begins to refuse a server's file, and when that is over."""
        self._folders = list(folders)
        self._say = say
        self._refused: set[Path] = set()

    def sync(self) -> None:
        """Return when all files that there are now are on the disk."""
        for folder in self._folders:
            try:
                for path in folder.glob(FILES):
                    put_on_disk(path)
            except OSError as error:
                if folder not in self._refused:
                    self._say(
                        f"The disk does not take the file of {folder.name} ({error.strerror}): what it "
                        "acknowledges now is lost if the host loses its power. See to the disk."
                    )
                self._refused.add(folder)
            else:
                if folder in self._refused:
                    self._say(f"The disk takes the file of {folder.name} again.")
                self._refused.discard(folder)

    def begin(self) -> None:
        """Do so each second, in a thread of its own, until the process ends."""
        threading.Thread(target=self._run, daemon=True, name="file-sync").start()

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(EVERY_SECONDS):
            self.sync()


def put_on_disk(path: Path) -> None:
    """Return when what was written to the file is on the disk. Raises OSError."""
    try:
        opened = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return  # the server has replaced it by a shorter one, which it put on the disk itself
    try:
        os.fdatasync(opened)
    finally:
        os.close(opened)
