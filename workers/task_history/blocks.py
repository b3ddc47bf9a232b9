"""Blocks of tasks: recent tasks that are settled are moved into a block, in one transaction.

A task is settled if it finished SETTLE_SECONDS ago, or if nothing was heard of it for STALE_SECONDS. A block has tasks
of one day (UTC). A block of the current day is made when it is full.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from django.db import transaction
from django.db.models import BinaryField, F, Q, Value
from django.db.models.functions import Substr

from common.stored_document import get_decoder
from workers.task_history import archived, columns
from workers.task_history.columns import MAX_ROWS
from workers.task_history.models import RecentTask, TaskBlock, TaskFeed
from workers.task_history.record import TaskRecord
from workers.task_history.terms import LINE_BYTES, build_filter, collect_terms, count_lines, locate_term

SETTLE_SECONDS = 60.0
STALE_SECONDS = 86_400.0
TESTED_AT_ONCE = 256
AT_ONCE = 500
MAX_TIME = 1e12
ReadColumns = Callable[[Sequence[str]], pa.Table]
# Names of the columns that a block is found by.
HEAD = ("pk", "plant", "first", "last", "superseded", "file", "row_group", "filter_at", "lines")


@dataclass(frozen=True)
class BlockHead:
    """A block without its content, as found by a search."""

    pk: int
    plant: str
    first: float
    last: float
    superseded: bytes
    file: str
    row_group: int | None
    filter_at: int | None
    lines: int

    @property
    def superseded_rows(self) -> set[int]:
        return set(np.frombuffer(self.superseded, "<u2").tolist())


def name_day(at: float) -> str:
    """Return the day (UTC) of an instant: `2026-11-20`."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def decode_record(stored: "bytes | memoryview[int]", plant: str) -> TaskRecord:
    """Return the record of a recent task. Raises BadDocument."""
    record: TaskRecord = get_decoder(TaskRecord).decode(bytes(stored))
    record.plant = plant
    return record


def seal_settled(plant: str, now: float, partly: bool = False) -> int:
    """Move settled tasks into one block for each day, and return how many were moved.

    partly: also make blocks that are not full, of earlier days.
    """
    settled = Q(finished=True, at__lte=now - SETTLE_SECONDS) | Q(at__lte=now - STALE_SECONDS)
    rows = RecentTask.objects.filter(settled, plant=plant).order_by("at", "pk")
    if not partly and rows[MAX_ROWS - 1 : MAX_ROWS].values_list("pk").first() is None:
        return 0
    due = list(rows.values_list("pk", "at", "record")[:MAX_ROWS])
    moved = 0
    for day, members in groupby(due, lambda row: name_day(row[1])):
        group = [(key, bytes(record)) for key, _, record in members]
        if len(group) == MAX_ROWS or day < name_day(now):
            moved += _move_into_block(plant, day, group)
    return moved


def _move_into_block(plant: str, day: str, rows: Sequence[tuple[int, bytes]]) -> int:
    """Move recent tasks into a block, unless one of them has changed since it was read; return how many were moved."""
    # Before the transaction: it takes a moment, and on SQLite all writers wait for a transaction.
    block = build_block(plant, day, [decode_record(record, plant) for _, record in rows])
    keys = [key for key, _ in rows]
    with transaction.atomic():
        # A recorder updates this row first in each of its transactions.
        TaskFeed.objects.select_for_update().filter(plant=plant).first()
        if [row for part in _split(keys) for row in _read_rows(part)] != list(rows):
            return 0
        block.save()
        for part in _split(keys):
            RecentTask.objects.filter(pk__in=part).delete()
    return len(rows)


def build_block(plant: str, day: str, records: Sequence[TaskRecord]) -> TaskBlock:
    """Return the block of these records of one day, oldest first, not saved yet."""
    filter_ = build_filter(collect_terms(records))
    return TaskBlock(
        plant=plant,
        day=day,
        first=records[0].at,
        last=records[-1].at,
        rows=len(records),
        lines=count_lines(filter_),
        filter=filter_,
        data=columns.encode_table(columns.build_table(records)),
    )


def _split(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return parts that fit into one statement."""
    return (keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE))


def _read_rows(keys: Sequence[int]) -> list[tuple[int, bytes]]:
    rows = RecentTask.objects.filter(pk__in=keys).order_by("at", "pk").values_list("pk", "record")
    return [(key, bytes(record)) for key, record in rows]


def iterate_candidates(
    plants: Sequence[str], terms: Iterable[str], since: float, until: float
) -> Iterator[tuple[BlockHead | None, float]]:
    """Yield the blocks in a time range that may have a task with all terms, in descending order of their last time.

    Each has its last time beside it. A block of None only says that all later blocks are tested.
    """
    places = [locate_term(term) for term in sorted(terms)]
    blocks = TaskBlock.objects.filter(plant__in=plants, first__lte=until, last__gte=since).order_by("-last", "-pk")
    lines: Mapping[str, Any] = {
        f"line{number}": Substr(
            F("filter"), Value(place.line) % F("lines") * LINE_BYTES + 1, LINE_BYTES, output_field=BinaryField()
        )
        for number, place in enumerate(places)
    }
    tested = blocks.annotate(**lines).values_list(*HEAD, *lines)
    with archived.FilterReader() as reader:
        rows = list(tested[:TESTED_AT_ONCE])
        while rows:
            for row in rows:
                pk, plant, first, final, superseded, *place = row[: len(HEAD)]
                head = BlockHead(pk, plant, first, final, bytes(superseded), *place)
                stored = [bytes(line or b"") for line in row[len(HEAD) :]]
                if head.file:
                    stored = reader.read_lines(head.file, head.filter_at or 0, head.lines, places)
                if all(place.is_in(line) for place, line in zip(places, stored, strict=True)):
                    yield head, head.last
            key, last = rows[-1][0], rows[-1][3]
            yield None, last
            rows = list(tested.filter(Q(last__lt=last) | Q(last=last, pk__lt=key))[:TESTED_AT_ONCE])


@contextmanager
def open_block(head: BlockHead) -> Iterator[ReadColumns | None]:
    """Give a function that returns columns of a block by their names; None if it was deleted.

    Raises OSError, pa.ArrowException.
    """
    file, row_group, data = head.file, head.row_group, None
    if not file:
        # It may be in a file by now.
        row = TaskBlock.objects.filter(pk=head.pk).values_list("data", "file", "row_group").first()
        if row is None:
            yield None
            return
        data, file, row_group = row
    source = columns.open_encoded(bytes(data or b"")) if not file else archived.open_file(file)
    with source as opened:
        yield lambda names: opened.read_row_group(row_group or 0, columns=list(names), use_threads=False)


def find_rows(plant: str, ids: Sequence[str]) -> dict[str, tuple[BlockHead, int, TaskRecord]]:
    """Return id → (block, number of the row, record) of tasks that are in blocks and not superseded."""
    found: dict[str, tuple[BlockHead, int, TaskRecord]] = {}
    for task_id in ids:
        for head, _ in iterate_candidates([plant], [task_id.lower()], 0.0, MAX_TIME):
            if head is not None and (row := _find_row(head, task_id)) is not None:
                found[task_id] = head, *row
                break
    return found


def _find_row(head: BlockHead, task_id: str) -> tuple[int, TaskRecord] | None:
    with open_block(head) as read:
        numbers = [] if read is None else columns.find_equal(read(["id"]).column("id"), task_id)
        numbers = [number for number in numbers if number not in head.superseded_rows]
        if read is None or not numbers:
            return None
        table = read(columns.SCHEMA.names).slice(numbers[-1], 1)
        return numbers[-1], columns.read_records(table, head.plant)[0]


def supersede(pk: int, rows: Iterable[int]) -> None:
    """Mark rows of a block as superseded. Call it in a transaction."""
    block = TaskBlock.objects.select_for_update().filter(pk=pk).only("superseded").first()
    if block is not None:
        known = set(np.frombuffer(bytes(block.superseded), "<u2").tolist()) | set(rows)
        TaskBlock.objects.filter(pk=pk).update(superseded=np.array(sorted(known), "<u2").tobytes())
