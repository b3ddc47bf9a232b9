"""Retention: deletes data that is older than its number of days, and the oldest data above a size limit.

For size, it deletes nothing of today or of the newest day. It never deletes data that an incident refers to (`Keep`: a
time range and a reason, requested on the incident's page). Loops of deleted worker hosts are deleted with the last data
about them. A chunk deletes one partition, day, range of ids, or kind of record.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.db.models import Max, Q, QuerySet

from common.errors import BadInput
from common.files import resolve_inside_folder
from queues import keys
from workers.alerts.lifecycle.models import Alert, FollowUp, Message
from workers.batch.jobs import handled_rows, lab_retention, old_records
from workers.batch.jobs.job import ChunkResult, ChunkSpec, JobContext, Values, Work
from workers.batch.jobs.parameters import JobParameter
from workers.batch.jobs.present_files import list_files_written_before, sum_folder_bytes
from workers.history import event_archive, metric_history, snapshot_archive, stretches, training_sets
from workers.history.event_archive import list_days
from workers.models import Keep, LedgerEntry, Loop, Plan, Run
from workers.placement import recovery
from workers.placement.plans import OPEN

FOREVER = 0  # in days; for a size limit: whatever its age
MAX_DAYS = 36_500
MAX_MEGABYTES, MAX_ENTRIES = 10**9, 10**10
BYTES_PER_MEGABYTE = 10**6
T = TypeVar("T")
RETIRED_LOOP_DAYS = 30
LEDGER_RANGE_IDS = 20_000
LEDGER_BATCH_ROWS = 500
FILE_BATCH = 200
LOCK_SECONDS = 20.0


def build_days_parameter(name: str, default: int, what: str) -> JobParameter:
    return JobParameter(name, "integer", f"days to keep {what} (0: unlimited)", default, least=0, most=MAX_DAYS)


def build_size_parameter(name: str, default: int, what: str, part: str = "day") -> JobParameter:
    return JobParameter(
        name,
        "integer",
        f"maximum MB of {what}; the oldest {part} is deleted first (0: unlimited)",
        default,
        least=0,
        most=MAX_MEGABYTES,
    )


PARAMETERS = (
    build_days_parameter("archive_days", 90, "archived events and training sets"),
    build_days_parameter("raw_days", 14, "per-second metrics"),
    build_days_parameter("10s_days", 60, "10-second metrics"),
    build_days_parameter("1m_days", 400, "per-minute metrics"),
    build_days_parameter("1h_days", FOREVER, "hourly metrics"),
    build_days_parameter("snapshot_days", 14, "snapshots"),
    build_days_parameter("alert_days", 400, "resolved alerts and messages"),
    build_days_parameter("ledger_days", 90, "ledger entries"),
    build_days_parameter("plan_days", 90, "ended plans"),
    build_days_parameter("run_days", 400, "ended runs of tasks and their comparisons"),
    build_days_parameter("record_days", 400, "ended overrides, silences, and tunings, and inactive pipeline versions"),
    build_days_parameter("extract_days", 90, "extracts and uploaded traces"),
    build_days_parameter("experiment_days", 400, "experiments of the lab with their series"),
    build_days_parameter("handled_days", FOREVER, "rows of handled events in the data folder"),
    build_size_parameter("archive_megabytes", 50_000, "archived events"),
    build_size_parameter("raw_megabytes", 5_000, "per-second metrics"),
    build_size_parameter("snapshot_megabytes", 5_000, "snapshots"),
    build_size_parameter("handled_megabytes", 10_000, "rows of handled events in the data folder", "hour"),
    JobParameter(
        "ledger_entries",
        "integer",
        "maximum number of ledger entries; the oldest are deleted first (0: unlimited)",
        10_000_000,
        least=0,
        most=MAX_ENTRIES,
    ),
)


def keep(since: datetime, until: datetime, reason: str, queue: str = "", owner: Any = None) -> Keep:
    """Keep a time range. Raises BadInput when it has no reason or ends before it starts."""
    if not reason.strip():
        raise BadInput("reason", "is required, such as the incident for which you keep the time range.")
    if until < since:
        raise BadInput("until", "must not be before since.")
    return Keep.objects.create(since=since, until=until, reason=reason.strip(), queue=queue, owner=owner)


def iterate_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the due data: archive partitions, days of metrics and snapshots, ranges of ledger ids.

    Each is returned once. Data that is both old and above a size limit is deleted for its size, since a part of it
    might be kept for its age.
    """
    pieces_by_id = {
        piece.identifier: piece
        for piece in [*_iterate_old_chunks(values, where), *_iterate_excess_chunks(values, where)]
    }
    yield from pieces_by_id.values()
    yield from _plan_row_deletion(values, where)


def _iterate_old_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the data that is older than its age limit."""
    yield from _archive_pieces(values["archive_days"], where)
    yield from _plan_training_deletion(values["archive_days"], where)
    for step in ("raw", *metric_history.ROLLUP_SECONDS):
        yield from _metric_pieces(step, values[f"{step}_days"], where)
    yield from _snapshot_pieces(values["snapshot_days"], where)
    yield from _iterate_ledger_chunks(values["ledger_days"], where)
    yield from _alert_pieces(values["alert_days"], where)
    yield from _plan_pieces(values["plan_days"], where)
    yield from _run_pieces(values["run_days"], where)
    yield from _record_pieces(values["record_days"], where)
    yield from lab_retention.iterate_chunks(where, values["extract_days"], values["experiment_days"])
    if select_due_loops(compute_cutoff(RETIRED_LOOP_DAYS, where.now)).exists():
        yield ChunkSpec("loops", {"kind": "loops", "before": compute_cutoff(RETIRED_LOOP_DAYS, where.now).isoformat()})


def _iterate_excess_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the oldest data above a size limit."""
    partitions = {
        large_partition: sum_folder_bytes(large_partition.get_folder(where.data))
        for large_partition in event_archive.list_partitions(where.data)
    }
    for partition in _list_excess_partitions(partitions, values["archive_megabytes"], where.now):
        yield _archive_piece(partition, FOREVER)
    raw = {
        day: sum_folder_bytes(_get_metric_folder("raw", where) / f"day={day}")
        for day in _list_metric_days("raw", where)
    }
    for day in _list_excess_days(raw, values["raw_megabytes"], where.now):
        yield _build_metric_chunk("raw", day)
    snapshots = {
        day: sum_folder_bytes(snapshot_archive.get_day_folder(where.data, day))
        for day in snapshot_archive.list_archived_days(where.data)
    }
    for day in _list_excess_days(snapshots, values["snapshot_megabytes"], where.now):
        yield _snapshot_piece(day)
    yield from _iterate_excess_ranges(values["ledger_entries"], where)


def _list_excess_partitions(
    sizes_bytes: Mapping[event_archive.Partition, int], most_megabytes: int, now: datetime
) -> list[event_archive.Partition]:
    newest = find_newest_days((partition.day for partition in sizes_bytes), now)
    return list_excess_items(
        sizes_bytes,
        most_megabytes,
        lambda partition: partition.day in newest or is_retained(partition.day, partition.queue),
    )


def _list_excess_days(sizes_bytes: Mapping[str, int], most_megabytes: int, now: datetime) -> list[str]:
    newest = find_newest_days(sizes_bytes, now)
    return list_excess_items(sizes_bytes, most_megabytes, lambda day: day in newest or is_retained(day))


def find_newest_days(days: Iterable[str], now: datetime) -> set[str]:
    """Return the days that are never deleted for size: today and the newest.

    A clock that is ahead creates days after today.
    """
    return {now.astimezone(UTC).date().isoformat(), max(days, default="")}


def list_excess_items(sizes_bytes: Mapping[T, int], most_megabytes: int, stays: Callable[[T], bool]) -> list[T]:
    """Return what to delete from a list, oldest first, so that the rest fits.

    Protected data counts towards the limit, so that more of the other data is deleted.
    """
    over = sum(sizes_bytes.values()) - most_megabytes * BYTES_PER_MEGABYTE
    surplus: list[T] = []
    if most_megabytes == FOREVER:
        return surplus
    for each, size_bytes in sizes_bytes.items():
        if over <= 0:
            break
        if not stays(each):
            surplus.append(each)
            over -= size_bytes
    return surplus


def _iterate_excess_ranges(most: int, where: JobContext) -> Iterator[ChunkSpec]:
    """Return all but the newest `most` entries by id; ids increase with time."""
    if most == FOREVER:
        return
    newest = LedgerEntry.objects.order_by("-pk").values_list("pk", flat=True)[most : most + 1].first()
    if newest is not None:
        yield from _iterate_ledger_ranges(newest, where.now)


def work(lease: Any) -> ChunkResult:
    """Delete one chunk's share of the due data, except kept ranges."""
    return _WORK[lease.content["kind"]](lease)


def open_job(where: JobContext) -> nullcontext[Work]:
    return nullcontext(work)


def compute_cutoff(days: int, now: datetime) -> datetime:
    """Return the time before which data is due."""
    return now - timedelta(days=days)


def is_retained(day: str, queue: str | None = None) -> bool:
    """Return whether a kept range covers the day (of this queue; None: of data that belongs to no queue)."""
    begin = datetime.combine(date.fromisoformat(day), time.min, UTC)
    ranges = Keep.objects.filter(since__lt=begin + timedelta(days=1), until__gte=begin)
    return (ranges.filter(queue__in=["", queue]) if queue is not None else ranges).exists()


def _archive_pieces(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    if days == FOREVER:
        return
    for partition in event_archive.list_partitions(where.data, until=_compute_last_due_day(days, where.now)):
        if not is_retained(partition.day, partition.queue):
            yield _archive_piece(partition, days)


def _archive_piece(partition: event_archive.Partition, days: int) -> ChunkSpec:
    content = {"kind": "archive", "queue": partition.queue, "day": partition.day, "days": days}
    return ChunkSpec(f"archive/{partition.identifier}", content)


def _plan_training_deletion(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    """Return training data to delete; it is derived from archived events and is kept as long as they are."""
    before = compute_cutoff(days, where.now)
    if days != FOREVER and _list_old_training_sets(where.data, before):
        yield ChunkSpec("training", {"kind": "training", "before": before.isoformat()})


def _metric_pieces(step: str, days: int, where: JobContext) -> Iterator[ChunkSpec]:
    if days == FOREVER:
        return
    for day in _list_metric_days(step, where):
        if day <= _compute_last_due_day(days, where.now) and not is_retained(day):
            yield _build_metric_chunk(step, day)


def _get_metric_folder(step: str, where: JobContext) -> Path:
    return where.data / metric_history.METRICS_ROOT / step


def _list_metric_days(step: str, where: JobContext) -> list[str]:
    return list_days(_get_metric_folder(step, where).glob("day=*"), ".parquet")


def _build_metric_chunk(step: str, day: str) -> ChunkSpec:
    return ChunkSpec(f"metrics/{step}/day={day}", {"kind": "metrics", "step": step, "day": day})


def _snapshot_pieces(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    if days == FOREVER:
        return
    for day in snapshot_archive.list_archived_days(where.data):
        if day <= _compute_last_due_day(days, where.now) and not is_retained(day):
            yield _snapshot_piece(day)


def _snapshot_piece(day: str) -> ChunkSpec:
    return ChunkSpec(f"snapshots/day={day}", {"kind": "snapshots", "day": day})


def _iterate_ledger_chunks(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    if days == FOREVER:
        return
    before = compute_cutoff(days, where.now)
    last = LedgerEntry.objects.filter(at__lt=before).aggregate(last=Max("pk"))["last"]
    if last is not None:
        yield from _iterate_ledger_ranges(last, before)


def _iterate_ledger_ranges(last: int, before: datetime) -> Iterator[ChunkSpec]:
    """Return ranges of the entries up to this id that are older than the time.

    They start at the first due entry: entries with a plan stay, and the first of them may be a year of ids older.
    """
    first = select_due_entries(before).filter(pk__lte=last).order_by("pk").values_list("pk", flat=True).first()
    if first is None:
        return
    for begin in range(first, last + 1, LEDGER_RANGE_IDS):
        end = min(begin + LEDGER_RANGE_IDS - 1, last)
        content = {"kind": "ledger", "first": begin, "last": end, "before": before.isoformat()}
        yield ChunkSpec(f"ledger/{begin}-{end}", content)


def _alert_pieces(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    if days == FOREVER:
        return
    before = compute_cutoff(days, where.now)
    if select_due_alerts(before).exists() or Message.objects.filter(created_at__lt=before).exists():
        yield ChunkSpec("alerts", {"kind": "alerts", "before": before.isoformat()})


def _plan_pieces(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    before = compute_cutoff(days, where.now)
    if days != FOREVER and select_due_plans(before).exists():
        yield ChunkSpec("plans", {"kind": "plans", "before": before.isoformat()})


def _run_pieces(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    before = compute_cutoff(days, where.now)
    if days != FOREVER and (
        Run.objects.filter(ended_at__lt=before).exists() or _list_old_comparisons(where.data, before)
    ):
        yield ChunkSpec("runs", {"kind": "runs", "before": before.isoformat()})


def _record_pieces(days: int, where: JobContext) -> Iterator[ChunkSpec]:
    before = compute_cutoff(days, where.now)
    if days != FOREVER and old_records.exist(before):
        yield ChunkSpec("records", {"kind": "records", "before": before.isoformat()})


def _plan_row_deletion(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return one chunk, due or not: finding out requires reading all rows, which its worker does."""
    days, most = values["handled_days"], values["handled_megabytes"]
    if (days == FOREVER and most == FOREVER) or not handled_rows.exists(where.data):
        return
    before = "" if days == FOREVER else compute_cutoff(days, where.now).isoformat()
    yield ChunkSpec("handled", {"kind": "handled", "before": before, "megabytes": most})


def _delete_archive(lease: Any) -> ChunkResult:
    """Delete a partition's files that were also written long ago.

    History that was published recently has old days, but is not old.
    """
    queue, day = lease.content["queue"], lease.content["day"]
    data, now = lease.surroundings.data, lease.clock()
    folder = event_archive.Partition(day, queue).get_folder(data)
    oldest = compute_cutoff(lease.content["days"], now).timestamp()
    due = [path for path in event_archive.list_parquet_files(folder) if path.stat().st_mtime < oldest]
    for batch in _split_into_batches(due, FILE_BATCH):
        with _open_index(data / event_archive.ROOT) as index, lease.guard_transaction():
            # This is checked again: a range may have been kept since the run was planned.
            if is_retained(day, queue):
                break
            _forget(index, data / event_archive.ROOT, batch)
            for path in batch:
                path.unlink(missing_ok=True)
        lease.check({"rows": len(due), "share": None, "chunk": lease.chunk.identifier})
    _remove_if_empty(folder)
    return ChunkResult(len(due))


@contextmanager
def _open_index(root: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the archive's index with its write lock; None where there is none.

    Workers hold that lock while they write a file. Waiting for it under the lease's guard would make all loops wait
    where the database is SQLite.
    """
    path = root / "index.sqlite3"
    if not path.exists():
        yield None
        return
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as index:
        index.execute("BEGIN IMMEDIATE")
        yield index


def _forget(index: sqlite3.Connection | None, root: Path, paths: list[Path]) -> None:
    """Remove files from the archive's index before they are deleted.

    Otherwise the index would name a missing file, and a block that is delivered again would count as archived. A crash
    in between leaves files that the next run deletes.
    """
    if index is not None:
        rows = [(str(path.relative_to(root)),) for path in paths]
        index.executemany("DELETE FROM blocks WHERE file = ?", rows)
        index.execute("COMMIT")


def _delete_training(lease: Any) -> ChunkResult:
    due = _list_old_training_sets(lease.surroundings.data, datetime.fromisoformat(lease.content["before"]))
    for batch in _split_into_batches(due, FILE_BATCH):
        with lease.guard_transaction():
            for path in batch:
                path.unlink(missing_ok=True)
    return ChunkResult(len(due))


def _delete_metrics(lease: Any) -> ChunkResult:
    step, day = lease.content["step"], lease.content["day"]
    root = lease.surroundings.data / metric_history.METRICS_ROOT
    rolled = resolve_inside_folder(root, f"{step}/day={day}.parquet", "day")
    folder = resolve_inside_folder(root, f"{step}/day={day}", "day")
    paths = [rolled] if rolled.exists() else event_archive.list_parquet_files(folder)
    return _delete_day(lease, folder, paths)


def _delete_snapshots(lease: Any) -> ChunkResult:
    folder = snapshot_archive.get_day_folder(lease.surroundings.data, lease.content["day"])
    return _delete_day(lease, folder, list(folder.glob("*")))


def _delete_day(lease: Any, folder: Path, paths: list[Path]) -> ChunkResult:
    """Delete a day's files, and its folder when it is empty, unless the day is kept in the meantime."""
    with lease.guard_transaction():
        if is_retained(lease.content["day"]):
            return ChunkResult(0)
        for path in paths:
            path.unlink(missing_ok=True)
    _remove_if_empty(folder)
    return ChunkResult(len(paths))


def _delete_ledger(lease: Any) -> ChunkResult:
    """Delete a range of ids, a few hundred rows per transaction, so that no tick waits long."""
    before = datetime.fromisoformat(lease.content["before"])
    deleted = 0
    while True:
        with lease.guard_transaction():
            due = select_due_entries(before).filter(pk__range=(lease.content["first"], lease.content["last"]))
            ids = list(due.order_by("pk").values_list("pk", flat=True)[:LEDGER_BATCH_ROWS])
            deleted += LedgerEntry.objects.filter(pk__in=ids).delete()[0]
        if len(ids) < LEDGER_BATCH_ROWS:
            return ChunkResult(deleted)
        lease.check({"rows": deleted, "share": None, "chunk": lease.chunk.identifier})


def _delete_alerts(lease: Any) -> ChunkResult:
    """Delete alerts that had ended by then, with their records, and messages, a few hundred at a time."""
    before = datetime.fromisoformat(lease.content["before"])
    deleted = 0
    while True:
        with lease.guard_transaction():
            ids = list(select_due_alerts(before).order_by("pk").values_list("pk", flat=True)[:LEDGER_BATCH_ROWS])
            Alert.objects.filter(pk__in=ids).delete()
            deleted += len(ids)
            if len(ids) < LEDGER_BATCH_ROWS:
                Message.objects.filter(created_at__lt=before).exclude(state="waiting").delete()
                return ChunkResult(deleted)
        lease.check({"rows": deleted, "share": None, "chunk": lease.chunk.identifier})


def _delete_plans(lease: Any) -> ChunkResult:
    """Delete plans that had ended by then, with the fencing numbers of their leases.

    A plan that was undone is deleted after the plan that undid it.
    """
    before = datetime.fromisoformat(lease.content["before"])
    deleted = 0
    while True:
        with lease.guard_transaction():
            ids = list(select_due_plans(before).order_by("pk").values_list("pk", flat=True)[:LEDGER_BATCH_ROWS])
            if not ids:
                return ChunkResult(deleted)
            # This is first: without the rows the keys are unknown. A lease does not need a number of before.
            lease.surroundings.control.delete(*(keys.FENCE.build(f"plan:{number}") for number in ids))
            Plan.objects.filter(pk__in=ids).delete()
            deleted += len(ids)
        lease.check({"rows": deleted, "share": None, "chunk": lease.chunk.identifier})


def _delete_runs(lease: Any) -> ChunkResult:
    """Delete runs that had ended by then, with their chunks and comparisons.

    One is deleted at a time, as it may have thousands of chunks.
    """
    before = datetime.fromisoformat(lease.content["before"])
    deleted = 0
    for number in Run.objects.filter(ended_at__lt=before).order_by("pk").values_list("pk", flat=True):
        with lease.guard_transaction():
            Run.objects.filter(pk=number).delete()
        deleted += 1
        lease.check({"rows": deleted, "share": None, "chunk": lease.chunk.identifier})
    for batch in _split_into_batches(_list_old_comparisons(lease.surroundings.data, before), FILE_BATCH):
        with lease.guard_transaction():
            for path in batch:
                path.unlink(missing_ok=True)
        deleted += len(batch)
    return ChunkResult(deleted)


def _delete_records(lease: Any) -> ChunkResult:
    rows = 0
    for count in old_records.delete_ended_settings(
        datetime.fromisoformat(lease.content["before"]), lease.guard_transaction
    ):
        rows += count
        lease.check({"rows": rows, "share": None, "chunk": lease.chunk.identifier})
    return ChunkResult(rows)


def _delete_loops(lease: Any) -> ChunkResult:
    """Delete loops of hosts that were gone by then, with the fencing numbers of their leases."""
    before = datetime.fromisoformat(lease.content["before"])
    deleted = 0
    while True:
        with lease.guard_transaction():
            ids = list(select_due_loops(before).order_by("pk").values_list("pk", flat=True)[:LEDGER_BATCH_ROWS])
            if not ids:
                return ChunkResult(deleted)
            lease.surroundings.control.delete(*(keys.FENCE.build(f"loop:{number}") for number in ids))
            Loop.objects.filter(pk__in=ids).delete()
            deleted += len(ids)
        lease.check({"rows": deleted, "share": None, "chunk": lease.chunk.identifier})


def _delete_handled(lease: Any) -> ChunkResult:
    """Delete rows of old events, and the oldest rows above the size limit.

    Some thousands are deleted at a time, because workers wait for the file.
    """
    before = lease.content["before"]
    old_us = (
        handled_rows.convert_to_microseconds(datetime.fromisoformat(before)) if before else handled_rows.LONG_AGO_US
    )
    before_us = max(old_us, _compute_handled_cutoff_us(lease))
    if before_us <= handled_rows.LONG_AGO_US:
        return ChunkResult(0)
    rows = 0
    for count in handled_rows.delete_rows(lease.surroundings.data, before_us, lease.guard_transaction):
        rows += count
        lease.check({"rows": rows, "share": None, "chunk": lease.chunk.identifier})
    return ChunkResult(rows)


def _compute_handled_cutoff_us(lease: Any) -> int:
    """Return the time before which rows exceed the size limit; a file that is small enough is not read."""
    data, most = lease.surroundings.data, lease.content.get("megabytes", FOREVER) * BYTES_PER_MEGABYTE
    if most == FOREVER or handled_rows.measure_file_bytes(data) <= most:
        return handled_rows.LONG_AGO_US
    sizes = handled_rows.RowSizes()
    for _ in handled_rows.measure_rows(data, sizes):
        lease.check()
    return sizes.compute_cutoff_us(most, lease.clock())


def _list_old_comparisons(data: Path, before: datetime) -> list[Path]:
    """Return files of comparisons that were made before that."""
    return list_files_written_before(before, (data / stretches.COMPARISONS_ROOT).glob("*/*.parquet"))


def _list_old_training_sets(data: Path, before: datetime) -> list[Path]:
    """Return training sets that were made before that; only the newest two weeks of days are ever read."""
    return list_files_written_before(before, (data / training_sets.ROOT).glob("queue=*/day=*.parquet"))


def select_due_alerts(before: datetime) -> QuerySet[Alert]:
    """Return alerts that had ended by then, except those that fired in a kept range or have open work."""
    to_do = FollowUp.objects.filter(done_at=None).values("incident")
    due = Alert.objects.filter(resolved_at__lt=before).exclude(pk__in=to_do)
    for since, until in Keep.objects.values_list("since", "until"):
        due = due.exclude(fired_at__range=(since, until))
    return due


def select_due_loops(before: datetime) -> QuerySet[Loop]:
    """Return retired loops of worker hosts and attached pools that last ticked before that.

    They have no other data: decisions, settings of a person, or tunings. Targets of other loops return by their names.
    """
    retired = Loop.objects.filter(target__has_key="retired_at", ticked_at__lt=before)
    nothing = {"entries": None, "overrides": None, "tunings": None, "first_report": None}
    of_a_pool = Q(target__has_key="host") | Q(target__has_keys=["plant", "operator"])
    return retired.filter(of_a_pool, **nothing)


def select_due_plans(before: datetime) -> QuerySet[Plan]:
    """Return plans that had ended by then, except those that are kept or still needed.

    Needed plans are those that another one undoes, the newest of each loop and kind
    (`workers.placement.plant_sensors`), those from which a node may get its points back, and those that
    returned them (`workers.placement.recovery`).
    """
    by_loops = Plan.objects.filter(owner=None).exclude(law="").values("law", "kind")
    newest = by_loops.annotate(newest=Max("pk")).values_list("newest", flat=True)
    restoring = [plan.pk for plan in recovery.list_restoring_plans()]
    due = Plan.objects.filter(ended_at__lt=before, undone_by__isnull=True).exclude(state__in=OPEN)
    due = due.exclude(pk__in=[*newest, *restoring]).exclude(undoes__in=restoring)
    for since, until in Keep.objects.values_list("since", "until"):
        due = due.exclude(created_at__range=(since, until)).exclude(ended_at__range=(since, until))
    return due


def select_due_entries(before: datetime) -> QuerySet[LedgerEntry]:
    """Return older entries, except those in a kept range, with an open check, or with a plan."""
    due = LedgerEntry.objects.filter(at__lt=before, plan__isnull=True).exclude(verdict=LedgerEntry.Verdict.CHECKING)
    for since, until in Keep.objects.values_list("since", "until"):
        due = due.exclude(at__range=(since, until))
    return due


def _compute_last_due_day(days: int, now: datetime) -> str:
    """Return the newest day of which everything is older than this number of days."""
    return (compute_cutoff(days, now).date() - timedelta(days=1)).isoformat()


def _split_into_batches(paths: list[Path], size: int) -> Iterable[list[Path]]:
    return (paths[place : place + size] for place in range(0, len(paths), size))


def _remove_if_empty(folder: Path) -> None:
    """Remove the folder unless hidden leftovers or a new file are in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


_WORK = {
    "archive": _delete_archive,
    "training": _delete_training,
    "metrics": _delete_metrics,
    "snapshots": _delete_snapshots,
    "ledger": _delete_ledger,
    "alerts": _delete_alerts,
    "plans": _delete_plans,
    "runs": _delete_runs,
    "records": _delete_records,
    "loops": _delete_loops,
    "handled": _delete_handled,
    **lab_retention.WORK,
}
