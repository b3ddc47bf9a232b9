"""Files that exist completely or not at all: written under a hidden name, published by one rename.

Spark and Arrow skip names that start with a dot. The hidden name has the token of its writer (run, chunk, fencing
number), so a paused and resumed process never writes into its successor's file.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from common.errors import Forbidden
from common.files import resolve_inside_folder
from common.parsing import parse_digits

SUFFIX = ".tmp"
# The folders that batch jobs write to.
OUTPUT_ROOTS = ("statistics", "metrics", "training", "extracts", "experiments", "comparisons")


def resolve_output_path(data: Path, name: str) -> Path:
    """Return the path of a job's output. Raises Forbidden for a path outside the folders that jobs write to.

    `name` is relative to the data folder and comes from the database.
    """
    root, _, inside = name.partition("/")
    if root not in OUTPUT_ROOTS:
        raise Forbidden("outputs", f"must be below one of {', '.join(OUTPUT_ROOTS)}, not {name[:80]!r}.")
    return resolve_inside_folder(data / root, inside, "outputs")


def build_hidden_path(final: str, token: str) -> str:
    """Return where the file at `final` is written first; both are relative to the data folder."""
    path = Path(final)
    return str(path.with_name(f".{path.name}.{token}{SUFFIX}"))


def write_table(data: Path, final: str, token: str, table: pa.Table) -> dict[str, str]:
    """Write a Parquet file that is not published yet; return {final: temporary}."""
    temporary = build_hidden_path(final, token)
    path = resolve_output_path(data, temporary)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        parquet.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    return {final: temporary}


def show(data: Path, outputs: Mapping[str, str]) -> None:
    """Rename each file to its final name, replacing the output of an earlier run."""
    for final, temporary in outputs.items():
        resolve_output_path(data, temporary).replace(resolve_output_path(data, final))


def discard(data: Path, outputs: Iterable[str]) -> None:
    """Remove temporary files; missing ones are ignored."""
    for temporary in outputs:
        resolve_output_path(data, temporary).unlink(missing_ok=True)


def sweep(data: Path, token_prefix: str, fence: int) -> int:
    """Remove hidden files of a chunk's workers up to the fencing number `fence`; return how many.

    Hidden files are in the folders that their jobs write to, so only these are scanned.
    """
    swept = 0
    for root in OUTPUT_ROOTS:
        for path in (data / root).rglob(f".*.{token_prefix}*{SUFFIX}*"):
            number = parse_digits(path.name.split(f".{token_prefix}")[-1].split(".")[0])
            if number is not None and number <= fence:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                swept += 1
    return swept


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
