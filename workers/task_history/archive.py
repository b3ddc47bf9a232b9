"""The archive of the task history: days that left the database, in files that other programs can read.

A day is archived in steps that may be repeated after a crash: the files are written under hidden names, renamed, and
read back; only then one transaction removes the content from the database. Files that no block names are leftovers.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from django.db.models import QuerySet

from common.errors import WeirError
from workers.history.event_archive import list_days, remove_if_empty
from workers.task_history import archived, columns
from workers.task_history.archived import FILTERS, resolve_file
from workers.task_history.blocks import seal_settled
from workers.task_history.models import FailureGroup, RecentTask, TaskBlock, TaskGap

SUFFIX = ".parquet"
BLOCKS_PER_FILE = 64
Guard = Callable[[], AbstractContextManager[None]]


class ArchiveNotReadable(WeirError):  # noqa: N818
    """A file that was just written has another content when it is read."""


def list_stored_days(until: str) -> list[tuple[str, str]]:
    """Return (plant, day) of the blocks in the database up to a day, oldest first."""
    days = TaskBlock.objects.filter(day__lte=until, file="").order_by("day", "plant").values_list("day", "plant")
    return [(plant, day) for day, plant in days.distinct()]


def list_archived_days(until: str) -> list[tuple[str, str]]:
    """Return (plant, day) of the archived blocks and of all folders up to a day."""
    days = TaskBlock.objects.filter(day__lte=until).exclude(file="").values_list("plant", "day").distinct()
    return list(dict.fromkeys([*days, *(part for part in list_day_folders() if part[1] <= until)]))


def has_unsealed(before: float) -> bool:
    """Return whether tasks are not in a block yet that were last heard of before an instant."""
    return RecentTask.objects.filter(at__lt=before).exists()


def list_day_folders() -> dict[tuple[str, str], Path]:
    """Return (plant, day) → the folder of its files, oldest day first."""
    folders = {}
    for path in archived.get_root().glob("plant=*/day=*"):
        if days := list_days([path]):
            folders[path.parent.name.removeprefix("plant="), days[0]] = path
    return dict(sorted(folders.items(), key=lambda item: (item[0][1], item[0][0])))


def seal_all(now: float) -> Iterator[int]:
    """Move settled tasks of all plants into blocks, and yield how many after each transaction."""
    for plant in RecentTask.objects.order_by("plant").values_list("plant", flat=True).distinct():
        while moved := seal_settled(plant, now, partly=True):
            yield moved


def archive_day(plant: str, day: str, guarded: Guard) -> Iterator[int]:
    """Move a day of a plant into files, and yield the number of tasks after each file. Raises OSError."""
    while blocks := list(TaskBlock.objects.filter(plant=plant, day=day, file="").order_by("pk")[:BLOCKS_PER_FILE]):
        name = f"{_name_folder(plant, day)}/{blocks[0].pk}-{blocks[-1].pk}{SUFFIX}"
        starts = _write_files(name, blocks)
        _check_files(name, blocks, starts)
        with guarded():
            for row_group, (block, start) in enumerate(zip(blocks, starts, strict=True)):
                TaskBlock.objects.filter(pk=block.pk, file="").update(
                    file=name, row_group=row_group, filter_at=start, filter=None, data=None
                )
        yield sum(block.rows for block in blocks)
    _remove_leftovers(plant, day, guarded)


def delete_day(plant: str, day: str, guarded: Guard, is_kept: Callable[[], bool]) -> int:
    """Delete a day of a plant, from the database and the archive; return the number of blocks."""
    with guarded():
        if is_kept():
            return 0
        deleted, _ = TaskBlock.objects.filter(plant=plant, day=day).delete()
    _remove_leftovers(plant, day, guarded)
    return deleted


def select_due_gaps(before: float) -> QuerySet[TaskGap]:
    return TaskGap.objects.filter(until__lt=before)


def select_due_groups(before: float) -> QuerySet[FailureGroup]:
    return FailureGroup.objects.filter(last_seen__lt=before)


def _name_folder(plant: str, day: str) -> str:
    return f"plant={plant}/day={day}"


def _write_files(name: str, blocks: Sequence[TaskBlock]) -> list[int]:
    """Write the files of some blocks; return where the filter of each begins."""
    path = resolve_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.tmp")
    with columns.open_writer(hidden) as writer:
        for block in blocks:
            writer.write_table(columns.read_encoded(bytes(block.data or b"")), row_group_size=columns.MAX_ROWS)
    hidden_filters, starts = path.with_name(f".{path.stem}{FILTERS}.tmp"), list[int]()
    with hidden_filters.open("wb") as file:
        for block in blocks:
            starts.append(file.tell())
            file.write(bytes(block.filter or b""))
    for written, final in ((hidden_filters, path.with_suffix(FILTERS)), (hidden, path)):
        _sync(written)
        written.rename(final)
    _sync(path.parent)
    return starts


def _check_files(name: str, blocks: Sequence[TaskBlock], starts: Sequence[int]) -> None:
    filters = resolve_file(name).with_suffix(FILTERS).read_bytes()
    for row_group, (block, start) in enumerate(zip(blocks, starts, strict=True)):
        stored = columns.read_encoded(bytes(block.data or b""))
        filter_ = bytes(block.filter or b"")
        if not archived.read_row_group(name, row_group).equals(stored) or (
            filters[start : start + len(filter_)] != filter_
        ):
            raise ArchiveNotReadable(f"{name} differs from what was written. Check the disk.")


def _remove_leftovers(plant: str, day: str, guarded: Guard) -> None:
    """Delete the files of a day that no block names: from a step that was interrupted, or of deleted blocks."""
    folder = resolve_file(_name_folder(plant, day))
    with guarded():
        named = set(TaskBlock.objects.filter(plant=plant, day=day).exclude(file="").values_list("file", flat=True))
        kept = {Path(name).stem for name in named}
        for path in folder.glob("*"):
            if path.stem not in kept:
                path.unlink(missing_ok=True)
    remove_if_empty(folder)
    remove_if_empty(folder.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
