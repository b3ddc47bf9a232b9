"""The data folder's other files: the archive, snapshots, effects, and the progress of the pipeline."""

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

from common.parsing import parse_digits

# What is in the backup otherwise, is made anew by a start, or belongs to this machine.
PASSING = {
    "servers",
    "logs",
    "static",
    "lock",
    "local.json",
    "first-login",
    "process-ends.json",
    "spark",
    "replicas",
    "backups",  # each would contain all earlier ones
}
# In the pipeline's folder: what Spark and Java unpack; the folders of applications stay.
PASSING_OF_PIPELINE = {"python", "java", "tmp", "scratch", "warehouse"}
# An application's own files in its folder: they may have the same names.
OF_APPLICATIONS = {"run.json", "spark"}
OWN_DATABASE = "weir.sqlite3"
SIGNING_KEY = "secret-key"
TEMPORARY = ".tmp"
SQLITE_BESIDE = ("-wal", "-shm", "-journal")


def list_files(data: Path, without: Collection[Path] = ()) -> Iterator[Path]:
    """Return the files of the data folder that a backup contains, relative to it.

    `without`: the backup itself, which may be there: copied into itself it would grow without end.
    """
    apart = {path.resolve() for path in without}
    for path in sorted(data.rglob("*")):
        inside = path.relative_to(data)
        if path.is_symlink() or not path.is_file() or not is_kept(inside):
            continue
        if path.resolve() not in apart:
            yield inside


def is_kept(inside: Path) -> bool:
    """Return whether a backup contains this file of the data folder."""
    first, name = inside.parts[0], inside.name
    if first in PASSING or first.startswith(("supervisor.", OWN_DATABASE)):
        return False
    if first == "pipeline":
        unpacked = len(inside.parts) < 3 or inside.parts[1] in PASSING_OF_PIPELINE
        if unpacked and not OF_APPLICATIONS.intersection(inside.parts[2:3]):
            return False
    if first == "archive" and name.endswith(f".parquet{TEMPORARY}"):
        # The archive's index may name it: a consumer that gets its blocks again shows it (`consumer.handlers.parquet`).
        return True
    return name != "lock" and not name.endswith((*SQLITE_BESIDE, TEMPORARY))


def list_leftovers(data: Path, without: Collection[Path] = ()) -> list[Path]:
    """Return files of an older plant in the folder, relative to it. `without`: the backup that is restored."""
    leftovers = [inside for inside in list_files(data, without) if inside.as_posix() != SIGNING_KEY]
    # What SQLite would apply to the database that is put beside it. The plant's own is already in use.
    logs = (path.relative_to(data) for path in sorted(data.rglob("*")) if path.name.endswith(SQLITE_BESIDE))
    return leftovers + [inside for inside in logs if not inside.name.startswith(OWN_DATABASE)]


def read_content(path: Path) -> Iterator[bytes]:
    """Return the file's content; for a SQLite database a consistent copy. Raises `OSError`."""
    if path.suffix != ".sqlite3":
        yield from _read_chunks(path)
        return
    # Beside it: the folder for temporary files may be far too small (in Compose it is memory).
    copy = path.with_name(f"{path.name}{TEMPORARY}")
    try:
        _remove(copy)  # left by a backup that was killed
        copy.touch(mode=0o600)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        yield from _read_chunks(copy)
    except sqlite3.Error as error:
        raise OSError(f"{path} can't be copied ({error}); check that the disk has space for a second copy") from None
    finally:
        _remove(copy)


def _remove(database: Path) -> None:
    for end in ("", *SQLITE_BESIDE):
        database.with_name(database.name + end).unlink(missing_ok=True)


def _read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(2**20):
            yield piece


def list_unsettled(data: Path) -> list[str]:
    """Return queries of the pipeline with a batch that has started and is not committed, by their folder."""
    folders = []
    for offsets in sorted((data / "pipeline").glob("*/spark/*/offsets")):
        begun, committed = _find_newest_number(offsets), _find_newest_number(offsets.parent / "commits")
        if begun > committed:
            folders.append(str(offsets.parent.relative_to(data / "pipeline")))
    return folders


def _find_newest_number(folder: Path) -> int:
    numbers = (parse_digits(path.name) for path in folder.glob("*"))
    return max((number for number in numbers if number is not None), default=-1)
