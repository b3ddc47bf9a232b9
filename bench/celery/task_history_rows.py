"""A task history of millions of tasks in a database, and how long searches take there; run with its settings."""

import math
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import islice
from random import Random

import orjson
from django.db import connection

from bench.celery.stored_tasks import BEGAN, build_events, iterate_records
from workers.plants.foreign.celery_app.task_updates import HistoryFeed
from workers.task_history import archive, archived, columns, search
from workers.task_history.archived import get_root
from workers.task_history.blocks import build_block, name_day, seal_settled
from workers.task_history.models import RecentTask, TaskBlock, TaskFeed
from workers.task_history.query import parse_query
from workers.task_history.record import FAILED, TaskRecord
from workers.task_history.recorder import TaskRecorder

PLANT, RECORDED = "shop", "recorded"
SEARCHES = 40
BUDGET_SECONDS = 60.0  # a search is never cut short
RECORDED_TASKS = 20_000


class OnlyLease:
    """The lease of a recorder without another one."""

    fence: int | None = 1

    def acquire(self, at_least: int = 0) -> int | None:
        return self.fence

    def renew(self) -> bool:
        return True

    def release(self) -> bool:
        return True


def fill(count: int) -> None:
    """Store this many finished tasks in blocks, as a recorder would have."""
    TaskFeed.objects.get_or_create(plant=PLANT, defaults={"began_at": BEGAN, "heard_until": BEGAN})
    records = iterate_records(count)
    while block := list(islice(records, columns.MAX_ROWS)):
        build_block(PLANT, name_day(block[-1].at), block).save()


def copy_blocks(path: str) -> None:
    """Copy the blocks of a SQLite database."""
    names = ("plant", "day", "first", "last", "rows", "lines", "superseded", "filter", "data")
    TaskFeed.objects.get_or_create(plant=PLANT, defaults={"began_at": BEGAN, "heard_until": BEGAN})
    with closing(sqlite3.connect(path)) as source:
        for row in source.execute(f"SELECT {', '.join(names)} FROM workers_taskblock ORDER BY id"):
            TaskBlock.objects.create(**dict(zip(names, row, strict=True)))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def archive_all() -> None:
    """Move all days into files."""
    for plant, day in archive.list_stored_days("9999"):
        for _ in archive.archive_day(plant, day, nullcontext):
            pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM" if connection.vendor == "sqlite" else "VACUUM FULL")


def measure() -> None:
    """Print the time of searches, and the size of the history."""
    result = {"seconds": {kind: _measure(make) for kind, make in QUERIES.items()}, "bytes_per_task": _measure_bytes()}
    print(orjson.dumps(result).decode())


def record_tasks() -> None:
    """Print how many events a second a recorder stores, from the event to the block."""
    records = list(iterate_records(RECORDED_TASKS))
    now = records[0].at
    feed_time = [now]
    recorder = TaskRecorder(RECORDED, OnlyLease(), clock=lambda: feed_time[0])
    feed = HistoryFeed(recorder, clock=lambda: feed_time[0])
    feed.connect()
    events = [(record.at, build_events(record)) for record in records]
    began = time.perf_counter()
    for number, (at, some) in enumerate(events):
        feed_time[0] = at
        for event in some:
            feed.receive(event)
        if number % 1_000 == 999:
            feed.touch()
            recorder.flush()
    while seal_settled(RECORDED, records[-1].at + 3_600):
        pass
    seconds = time.perf_counter() - began
    stored = RecentTask.objects.filter(plant=RECORDED).count() + sum(
        TaskBlock.objects.filter(plant=RECORDED).values_list("rows", flat=True)
    )
    if stored != len(records):
        raise RuntimeError(f"{len(records):,} tasks were recorded, and {stored:,} are stored.")
    print(orjson.dumps({"events_per_second": 3 * len(records) / seconds}).decode())


def _measure(make: Callable[[TaskRecord], str]) -> dict[str, float]:
    """Return the 50th and 95th percentile of some searches, in seconds. Each must return its task, if there is one."""
    seconds = []
    for record in islice(_iterate_samples(), SEARCHES):
        query = parse_query(make(record), record.at)
        began = time.perf_counter()
        found = search.find([PLANT], query, budget_seconds=BUDGET_SECONDS)
        seconds.append(time.perf_counter() - began)
        is_found = any(row.id == record.id for row in found.records)
        # The page is full before it reaches a task whose values are frequent.
        if found.next is None and is_found == (make is _write_absent_word):
            raise RuntimeError(f"The search for {make(record)} returned something else.")
    ordered = sorted(seconds)
    return {"p50": ordered[len(ordered) // 2], "p95": ordered[math.ceil(0.95 * len(ordered)) - 1]}


def _iterate_samples() -> Iterator[TaskRecord]:
    """Yield failed tasks of random blocks."""
    random = Random(3)
    keys = list(TaskBlock.objects.filter(plant=PLANT).values_list("pk", flat=True))
    while True:
        block = TaskBlock.objects.get(pk=random.choice(keys))
        table = (
            archived.read_row_group(block.file, block.row_group or 0)
            if block.file
            else columns.read_encoded(bytes(block.data or b""))
        )
        failed = columns.find_equal(table.column("state"), FAILED)
        if failed:
            yield columns.read_records(table.slice(random.choice(failed), 1), PLANT)[0]


def _write_id(record: TaskRecord) -> str:
    return f"id:{record.id}"


def _write_argument(record: TaskRecord) -> str:
    """Return the longest value of the arguments: a customer, a file, a parcel, an article."""
    values: list[str] = re.findall(r"[\w.@/-]*\d[\w.@/-]*", record.kwargs)
    return max(values, key=len)


def _write_error(record: TaskRecord) -> str:
    """Return the error as people paste it: half of the errors name an order or a customer, the others are frequent."""
    return f"state:failed {' '.join(re.findall(WORD, record.error))}"


def _write_error_of_task(record: TaskRecord) -> str:
    return f"name:{record.name} state:failed {_write_argument(record)}"


def _write_absent_word(record: TaskRecord) -> str:
    return f"zeppelin{int(record.at)}"


WORD = r"[\w-][\w.@-]*[\w-]"
QUERIES = {
    "id": _write_id,
    "argument": _write_argument,
    "error": _write_error,
    "failed_task": _write_error_of_task,
    "absent_word": _write_absent_word,
}


def _measure_bytes() -> dict[str, float]:
    """Return the bytes on disk of a task: in the database, with indexes and free pages, and in the archive."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        else:
            cursor.execute("SELECT pg_database_size(current_database())")
        database = cursor.fetchone()[0]
    tasks = sum(TaskBlock.objects.values_list("rows", flat=True))
    files = sum(path.stat().st_size for path in get_root().rglob("*") if path.is_file())
    return {"database": database / tasks, "archive": files / tasks}
