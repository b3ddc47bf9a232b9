"""Days (UTC) in the names of folders and files: `day=2026-11-20`."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from common import checks
from common.errors import BadInput
from common.files import resolve_inside_folder
from queues.events.block import SCHEMA


def is_day(text: str) -> bool:
    """Return whether the text is a day in our format.

    Other names may exist beside the days: a copy, or a folder that a person renamed.
    """
    return checks.DAY.accepts(text) and checks.DAY.read(text) == text


def list_days(paths: Iterable[Path], suffix: str = "") -> list[str]:
    """List the days in the names of paths, each once, in order; other names are left out."""
    days = {path.name.removeprefix("day=").removesuffix(suffix) for path in paths}
    return sorted(filter(is_day, days))


ROOT = "archive"
EXPIRED_FILES = 200
LOCK_SECONDS = 20.0
ON_ERROR = ("skip", "stop")


@dataclass(frozen=True, order=True)
class Partition:
    """The events of a queue on a day (UTC); `day` is ISO text, so days sort as text."""

    day: str
    queue: str

    @property
    def identifier(self) -> str:
        return f"queue={self.queue}/day={self.day}"

    def get_folder(self, data: Path) -> Path:
        """Return the folder of its files. Raises Forbidden where the queue or day leads out of it."""
        return resolve_inside_folder(data / ROOT, self.identifier, "queue")


@dataclass(frozen=True)
class CheckedPartition:
    """The sound files of a partition, their rows, and the faults of the others."""

    files: tuple[Path, ...]
    rows: int
    faults: tuple[dict[str, str], ...]


def list_partitions(data: Path, queues: Iterable[str] = (), since: str = "", until: str = "9999") -> list[Partition]:
    """Return the archived partitions of these queues between two days, both included, oldest first.

    Without queues, the partitions of all are returned.
    """
    wanted = set(queues)
    parts_found = []
    for folder in (data / ROOT).glob("queue=*/day=*"):
        partition = Partition(folder.name.removeprefix("day="), folder.parent.name.removeprefix("queue="))
        in_range = is_day(partition.day) and since <= partition.day <= until
        if in_range and (not wanted or partition.queue in wanted) and list_parquet_files(folder):
            parts_found.append(partition)
    return sorted(parts_found)


def check_files(files: Iterable[Path], schema: pa.Schema = SCHEMA) -> CheckedPartition:
    """Classify files by their footers, which is fast because no data is read."""
    return _sort_out_files(files, lambda path: _find_footer_fault(path, schema))


def read_through(files: Iterable[Path], schema: pa.Schema = SCHEMA) -> CheckedPartition:
    """Classify files by reading every page, for when Spark failed on a file with a sound footer."""
    return _sort_out_files(files, lambda path: _find_footer_fault(path, schema) or _describe_page_fault(path))


def list_skipped_faults(checked: CheckedPartition, on_error: str, data: Path) -> tuple[dict[str, str], ...]:
    """Return the faults to skip, with files relative to the data folder.

    Raises BadInput naming the first fault when the choice is to stop.
    """
    faults = tuple({**fault, "file": _get_relative_path(fault["file"], data)} for fault in checked.faults)
    if faults and on_error == "stop":
        more = f" (invalid files in total: {len(faults)})" if len(faults) > 1 else ""
        first = faults[0]
        raise BadInput(
            "on_error", f"{first['file']} {first['why']}{more}. Repair or move it, or run with on_error=skip."
        )
    return faults


def list_parquet_files(folder: Path) -> list[Path]:
    """Return the visible files of a partition."""
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))


def _sort_out_files(files: Iterable[Path], fault_of: Callable[[Path], str]) -> CheckedPartition:
    sound: list[Path] = []
    faults: list[dict[str, str]] = []
    for path in files:
        if why := fault_of(path):
            faults.append({"file": str(path), "why": why})
        else:
            sound.append(path)
    rows = sum(parquet.read_metadata(path).num_rows for path in sound)
    return CheckedPartition(tuple(sound), rows, tuple(faults))


def _find_footer_fault(path: Path, schema: pa.Schema) -> str:
    try:
        schema_read = parquet.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return f"is corrupt: {_format_error_line(error)}"
    return "" if (wrong := _describe_differences(schema_read, schema)) == "" else f"has an unexpected schema: {wrong}"


def _describe_page_fault(path: Path) -> str:
    try:
        for _ in parquet.ParquetFile(path).iter_batches():
            pass
    except (pa.ArrowException, OSError) as error:
        return f"is corrupt: {_format_error_line(error)}"
    return ""


def _describe_differences(found: pa.Schema, wanted: pa.Schema) -> str:
    missing = [name for name in wanted.names if name not in found.names]
    wrong = [
        f"{field.name} is {found.field(field.name).type}, not {field.type}"
        for field in wanted
        if field.name in found.names and not _is_same_type(found.field(field.name).type, field.type)
    ]
    return ", ".join([f"{name} is missing" for name in missing] + wrong)


def _is_same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether the types are equal apart from spelling: large strings, dictionaries of strings."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found))
    return bool(found == wanted)


def _get_relative_path(path: str, data: Path) -> str:
    return str(Path(path).relative_to(data)) if Path(path).is_relative_to(data) else path


def _format_error_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def list_partition_days(partitions: Sequence[Partition]) -> list[str]:
    """Return the days of the partitions, each once, in order."""
    return sorted({partition.day for partition in partitions})


EXTRACTS, TRACES = "extracts", "traces"
OF_QUEUE = "queue="


def extract_file(queue: str, name: str, format: str) -> str:
    """Return the path relative to the data folder, as for all names here."""
    return f"{EXTRACTS}/{OF_QUEUE}{queue}/{name}.{format}"


def upload_folder(user_id: int) -> str:
    return f"{TRACES}/{user_id}"


def iterate_extract_files(data: Path) -> Iterator[Path]:
    """Return every extract and uploaded trace, including those stored elsewhere by older versions."""
    for root in (TRACES, EXTRACTS):
        for pattern in ("[!.]*", "[!.]*/[!.]*"):
            paths = sorted((data / root).glob(pattern))
            yield from (path for path in paths if path.is_file() and not path.is_symlink())


def expire_partition(
    data: Path,
    partition: Partition,
    written_before: float,
    guarded: Callable[[], AbstractContextManager[None]],
    is_kept: Callable[[], bool],
) -> Iterator[int]:
    """Delete a partition's files that were written long ago, and yield how many after each of some transactions.

    History that was published recently has old days, but is not old. A range may have been kept since the run was
    planned. The index's write lock, which workers hold while they write a file, is taken before the guard: waiting for
    it under the guard would make all loops wait where the database is SQLite.
    """
    root, folder = data / ROOT, partition.get_folder(data)
    due = [path for path in list_parquet_files(folder) if path.stat().st_mtime < written_before]
    for start in range(0, len(due), EXPIRED_FILES):
        batch = due[start : start + EXPIRED_FILES]
        with _lock_index(root / "index.sqlite3") as index, guarded():
            if is_kept():
                return
            if index is not None:
                # Before the files: otherwise the index would name a missing file, and a block that is delivered again
                # would count as archived. A crash in between leaves files that the next run deletes.
                rows = [(_get_relative_path(str(path), root),) for path in batch]
                index.executemany("DELETE FROM blocks WHERE file = ?", rows)
                index.execute("COMMIT")
            for path in batch:
                path.unlink(missing_ok=True)
        yield len(batch)
    remove_if_empty(folder)


@contextmanager
def _lock_index(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the archive's index with its write lock; None where there is none."""
    if not path.exists():
        yield None
        return
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as index:
        index.execute("BEGIN IMMEDIATE")
        yield index


def remove_if_empty(folder: Path) -> None:
    """Remove the folder unless hidden leftovers or a new file are in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
