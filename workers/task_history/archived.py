"""Archived blocks: files of the data folder, and how they are read.

`tasks/plant=shop/day=2026-11-20/17-80.parquet` has the blocks of these numbers, a row group each; the file of the same
name with `.filters` has their filters, one after the other.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as parquet
from django.conf import settings

from common.files import resolve_inside_folder
from workers.task_history.terms import LINE_BYTES, TermPlace

ROOT = "tasks"
FILTERS = ".filters"
UNREAD = b"\xff" * LINE_BYTES  # in place of a line that can't be read: its block may have every term
MAX_OPEN = 32


def get_root() -> Path:
    return Path(settings.WEIR_DATA) / ROOT


def resolve_file(name: str) -> Path:
    """Return the path of a file of the archive. Raises Forbidden if it leads out of its folder."""
    return resolve_inside_folder(get_root(), name, "file")


def open_file(file: str) -> parquet.ParquetFile:
    """Return a file of the archive to read from. Raises OSError, pa.ArrowException."""
    return parquet.ParquetFile(resolve_file(file))


def read_row_group(file: str, row_group: int) -> pa.Table:
    """Return an archived block. Raises OSError, pa.ArrowException."""
    with open_file(file) as opened:
        return opened.read_row_group(row_group, use_threads=False)


class FilterReader:
    """Reads lines of archived filters; each file is opened once."""

    def __init__(self) -> None:
        self._opened: dict[str, int | None] = {}

    def read_lines(self, file: str, start: int, lines: int, places: Sequence[TermPlace]) -> list[bytes]:
        """Return the line of each place; a line with all bits if the file can't be read: then its block is read."""
        number = self._open(file) if places else None
        if number is None:
            return [UNREAD for _ in places]
        read = [os.pread(number, LINE_BYTES, start + place.line % lines * LINE_BYTES) for place in places]
        return [line if len(line) == LINE_BYTES else UNREAD for line in read]

    def _open(self, file: str) -> int | None:
        if file not in self._opened:
            if len(self._opened) >= MAX_OPEN:
                self._close()
            try:
                path = resolve_file(file).with_suffix(FILTERS)
                self._opened[file] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._opened[file] = None
        return self._opened[file]

    def __enter__(self) -> "FilterReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for number in self._opened.values():
            if number is not None:
                os.close(number)
        self._opened.clear()
