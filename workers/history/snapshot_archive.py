"""Archive of whole snapshots by the minute, compressed, in files that other programs can read.

`snapshots/day=2026-11-20/1790000000.200.jsonl.zst`: the frames of one minute, named by the time of the first;
a frame is a line, `{at} {snapshot as JSON}`. `snapshots/open-{token}.jsonl` has those of the current minute. A frame is
the whole snapshot with its nulls: the common content of frames costs almost nothing when they are compressed together,
and reading any instant takes one file and one parsed line.

A block is written under a hidden name and renamed, and each frame is one write to the open file. After any crash,
everything written is found again, and the next recorder seals the file that was left open.
"""

import errno
import math
import os
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from common.files import resolve_inside_folder
from workers.documents.snapshot import Snapshot
from workers.history.event_archive import list_days

ROOT = "snapshots"
BLOCK_SECONDS = 60
# 50 MB a day. A plant with larger minutes is recorded less often, down to one frame a minute.
BLOCK_BUDGET_BYTES = 50_000_000 // 1_440
MAX_STEP_SECONDS = BLOCK_SECONDS
# An instant is answered with the newest frame before it, unless that is older than the longest step.
REACH_SECONDS = 1.5 * MAX_STEP_SECONDS
LEVEL = 9
SUFFIX = ".jsonl.zst"
Frame = tuple[float, bytes]


class Recorder:
    """Recorder of snapshots; one per observer. Only `add` runs each second."""

    def __init__(self, data: Path) -> None:
        self._root = data / ROOT
        self._open = self._root / f"open-{secrets.token_hex(4)}.jsonl"
        self._minute: int | None = None
        self._step_seconds = 1
        self._kept_at = -math.inf

    def add(self, at_seconds: float, encoded: bytes) -> None:
        """Record a snapshot (JSON without a line break) of this time, if the step since the last one is over.

        Raises OSError when the folder cannot be written.
        """
        if 0 <= at_seconds - self._kept_at < self._step_seconds - 0.5:
            return
        minute = int(at_seconds // BLOCK_SECONDS)
        if minute != self._minute:
            self._seal_all()
            self._minute = minute
        self._root.mkdir(parents=True, exist_ok=True)
        line = b"%.3f %s\n" % (at_seconds, encoded)
        with self._open.open("ab", buffering=0) as file:
            written = file.write(line)
            if written < len(line):  # only a part was written, to which the next frame would be appended
                file.truncate(file.tell() - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._open))
        self._kept_at = at_seconds

    def _seal_all(self) -> None:
        """Seal all open files, including those that previous observers left."""
        for path in sorted(self._root.glob("open-*.jsonl")):
            size = seal(self._root, path)
            if path == self._open:
                self._step_seconds = compute_step_seconds(self._step_seconds, size)


def compute_step_seconds(step_seconds: int, block_bytes: int) -> int:
    """Return the step (whole seconds) at which a minute like the last one fits its budget: step * size / budget."""
    wanted = math.ceil(step_seconds * block_bytes / BLOCK_BUDGET_BYTES)
    return min(max(wanted, 1), MAX_STEP_SECONDS)


def seal(root: Path, path: Path) -> int:
    """Convert an open file to a block and return its size in bytes. Sealing twice gives the same block."""
    frames = list(_iterate_frames(path.read_bytes()))
    size = 0
    if frames:
        first_seconds = frames[0][0]
        block = pa.Codec("zstd", compression_level=LEVEL).compress(
            b"".join(b"%.3f %s\n" % frame for frame in frames), asbytes=True
        )
        folder = root / f"day={_format_day(first_seconds)}"
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{path.stem}{SUFFIX}"
        with hidden.open("wb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(folder / f"{first_seconds:.3f}{SUFFIX}")
        size = len(block)
    path.unlink(missing_ok=True)
    return size


def snapshot_at(data: Path, at_seconds: float) -> Snapshot | None:
    """Return the plant at an instant: the newest frame not after it; None when none was recorded near it.

    Snapshots of older versions are read with a default for each missing field. Raises BadDocument.
    """
    nearest = max(_find_near_frame(data, at_seconds), key=lambda frame: frame[0], default=None)
    if nearest is None or at_seconds - nearest[0] > REACH_SECONDS:
        return None
    return Snapshot.from_json(nearest[1])


def find_nearest_times(data: Path, at_seconds: float) -> tuple[float | None, float | None]:
    """Return the last recorded time before an instant and the first after it (to the minute)."""
    starts = sorted(start for day in list_archived_days(data) for start in _list_block_starts(data, day))
    starts += sorted(frames[0][0] for frames in _open_frames(data) if frames)
    place = bisect_right(starts, at_seconds)
    return (starts[place - 1] if place else None, starts[place] if place < len(starts) else None)


def list_archived_days(data: Path) -> list[str]:
    """Return the days with blocks, in order."""
    return list_days((data / ROOT).glob("day=*"))


def get_day_folder(data: Path, day: str) -> Path:
    return resolve_inside_folder(data / ROOT, f"day={day}", "day")


def _find_near_frame(data: Path, at_seconds: float) -> Iterator[Frame]:
    """Return the newest frame not after the instant, from its block or the open file."""
    # A minute may start on the day before.
    starts = [
        start
        for day in {_format_day(at_seconds - BLOCK_SECONDS), _format_day(at_seconds)}
        for start in _list_block_starts(data, day)
    ]
    begun = [start for start in starts if start <= at_seconds]
    if begun:
        yield from _select_last_frame(_block(data, max(begun)), at_seconds)
    for frames in _open_frames(data):
        yield from _select_last_frame(frames, at_seconds)


def _select_last_frame(frames: list[Frame], at_seconds: float) -> Iterable[Frame]:
    before = [frame for frame in frames if frame[0] <= at_seconds]
    return [max(before, key=lambda frame: frame[0])] if before else []


def _block(data: Path, start_seconds: float) -> list[Frame]:
    path = get_day_folder(data, _format_day(start_seconds)) / f"{start_seconds:.3f}{SUFFIX}"
    try:
        with pa.input_stream(str(path), compression="zstd") as stream:
            return list(_iterate_frames(stream.read()))
    except FileNotFoundError:  # retention deleted it in the meantime
        return []


def _open_frames(data: Path) -> Iterator[list[Frame]]:
    for path in (data / ROOT).glob("open-*.jsonl"):
        try:
            yield list(_iterate_frames(path.read_bytes()))
        except FileNotFoundError:  # sealed in the meantime: the next read finds it among the blocks
            continue


def _iterate_frames(text: bytes) -> Iterator[Frame]:
    """Yield the whole lines; a line that a crash truncated is left out."""
    for line in text.split(b"\n")[:-1]:
        at, _, snapshot = line.partition(b" ")
        if snapshot.endswith(b"}"):
            yield float(at), snapshot


def _list_block_starts(data: Path, day: str) -> list[float]:
    """Return when the blocks of a day start, by their names."""
    paths = get_day_folder(data, day).glob(f"[0-9]*{SUFFIX}")
    return [float(path.name.removesuffix(SUFFIX)) for path in paths]


def _format_day(at_seconds: float) -> str:
    return datetime.fromtimestamp(at_seconds, UTC).date().isoformat()
