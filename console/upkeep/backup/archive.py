"""The file of a backup: a ZIP of tables, keys, and files, and at its end the manifest of its contents.

Without a manifest it is incomplete, and rejected: a ZIP has its index at the end, too.
"""

import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from common.errors import BadInput
from common.files import split_relative_name

FORMAT = 1
MANIFEST = "manifest.json"
HALF = "is not a complete backup: {why}. Create another backup."
# Errors when a damaged ZIP is read, depending on which bytes are damaged.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
)
MIN_CHANGED_AT, MAX_CHANGED_AT = 0, 7_258_118_400  # seconds, 1970 to 2199
LEVEL = 3  # most of the content is compressed already


class Writer:
    """Writes members one after the other."""

    def __init__(self, target: zipfile.ZipFile) -> None:
        self._target = target
        self.members: dict[str, int] = {}

    def write_lines(self, name: str, lines: Iterable[bytes]) -> int:
        """Write a member of lines; return their number."""
        count = 0
        with self._target.open(name, "w", force_zip64=True) as member:
            for line in lines:
                member.write(line + b"\n")
                count += 1
        self.members[name] = count
        return count

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write a member of bytes; return their number."""
        with self._target.open(name, "w", force_zip64=True) as member:
            size = sum(member.write(piece) for piece in pieces)
        self.members[name] = size
        return size


def build_partial_path(path: Path) -> Path:
    """Return where a backup is written until it is complete."""
    return path.with_name(f"{path.name}.part")


def check_free(path: Path) -> None:
    """Raise `BadInput` if no backup can be written to this path."""
    if path.exists():
        raise BadInput("FILE", f"{path} already exists. Choose another name.")
    if not path.parent.is_dir():
        raise BadInput("FILE", f"{path.parent} is not a folder. Create it first.")


def create_file(part: Path) -> int:
    """Create a file for its owner alone, and open it for writing.

    In a folder that others write to, an existing file may be theirs, or a link. Raises `OSError`.
    """
    part.unlink(missing_ok=True)  # of an attempt that was killed
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


@contextmanager
def write_backup(path: Path, manifest: dict[str, Any]) -> Iterator[Writer]:
    """Write a backup to this path once the block ends successfully.

    The file is for its owner alone. If the block fails, nothing remains. Changes of the manifest within the block are
    included. Raises `BadInput`.
    """
    check_free(path)
    part = build_partial_path(path)
    opened = create_file(part)
    try:
        with os.fdopen(opened, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as target:
                writer = Writer(target)
                yield writer
                whole = {"format": FORMAT, **manifest, "members": writer.members}
                target.writestr(MANIFEST, orjson.dumps(whole))
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)


class Backup:
    """A readable backup: complete, and of a known format."""

    def __init__(self, path: Path, source: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
        self.path, self._source, self.manifest = path, source, manifest

    def read_lines(self, name: str) -> Iterator[bytes]:
        with self._source.open(name) as member:
            for line in member:
                yield line.rstrip(b"\n")

    def read_pieces(self, name: str) -> Iterator[bytes]:
        with self._source.open(name) as member:
            while piece := member.read(2**20):
                yield piece

    def list_members(self, folder: str) -> list[str]:
        """Return the members below a folder, without it."""
        start = f"{folder}/"
        return [name.removeprefix(start) for name in self.manifest["members"] if name.startswith(start)]


@contextmanager
def open_backup(path: Path) -> Iterator[Backup]:
    """Open a backup. Raises `BadInput` if it is incomplete, or of a newer format."""
    try:
        source = zipfile.ZipFile(path)
    except OSError as error:
        raise BadInput("FILE", f"{path} can't be read ({error.strerror}). Give a backup file.") from None
    except DAMAGED:
        raise BadInput("FILE", HALF.format(why="it ends too early, or is not a backup")) from None
    with source:
        yield Backup(path, source, _check_source(source))


def _check_source(source: zipfile.ZipFile) -> dict[str, Any]:
    if MANIFEST not in source.namelist():
        raise BadInput("FILE", HALF.format(why="its manifest is missing"))
    try:
        damaged = source.testzip()
        manifest: dict[str, Any] = orjson.loads(source.read(MANIFEST))
        version, members = int(manifest["format"]), set(manifest["members"])
    except (*DAMAGED, OSError):
        raise BadInput("FILE", HALF.format(why="it is damaged")) from None
    if version > FORMAT:
        raise BadInput("FILE", "was made by a newer version of Weir. Install that version, then restore.")
    missing = sorted(members - set(source.namelist()))
    if damaged or missing:
        raise BadInput("FILE", HALF.format(why=f"{damaged or missing[0]} is damaged or missing"))
    for name in sorted(members):
        split_relative_name(name, "FILE")
        kind = stat.S_IFMT(source.getinfo(name).external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise BadInput("FILE", (f"contains {name!r} as a link or a device. Restore a backup that Weir made."))
    # What the restore reads of the manifest.
    names = {name.removeprefix("nodes/") for name in manifest["members"] if name.startswith("nodes/")}
    if unknown := sorted(names - set(manifest.get("nodes", ()))):
        raise BadInput("FILE", HALF.format(why=f"its manifest does not list node {unknown[0][:40]!r}"))
    for name, at in manifest.get("modified", {}).items():
        if not isinstance(at, int | float) or not MIN_CHANGED_AT <= at <= MAX_CHANGED_AT:
            raise BadInput("FILE", HALF.format(why=f"the time of {name[:80]!r} is invalid"))
    return manifest
