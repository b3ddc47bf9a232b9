"""Search in the task history: recent tasks first, then the blocks that may have a match, newest first."""

import base64
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import pyarrow as pa
from django.db.models import Q
from pyarrow import compute

from common.errors import BadInput
from common.stored_document import get_decoder
from workers.task_history import columns
from workers.task_history.blocks import MAX_TIME, BlockHead, ReadColumns, decode_record, iterate_candidates, open_block
from workers.task_history.gaps import list_gaps
from workers.task_history.models import RecentTask, TaskGap
from workers.task_history.query import EXACT, UUID_LENGTH, TaskQuery
from workers.task_history.record import FINISHED, OPEN, TaskRecord
from workers.task_history.terms import TEXTS

LIMIT, MAX_LIMIT = 50, 1_000
BUDGET_SECONDS = 1.0
MAX_SELECTED = 100_000
MAX_FAMILY = 200
READ_AT_ONCE = 2_000
MAX_RECENT = 50 * READ_AT_ONCE
logger = logging.getLogger(__name__)
# Results are in the order of these: the newest first; then by plant and id.
Key = tuple[float, str, str]
RecentRow = tuple[int, float, str, "bytes | memoryview[int]"]


@dataclass(frozen=True)
class FoundTasks:
    """A page of results.

    next: continues the search; None at the end. searched_back_to: everything since then was searched; None: everything.
    gaps: of the searched time.
    """

    records: list[TaskRecord]
    next: str | None
    searched_back_to: float | None
    gaps: list[TaskGap]


@dataclass(frozen=True)
class Family:
    """The tasks around a task: its root, its parent, its siblings (without itself), and its children."""

    root: TaskRecord | None
    parent: TaskRecord | None
    siblings: list[TaskRecord]
    children: list[TaskRecord]


@dataclass(frozen=True)
class TaskCount:
    """A number of tasks; at least this many if the count is not complete."""

    tasks: int
    is_complete: bool


def find(
    plants: Sequence[str],
    query: TaskQuery,
    before: str | None = None,
    limit: int = LIMIT,
    budget_seconds: float = BUDGET_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> FoundTasks:
    """Return a page of the tasks that match, newest first. before: `next` of the previous page.

    A search that takes longer than the budget returns what it has, and `next` to continue. Raises BadInput.
    """
    if not 0 < limit <= MAX_LIMIT:
        raise BadInput("limit", f"must be from 1 to {MAX_LIMIT:,}.")
    after = None if before is None else parse_cursor(before)
    until = monotonic() + budget_seconds
    scan = _Scan(plants, query, after)
    records = list[TaskRecord]()
    back_to: float | None = None
    next_key: Key | None = None
    for part in scan.iterate():
        records += part.records
        if len(records) > limit:
            records = records[:limit]
            next_key, back_to = _get_key(records[-1]), records[-1].at
            break
        if not part.is_last and part.at < scan.newest and monotonic() > until:
            next_key, back_to = (part.at, "", ""), part.at
            break
    since = back_to if back_to is not None else query.since
    newest = query.until if after is None else after[0]
    gaps = list_gaps(plants, since, newest)
    return FoundTasks(records, None if next_key is None else format_cursor(next_key), back_to, gaps)


def get(plant: str, task_id: str) -> TaskRecord | None:
    """Return a task; None if it is unknown."""
    row = RecentTask.objects.filter(plant=plant, task_id=task_id).values_list("record", flat=True).first()
    if row is not None:
        return columns.round_times(decode_record(row, plant))
    for record in iterate([plant], TaskQuery(id=task_id), most=MAX_SELECTED):
        if record.id == task_id:
            return record
    return None


def list_recent(plant: str, task_ids: Collection[str]) -> dict[str, TaskRecord]:
    """Return those of these tasks by ID that are still in the database, where tasks of the last days are."""
    rows = RecentTask.objects.filter(plant=plant, task_id__in=task_ids).values_list("task_id", "record")
    return {task_id: columns.round_times(decode_record(record, plant)) for task_id, record in rows}


def iterate(plants: Sequence[str], query: TaskQuery, most: int = MAX_SELECTED) -> Iterator[TaskRecord]:
    """Yield the tasks that match, newest first, up to a number of them."""
    matching = (record for part in _Scan(plants, query, None).iterate() for record in part.records)
    return islice(matching, most)


def count(
    plants: Sequence[str],
    query: TaskQuery,
    most: int = MAX_SELECTED,
    budget_seconds: float = BUDGET_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
) -> TaskCount:
    """Count the tasks that match, up to a number of them, and within the budget."""
    until, tasks = monotonic() + budget_seconds, 0
    for part in _Scan(plants, query, None).iterate():
        tasks += len(part.records)
        if tasks > most:
            return TaskCount(most, False)
        if not part.is_last and monotonic() > until:
            return TaskCount(tasks, False)
    return TaskCount(tasks, True)


def list_family(record: TaskRecord, most: int = MAX_FAMILY) -> Family:
    """Return the tasks around a task, each list newest first and limited."""
    plants = [record.plant]
    children = iterate(plants, TaskQuery(parent=record.id), most)
    siblings = iterate(plants, TaskQuery(parent=record.parent), most + 1) if record.parent else ()
    return Family(
        get(record.plant, record.root) if record.root and record.root != record.id else None,
        get(record.plant, record.parent) if record.parent else None,
        [sibling for sibling in siblings if sibling.id != record.id][:most],
        list(children),
    )


def format_cursor(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


def parse_cursor(text: str) -> Key:
    """Return the key of a cursor. Raises BadInput."""
    try:
        key: Key = get_decoder(Key).decode(base64.urlsafe_b64decode(text))
    except (ValueError, msgspec.DecodeError):
        raise BadInput("before", "is not a cursor. Use the value of `next`.") from None
    return key


@dataclass(frozen=True)
class _Part:
    """Results that are final: no result since `at` follows any more."""

    records: list[TaskRecord]
    at: float
    is_last: bool = False


def _get_key(record: TaskRecord) -> Key:
    return record.at, record.plant, record.id


def _order(record: TaskRecord) -> tuple[float, str, str]:
    return -record.at, record.plant, record.id


class _Scan:
    """One pass over all tasks that may match, in the order of results."""

    def __init__(self, plants: Sequence[str], query: TaskQuery, after: Key | None) -> None:
        self._plants, self._query, self._after = plants, query, after
        self.newest = min(MAX_TIME if query.until is None else query.until, MAX_TIME if after is None else after[0])
        self._since = 0.0 if query.since is None else query.since
        self._seen: set[tuple[str, str]] = set()

    def iterate(self) -> Iterator[_Part]:
        """Yield results, and how far back they are final."""
        # Before the blocks: a task that is moved in the meantime is found twice rather than never.
        recent = self._list_recent(None)
        waiting = list[TaskRecord]()
        for head, last in iterate_candidates(self._plants, self._query.terms, self._since, self.newest):
            while recent and recent[-1][1] > last:
                yield self._take(waiting, recent[-1][1])
                waiting += self._match_recent(recent)
            yield self._take(waiting, last)
            if head is not None:
                waiting += self._search_block(head)
        while recent:
            yield self._take(waiting, recent[-1][1])
            waiting += self._match_recent(recent)
        yield _Part(sorted(waiting, key=_order), self._since, is_last=True)

    def _take(self, waiting: list[TaskRecord], at: float) -> _Part:
        """Remove and return what is newer than an instant."""
        final = [record for record in waiting if record.at > at]
        waiting[:] = [record for record in waiting if record.at <= at]
        return _Part(sorted(final, key=_order), at)

    def _list_recent(self, before: tuple[int, float] | None) -> list[RecentRow]:
        """Return stored recent tasks, the newest at the end."""
        rows = RecentTask.objects.filter(plant__in=self._plants, at__lte=self.newest, at__gte=self._since)
        if len(self._query.id) >= UUID_LENGTH:
            rows = rows.filter(task_id=self._query.id)
        if self._query.state not in ("", OPEN):
            rows = rows.filter(finished=self._query.state in FINISHED)
        if before is not None:
            rows = rows.filter(Q(at__lt=before[1]) | Q(at=before[1], pk__lt=before[0]))
        found = list(rows.order_by("-at", "-pk").values_list("pk", "at", "plant", "record")[:MAX_RECENT])
        return found[::-1]

    def _match_recent(self, recent: list[RecentRow]) -> list[TaskRecord]:
        """Remove some of the newest recent tasks, and return those that match."""
        some, recent[-READ_AT_ONCE:] = recent[-READ_AT_ONCE:], []
        if not recent and len(some) == READ_AT_ONCE:
            recent[:] = self._list_recent((some[0][0], some[0][1]))
        records = (columns.round_times(decode_record(stored, plant)) for _, _, plant, stored in reversed(some))
        return [record for record in records if self._query.matches(record) and self._is_new(record)]

    def _is_new(self, record: TaskRecord) -> bool:
        """Return whether the task is in the range and was not found yet."""
        if not self._since <= record.at <= self.newest:
            return False
        if self._after is not None and _order(record) <= (-self._after[0], *self._after[1:]):
            return False
        place = record.plant, record.id
        if place in self._seen:
            return False
        self._seen.add(place)
        return True

    def _search_block(self, head: BlockHead) -> list[TaskRecord]:
        try:
            with open_block(head) as read:
                records = [] if read is None else self._read_candidates(head, read)
        except (OSError, pa.ArrowException) as error:
            logger.warning("A block of the task history can't be read: %s", error)
            return []
        return [record for record in records if self._query.matches(record) and self._is_new(record)]

    def _read_candidates(self, head: BlockHead, read: ReadColumns) -> list[TaskRecord]:
        """Return the records that may match. Columns that the query doesn't need are read last, if at all."""
        rows = self._select_rows(read, head.superseded_rows)
        query = self._query
        parts = (*query.words, *query.texts)
        texts = read(TEXTS).take(rows) if parts and len(rows) else None
        if texts is not None:
            # Most rows are left out by the first part.
            for part in parts:
                places = compute.indices_nonzero(_select_text(texts, part))
                texts, rows = texts.take(places), rows.take(places)
        if not len(rows):
            return []
        if texts is None:
            return columns.read_records(read(columns.SCHEMA.names).take(rows), head.plant)
        table = read([name for name in columns.SCHEMA.names if name not in TEXTS]).take(rows)
        for name in TEXTS:
            table = table.append_column(columns.SCHEMA.field(name), texts.column(name))
        return columns.read_records(table, head.plant)

    def _select_rows(self, read: ReadColumns, hidden: Collection[int]) -> pa.Array:
        """Return the rows of a block that are in the time range, and have the values of the query."""
        query = self._query
        keys = [key for key in EXACT if _get(query, key)]
        table = read(["at", *keys])
        mask = _select_times(table, self._since, self.newest)
        for key in keys:
            mask = compute.and_(mask, _select_value(table.column(key), key, _get(query, key)))
        rows = compute.indices_nonzero(mask).cast(pa.int64())
        return rows if not hidden else pa.array([row for row in rows.to_pylist() if row not in hidden], pa.int64())


def _get(query: TaskQuery, key: str) -> str:
    value: str = getattr(query, key)
    return value


def _select_times(table: pa.Table, since: float, until: float) -> pa.ChunkedArray:
    at = table.column("at").cast(pa.int64())
    # A millisecond more on both sides: times are compared exactly later.
    return compute.and_(
        compute.greater_equal(at, int(since * 1_000) - 1), compute.less_equal(at, int(until * 1_000) + 1)
    )


def _select_value(column: pa.ChunkedArray, key: str, value: str) -> pa.ChunkedArray:
    if key == "state" and value == OPEN:
        return compute.invert(compute.is_in(column, pa.array(sorted(FINISHED))))
    if key == "id":
        return compute.starts_with(column, value)
    if key == "name" and value.endswith("*"):
        return compute.starts_with(column, value[:-1])
    return compute.equal(column, value)


def _select_text(texts: pa.Table, needle: str) -> pa.ChunkedArray:
    """Return the rows that may have the text. Arrow folds only ASCII as Python does, so other rows are all selected."""
    mask = None
    for column in texts.columns:
        found = compute.match_substring(column, needle, ignore_case=True)
        found = compute.or_(found, compute.invert(compute.string_is_ascii(column)))
        mask = found if mask is None else compute.or_(mask, found)
    return mask
