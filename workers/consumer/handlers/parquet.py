"""A handler that archives events as Parquet: `archive/queue=…/day=…/{name}.parquet` in the data folder.

A worker's blocks of one day share a file so that files stay few. A file name therefore cannot identify a block: after a
crash it may be delivered again with other blocks. An index (`archive/index.sqlite3`, a row per block) maps each block,
or part of one, to its file, and a crash can leave only states that the next worker completes:

1. In one transaction, with the index's write lock: blocks that the index has are left out; the rest are
   written to a hidden file `.{name}.parquet.tmp` and flushed to the disk; their rows are added; commit. A
   crash before the commit leaves a hidden file that is never read (deleted when it is a day old).
2. The hidden file is renamed to its name. A crash before that leaves the index naming a file that is still
   hidden: the worker that gets the blocks again (they were never acknowledged) finds them in the index and
   only does the renaming.

A block's events are therefore in exactly one visible file before it is acknowledged. The day is that of the block's
newest event (UTC). `{name}` is derived from the keys of its blocks. Two blocks with the same event id are two rows: the
archive is exact by block, and readers distinguish events by `id`.

Options: `compression` zstd (default) | snappy | none. The archive folder must be on a file system with locks
(SQLite's).
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.files import resolve_inside_folder
from workers.consumer.handler import Delivery, Handler, Options, Outcome, Place, fail_all_blocks

WAIT_FOR_LOCK_SECONDS = 20.0
LEFTOVER_AGE_SECONDS = 86_400.0


def compute_event_day(delivery: Delivery) -> str:
    """Return the UTC day of its newest event."""
    newest = pc.max(delivery.batch.column("time").cast(pa.int64())).as_py()
    return datetime.fromtimestamp(newest // 1_000_000, UTC).date().isoformat()


def build_hidden_path(path: Path) -> Path:
    """Return where a file is written before it is published. Spark and Arrow skip names that start with a dot."""
    return path.with_name(f".{path.name}.tmp")


def reveal(path: Path) -> None:
    """Publish a written file; another worker may have done so already, which is fine."""
    try:
        build_hidden_path(path).replace(path)
    except FileNotFoundError:
        if not path.exists():
            raise


def sync_folder(folder: Path) -> None:
    """Return when the names of the folder's files are on the disk. Raises `OSError`."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _remove_known_rows(delivery: Delivery, known: Iterable[str]) -> list[Delivery]:
    """Remove the rows of a delivery whose keys are known, which are already written.

    An interrupted separation of poison may have written parts of a block that is delivered again whole.
    """
    known = set(known)
    if delivery.block_id in known:
        return []
    written = np.zeros(delivery.events, bool)
    for key in known:
        first, last = (int(text) - delivery.first_row for text in key.rpartition(":")[2].split("-"))
        written[max(first, 0) : max(last + 1, 0)] = True
    if not written.any():
        return [delivery]
    borders = np.flatnonzero(np.diff(np.r_[True, written, True].astype(np.int8)))
    return [delivery.extract_part(int(start), int(stop)) for start, stop in borders.reshape(-1, 2)]


class Parquet(Handler):
    """The handler; see the module."""

    def __init__(self, place: Place, options: Options) -> None:
        self.compression = options.get_choice("compression", "zstd", ("zstd", "snappy", "none"))
        options.finish()
        self.root = place.data / "archive"
        self.folder = resolve_inside_folder(self.root, f"queue={place.queue}", "queue")
        self._index: sqlite3.Connection | None = None

    def handle(self, deliveries: Sequence[Delivery]) -> Outcome:
        try:
            return self._archive_deliveries(deliveries)
        except (sqlite3.Error, OSError) as error:
            return fail_all_blocks(len(deliveries), error)

    def _archive_deliveries(self, deliveries: Sequence[Delivery]) -> Outcome:
        index = self._index = self._index or self._open()
        with index:
            # The write lock is taken first: two workers with the same block decide one after the other.
            index.execute("BEGIN IMMEDIATE")
            files: set[Path] = set()
            new: list[Delivery] = []
            for delivery in {d.key: d for d in deliveries}.values():
                block_id = delivery.block_id
                query = "SELECT block, file FROM blocks WHERE queue = ? AND (block = ? OR block >= ? AND block < ?)"
                rows = index.execute(query, [self.folder.name, block_id, f"{block_id}:", f"{block_id};"])
                known = {key: resolve_inside_folder(self.root, file, "archive/index.sqlite3") for key, file in rows}
                files.update(known.values())
                new += _remove_known_rows(delivery, known)
            files.update(self._write(index, day, blocks) for day, blocks in self._group_by_day(new).items())
        for path in files:
            reveal(path)
        # Otherwise, a power failure could hide files whose blocks are acknowledged.
        for folder in {parent for path in files for parent in (path.parent, path.parent.parent)}:
            sync_folder(folder)
        effects = sum(delivery.events for delivery in new)
        return Outcome(effects, sum(delivery.events for delivery in deliveries) - effects)

    def sweep(self, now: float) -> int:
        """Remove hidden files that a crash left and that are not in the index; return how many."""
        index = self._index = self._index or self._open()
        swept = 0
        for path in self.folder.glob("day=*/.*.parquet.tmp"):
            shown = path.with_name(path.name[1:].removesuffix(".tmp"))
            named = index.execute("SELECT 1 FROM blocks WHERE file = ?", [self._get_relative_path(shown)]).fetchone()
            if not named and path.stat().st_mtime < now - LEFTOVER_AGE_SECONDS:
                path.unlink(missing_ok=True)
                swept += 1
        return swept

    def _write(self, index: sqlite3.Connection, day: str, blocks: list[Delivery]) -> Path:
        name = hashlib.sha256(" ".join(sorted(d.key for d in blocks)).encode()).hexdigest()[:32]
        path = self.folder / f"day={day}" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_batches([delivery.fill_ids() for delivery in blocks])
        with build_hidden_path(path).open("wb") as file:
            pq.write_table(table, file, compression=self.compression)
            file.flush()
            os.fsync(file.fileno())
        rows = [(self.folder.name, delivery.key, self._get_relative_path(path)) for delivery in blocks]
        index.executemany("INSERT INTO blocks VALUES (?, ?, ?)", rows)
        return path

    def _get_relative_path(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    @staticmethod
    def _group_by_day(deliveries: list[Delivery]) -> dict[str, list[Delivery]]:
        days: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            days.setdefault(compute_event_day(delivery), []).append(delivery)
        return days

    def _open(self) -> sqlite3.Connection:
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / "index.sqlite3"
        index = sqlite3.connect(path, timeout=WAIT_FOR_LOCK_SECONDS, isolation_level=None)
        index.execute("PRAGMA journal_mode=WAL")
        index.execute("PRAGMA synchronous=FULL")
        index.execute(
            "CREATE TABLE IF NOT EXISTS blocks (queue TEXT NOT NULL, block TEXT NOT NULL, "
            "file TEXT NOT NULL, PRIMARY KEY (queue, block)) WITHOUT ROWID"
        )
        index.execute("CREATE INDEX IF NOT EXISTS blocks_by_file ON blocks (file)")
        self._index = index  # an existing index has its table; the sweep reads it
        self.sweep(time.time())
        return index
