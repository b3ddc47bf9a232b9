"""Files that others write, and delete, while they are counted: one that goes meanwhile is not there."""

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path


def bytes_in(folder: Path) -> int:
    """What the files of a folder take, and of those within it."""
    size_bytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size_bytes += Path(root, name).stat().st_size
    return size_bytes


def list_files_written_before(before: datetime, paths: Iterable[Path]) -> list[Path]:
    """Those of these files that were written last before a time."""
    found = []
    for path in paths:
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before.timestamp():
                found.append(path)
    return found
