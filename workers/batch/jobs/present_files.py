"""Files that other processes may delete while they are counted; a missing file is ignored."""

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path


def sum_folder_bytes(folder: Path) -> int:
    """Return the total size of a folder's files, including subfolders."""
    size_bytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size_bytes += Path(root, name).stat().st_size
    return size_bytes


def list_files_written_before(before: datetime, paths: Iterable[Path]) -> list[Path]:
    """List those of these files that were last written before a time."""
    old_paths = []
    for path in paths:
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before.timestamp():
                old_paths.append(path)
    return old_paths
