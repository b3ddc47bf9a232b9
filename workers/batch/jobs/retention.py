"""Retention: deletes data that is older than its number of days, and the oldest data above a size limit.

It also moves old days of the task history from the database into files.

Each store selects its own due data; the job calls them in order, and deletes under its lease. For size, it deletes
nothing of today or of the newest day. It never deletes data that an incident refers to (`workers.steering.kept`). Loops
of deleted worker hosts are deleted with the last data about them. A chunk deletes one partition, day, range of ids, or
kind of record.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django.db.models import Exists, Max, OuterRef, QuerySet

from common.files import resolve_inside_folder
from common.parameter import Parameter
from queues import keys
from workers.alerts.lifecycle.open_alerts import select_due_alerts, select_due_messages, select_due_silences
from workers.batch.files import list_files_written_before, sum_folder_bytes
from workers.batch.job import ChunkResult, ChunkSpec, HeldChunk, Job, JobContext, Values, Work
from workers.consumer import handled_rows
from workers.control.ledger.ledger import select_due_entries
from workers.control.loops import select_due_loops
from workers.history import event_archive, metric_history, snapshot_archive, stretches, training_sets
from workers.history.event_archive import Partition, list_days, remove_if_empty
from workers.host.bounded_process import BYTES_PER_MEBIBYTE
from workers.lab.models import expire_experiments, select_due_experiments
from workers.models import LedgerEntry, PipelineVersion, Run
from workers.placement.recovery import select_due_plans
from workers.steering.kept import is_kept
from workers.steering.overrides import select_due_overrides
from workers.task_history import archive as task_archive
from workers.windows.occurrences import select_due_windows

FOREVER = 0  # in days; for a size limit: whatever its age
MAX_DAYS = 36_500
MAX_MEGABYTES, MAX_ENTRIES = 10**9, 10**10
RETIRED_LOOP_DAYS = 30
RETAINED_VERSIONS = 10  # versions of an application besides the active one
LEDGER_RANGE_IDS = 20_000
BATCH_ROWS = 500
BATCH_FILES = 200
T = TypeVar("T")


def _build_days(name: str, default: int, what: str) -> Parameter:
    text = f"days to keep {what} (0: unlimited)"
    return Parameter(name, "days", text, default, maximum=MAX_DAYS, kind="integer")


def _build_size(name: str, default: int, what: str, part: str = "day") -> Parameter:
    text = f"maximum MiB of {what}; the oldest {part} is deleted first (0: unlimited)"
    return Parameter(name, "MiB", text, default, maximum=MAX_MEGABYTES, kind="integer")


PARAMETERS = (
    _build_days("archive_days", 90, "archived events and training sets"),
    _build_days("raw_days", 14, "per-second metrics"),
    _build_days("10s_days", 60, "10-second metrics"),
    _build_days("1m_days", 400, "per-minute metrics"),
    _build_days("1h_days", FOREVER, "hourly metrics"),
    _build_days("snapshot_days", 14, "snapshots"),
    _build_days("alert_days", 400, "resolved alerts and messages"),
    _build_days("ledger_days", 90, "ledger entries"),
    _build_days("plan_days", 90, "ended plans"),
    _build_days("run_days", 400, "ended runs of tasks and their comparisons"),
    _build_days("record_days", 400, "ended overrides, silences, and planned windows, and inactive pipeline versions"),
    _build_days("extract_days", 90, "extracts and uploaded traces"),
    _build_days("experiment_days", 400, "experiments of the lab with their series"),
    _build_days("handled_days", FOREVER, "rows of handled events in the data folder"),
    _build_days("task_days", 30, "the task history of attached plants"),
    _build_days("task_database_days", 2, "the task history in the database; older days move to files"),
    _build_size("archive_megabytes", 50_000, "archived events"),
    _build_size("raw_megabytes", 5_000, "per-second metrics"),
    _build_size("snapshot_megabytes", 5_000, "snapshots"),
    _build_size("task_megabytes", 20_000, "archived days of the task history"),
    _build_size("handled_megabytes", 10_000, "rows of handled events in the data folder", "hour"),
    Parameter(
        "ledger_entries",
        "entries",
        "maximum number of ledger entries; the oldest are deleted first (0: unlimited)",
        10_000_000,
        maximum=MAX_ENTRIES,
        kind="integer",
    ),
)


def select_due_versions(before: datetime) -> QuerySet[PipelineVersion]:
    """Return the versions from before this time that are neither active nor among the newest, for a rollback."""
    newest = PipelineVersion.objects.filter(application=OuterRef("application")).order_by("-number")
    old = PipelineVersion.objects.filter(created_at__lt=before, active=False)
    return old.filter(Exists(newest.filter(number__gte=OuterRef("number") + RETAINED_VERSIONS).order_by()))


def select_due_runs(before: datetime) -> QuerySet[Run]:
    return Run.objects.filter(ended_at__lt=before)


Select = Callable[[datetime], QuerySet[Any]]
# Kind of chunk → the parameter with its days, and the rows that are due.
ROWS: dict[str, tuple[str, tuple[Select, ...]]] = {
    "alerts": ("alert_days", (select_due_alerts, select_due_messages)),
    "plans": ("plan_days", (select_due_plans,)),
    "runs": ("run_days", (select_due_runs,)),
    "records": ("record_days", (select_due_overrides, select_due_silences, select_due_windows, select_due_versions)),
    "task-failures": (
        "task_days",
        (
            lambda before: task_archive.select_due_gaps(before.timestamp()),
            lambda before: task_archive.select_due_groups(before.timestamp()),
        ),
    ),
    "loops": ("", (select_due_loops,)),
}
TASK_KINDS = ("task-seal", "task-archive", "tasks")
FENCED = {"plans": "plan", "loops": "loop"}  # whose leases have fencing numbers on the control server
# Kind of chunk → the parameter with its days, and its files in the data folder.
FILES: dict[str, tuple[str, Callable[[Path], Iterable[Path]]]] = {
    # They are derived from archived events, and kept as long as they are.
    "training": ("archive_days", lambda data: (data / training_sets.ROOT).glob("queue=*/day=*.parquet")),
    "comparisons": ("run_days", lambda data: (data / stretches.COMPARISONS_ROOT).glob("*/*.parquet")),
    "extracts": ("extract_days", event_archive.iterate_extract_files),
}


def iterate_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the due data: archive partitions, days of metrics and snapshots, ranges of ledger ids, kinds of records.

    Each is returned once. Data that is both old and above a size limit is deleted for its size, since a part of it
    might be kept for its age.
    """
    chunks = [*_iterate_old_chunks(values, where), *_iterate_excess_chunks(values, where)]
    yield from {chunk.identifier: chunk for chunk in chunks}.values()
    yield from _iterate_task_moves(values, where)
    days, most = values["handled_days"], values["handled_megabytes"]
    if (days != FOREVER or most != FOREVER) and handled_rows.exists(where.data):
        # Due or not: finding out requires reading all rows, which its worker does.
        before = "" if days == FOREVER else compute_cutoff(days, where.now).isoformat()
        yield ChunkSpec("handled", {"kind": "handled", "before": before, "megabytes": most})


def _iterate_task_moves(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the days of the task history that move into files."""
    days = values["task_database_days"]
    if days == FOREVER:
        return
    before = compute_cutoff(days, where.now)
    if task_archive.has_unsealed(before.timestamp()):
        yield ChunkSpec("task-seal", {"kind": "task-seal"})
    for plant, day in task_archive.list_stored_days(_find_last_day(days, where.now)):
        yield _build_task_chunk("task-archive", plant, day)


def _iterate_old_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the data that is older than its age limit."""

    def list_due_days(days: int, known: Iterable[str]) -> list[str]:
        last = _find_last_day(days, where.now)
        return [day for day in known if day <= last and not is_kept(day)] if days != FOREVER else []

    if days := values["archive_days"]:
        last = _find_last_day(days, where.now)
        for partition in event_archive.list_partitions(where.data, until=last):
            if not is_kept(partition.day, partition.queue):
                yield _build_archive_chunk(partition, days)
    for step in ("raw", *metric_history.ROLLUP_SECONDS):
        for day in list_due_days(values[f"{step}_days"], _list_metric_days(step, where.data)):
            yield _build_day_chunk("metrics", day, step)
    for day in list_due_days(values["snapshot_days"], snapshot_archive.list_archived_days(where.data)):
        yield _build_day_chunk("snapshots", day)
    if days := values["task_days"]:
        last = _find_last_day(days, where.now)
        stored = dict.fromkeys([*task_archive.list_stored_days(last), *task_archive.list_archived_days(last)])
        for plant, day in stored:
            if not is_kept(day):
                yield _build_task_chunk("tasks", plant, day)
    if days := values["ledger_days"]:
        before = compute_cutoff(days, where.now)
        last_id = LedgerEntry.objects.filter(at__lt=before).aggregate(last=Max("pk"))["last"]
        yield from _iterate_ledger_ranges(last_id, before)
    for kind, (name, selects) in ROWS.items():
        days = values[name] if name else RETIRED_LOOP_DAYS
        before = compute_cutoff(days, where.now)
        if days != FOREVER and any(select(before).exists() for select in selects):
            yield ChunkSpec(kind, {"kind": kind, "before": before.isoformat()})
    for kind, (name, list_files) in FILES.items():
        before = compute_cutoff(values[name], where.now)
        if values[name] != FOREVER and list_files_written_before(before, list_files(where.data)):
            yield ChunkSpec(kind, {"kind": kind, "before": before.isoformat()})
    before = compute_cutoff(values["experiment_days"], where.now)
    if values["experiment_days"] != FOREVER and select_due_experiments(before).exists():
        yield ChunkSpec("experiments", {"kind": "experiments", "before": before.isoformat()})


def _iterate_excess_chunks(values: Values, where: JobContext) -> Iterator[ChunkSpec]:
    """Return the oldest data above a size limit."""
    data, today = where.data, where.now.astimezone(UTC).date().isoformat()

    def list_excess_days(known: Mapping[str, Path], most_megabytes: int) -> list[str]:
        sizes = {day: sum_folder_bytes(folder) for day, folder in known.items()}
        # A clock that is ahead creates days after today.
        newest = {today, max(known, default="")}
        return list_excess_items(sizes, most_megabytes, lambda day: day in newest or is_kept(day))

    partitions = {part: sum_folder_bytes(part.get_folder(data)) for part in event_archive.list_partitions(data)}
    newest = {today, max((partition.day for partition in partitions), default="")}
    for partition in list_excess_items(
        partitions,
        values["archive_megabytes"],
        lambda partition: partition.day in newest or is_kept(partition.day, partition.queue),
    ):
        yield _build_archive_chunk(partition, FOREVER)
    raw = {day: data / metric_history.METRICS_ROOT / "raw" / f"day={day}" for day in _list_metric_days("raw", data)}
    for day in list_excess_days(raw, values["raw_megabytes"]):
        yield _build_day_chunk("metrics", day, "raw")
    snapshots = {day: snapshot_archive.get_day_folder(data, day) for day in snapshot_archive.list_archived_days(data)}
    for day in list_excess_days(snapshots, values["snapshot_megabytes"]):
        yield _build_day_chunk("snapshots", day)
    tasks = {part: sum_folder_bytes(folder) for part, folder in task_archive.list_day_folders().items()}
    newest = {today, max((day for _, day in tasks), default="")}
    for plant, day in list_excess_items(
        tasks, values["task_megabytes"], lambda part: part[1] in newest or is_kept(part[1])
    ):
        yield _build_task_chunk("tasks", plant, day)
    if most := values["ledger_entries"]:
        # All but the newest entries by id; ids increase with time.
        last_id = LedgerEntry.objects.order_by("-pk").values_list("pk", flat=True)[most : most + 1].first()
        yield from _iterate_ledger_ranges(last_id, where.now)


def list_excess_items(sizes_bytes: Mapping[T, int], most_megabytes: int, stays: Callable[[T], bool]) -> list[T]:
    """Return what to delete from a list, oldest first, so that the rest fits.

    Protected data counts towards the limit, so that more of the other data is deleted.
    """
    over = sum(sizes_bytes.values()) - most_megabytes * BYTES_PER_MEBIBYTE
    surplus: list[T] = []
    for item, size_bytes in sizes_bytes.items() if most_megabytes != FOREVER else ():
        if over <= 0:
            break
        if not stays(item):
            surplus.append(item)
            over -= size_bytes
    return surplus


def compute_cutoff(days: int, now: datetime) -> datetime:
    """Return the time before which data is due."""
    return now - timedelta(days=days)


def _find_last_day(days: int, now: datetime) -> str:
    """Return the newest day of which everything is older than this number of days."""
    return (compute_cutoff(days, now).date() - timedelta(days=1)).isoformat()


def _build_task_chunk(kind: str, plant: str, day: str) -> ChunkSpec:
    return ChunkSpec(f"{kind}/plant={plant}/day={day}", {"kind": kind, "plant": plant, "day": day})


def _list_metric_days(step: str, data: Path) -> list[str]:
    return list_days((data / metric_history.METRICS_ROOT / step).glob("day=*"), ".parquet")


def _build_archive_chunk(partition: Partition, days: int) -> ChunkSpec:
    content = {"kind": "archive", "queue": partition.queue, "day": partition.day, "days": days}
    return ChunkSpec(f"archive/{partition.identifier}", content)


def _build_day_chunk(kind: str, day: str, step: str = "") -> ChunkSpec:
    identifier = "/".join(part for part in (kind, step, f"day={day}") if part)
    return ChunkSpec(identifier, {"kind": kind, "step": step, "day": day})


def _iterate_ledger_ranges(last_id: int | None, before: datetime) -> Iterator[ChunkSpec]:
    """Return ranges of the entries up to this id that are older than the time.

    They start at the first due entry: entries with a plan stay, and the first of them may be a year of ids older.
    """
    if last_id is None:
        return
    first = select_due_entries(before).filter(pk__lte=last_id).order_by("pk").values_list("pk", flat=True).first()
    for begin in range(first, last_id + 1, LEDGER_RANGE_IDS) if first is not None else ():
        end = min(begin + LEDGER_RANGE_IDS - 1, last_id)
        content = {"kind": "ledger", "first": begin, "last": end, "before": before.isoformat()}
        yield ChunkSpec(f"ledger/{begin}-{end}", content)


def work(lease: HeldChunk) -> ChunkResult:
    """Delete one chunk's share of the due data, except kept ranges."""
    rows = 0
    for deleted in _delete(lease, lease.content["kind"]):
        rows += deleted
        lease.check({"rows": rows, "share": None, "chunk": lease.identifier})
    return ChunkResult(rows)


def _delete(lease: HeldChunk, kind: str) -> Iterator[int]:
    """Delete, and yield how much after each of many short transactions under the lease."""
    content, data = lease.content, lease.surroundings.data
    if kind in ("metrics", "snapshots"):
        yield _delete_day(lease, content["day"])
        return
    if kind == "archive":
        partition = Partition(content["day"], content["queue"])
        written_before = compute_cutoff(content["days"], lease.clock()).timestamp()
        yield from event_archive.expire_partition(
            data, partition, written_before, lease.guard_transaction, lambda: is_kept(partition.day, partition.queue)
        )
        return
    if kind == "handled":
        yield from _delete_handled(lease)
        return
    if kind in TASK_KINDS:
        yield from _work_on_tasks(lease, kind)
        return
    before = datetime.fromisoformat(content["before"])
    if kind == "experiments":
        yield from expire_experiments(data, before, lease.guard_transaction)
    elif kind in FILES:
        due = list_files_written_before(before, FILES[kind][1](data))
        for start in range(0, len(due), BATCH_FILES):
            with lease.guard_transaction():
                for path in due[start : start + BATCH_FILES]:
                    path.unlink(missing_ok=True)
            yield len(due[start : start + BATCH_FILES])
    elif kind == "ledger":
        ids = (content["first"], content["last"])
        yield from _delete_rows(lease, lambda: select_due_entries(before).filter(pk__range=ids), BATCH_ROWS)
    else:
        # A run may have thousands of chunks, so one is deleted at a time.
        most = 1 if kind == "runs" else BATCH_ROWS
        for select in ROWS[kind][1]:
            yield from _delete_rows(lease, partial(select, before), most, FENCED.get(kind, ""))


def _delete_rows(lease: HeldChunk, due: Callable[[], QuerySet[Any]], most: int, fenced: str = "") -> Iterator[int]:
    """Delete the due rows, some per transaction, so that no tick waits long."""
    while True:
        with lease.guard_transaction():
            rows = due()
            ids = list(rows.order_by("pk").values_list("pk", flat=True)[:most])
            if not ids:
                return
            if fenced:
                # This is first: without the rows the keys are unknown. A lease does not need a number of before.
                lease.surroundings.control.delete(*(keys.FENCE.build(f"{fenced}:{number}") for number in ids))
            rows.model.objects.filter(pk__in=ids).delete()
        yield len(ids)


def _delete_day(lease: HeldChunk, day: str) -> int:
    """Delete a day's files, and its folder when it is empty, unless the day is kept in the meantime."""
    data, step = lease.surroundings.data, lease.content["step"]
    if lease.content["kind"] == "snapshots":
        folder = snapshot_archive.get_day_folder(data, day)
        paths = list(folder.glob("*"))
    else:
        root = data / metric_history.METRICS_ROOT
        rolled = resolve_inside_folder(root, f"{step}/day={day}.parquet", "day")
        folder = resolve_inside_folder(root, f"{step}/day={day}", "day")
        paths = [rolled] if rolled.exists() else event_archive.list_parquet_files(folder)
    with lease.guard_transaction():
        if is_kept(day):
            return 0
        for path in paths:
            path.unlink(missing_ok=True)
    remove_if_empty(folder)
    return len(paths)


def _work_on_tasks(lease: HeldChunk, kind: str) -> Iterator[int]:
    """Move tasks into blocks, a day of blocks into files, or delete a day."""
    if kind == "task-seal":
        yield from task_archive.seal_all(lease.clock().timestamp())
        return
    plant, day = lease.content["plant"], lease.content["day"]
    if kind == "task-archive":
        yield from task_archive.archive_day(plant, day, lease.guard_transaction)
    else:
        yield task_archive.delete_day(plant, day, lease.guard_transaction, lambda: is_kept(day))


def _delete_handled(lease: HeldChunk) -> Iterator[int]:
    """Delete rows of old events, and the oldest rows above the size limit.

    Some thousands are deleted at a time, because workers wait for the file. One that is small enough is not read.
    """
    data, before = lease.surroundings.data, lease.content["before"]
    cutoff_us = handled_rows.LONG_AGO_US
    if before:
        cutoff_us = handled_rows.convert_to_microseconds(datetime.fromisoformat(before))
    most = lease.content.get("megabytes", FOREVER) * BYTES_PER_MEBIBYTE
    if most != FOREVER and handled_rows.measure_file_bytes(data) > most:
        sizes = handled_rows.RowSizes()
        for _ in handled_rows.measure_rows(data, sizes):
            lease.check()
        cutoff_us = max(cutoff_us, sizes.compute_cutoff_us(most, lease.clock()))
    if cutoff_us > handled_rows.LONG_AGO_US:
        yield from handled_rows.delete_rows(data, cutoff_us, lease.guard_transaction)


def open_job(where: JobContext) -> nullcontext[Work]:
    return nullcontext(work)


JOBS = (
    Job(
        "retention",
        "Deletes data that is older than its retention period, except kept time ranges, and archives the task history.",
        PARAMETERS,
        open_job,
        pieces=iterate_chunks,
        crontab="10 3 * * *",
    ),
)
