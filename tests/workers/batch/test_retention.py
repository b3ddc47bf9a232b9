"""Retention: what is old goes, what is referred to stays."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import orjson
import pytest
import redis
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from queues import keys
from tests.workers.samples import TIME_US, delivery_of
from tests.workers.windows.samples import plan_window
from workers.alerts.lifecycle.models import Alert, AlertEvent, FollowUp, Incident, Silence
from workers.batch import runs, task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.batch.chunk_leases import ChunkLease
from workers.batch.job import JobContext
from workers.batch.jobs import retention
from workers.consumer import handled_rows
from workers.consumer.handler import Options, Place
from workers.consumer.handlers.parquet import Parquet
from workers.consumer.handlers.sql import SqliteStore
from workers.coordination.leases import Lease
from workers.history import event_archive, snapshot_archive
from workers.history.snapshot_archive import Recorder
from workers.lab.models import Experiment
from workers.lab.series import get_series_file, write_series
from workers.models import Chunk, LedgerEntry, Loop, Override, PipelineVersion, Plan, Run, Task
from workers.steering.kept import keep
from workers.windows.models import PlannedWindow

NOW = datetime(2026, 12, 31, 12, tzinfo=UTC)
DAY = datetime.fromtimestamp(TIME_US / 1e6, UTC).date().isoformat()

pytestmark = pytest.mark.django_db


class Keeper:
    """A data folder, and retention run over it as a worker would."""

    def __init__(self, control: redis.Redis, data: Path) -> None:
        self.where = JobContext(data, control, NOW)
        task_definitions.ensure_tasks()

    def run(self, **days: int) -> Run:
        values = dict.fromkeys((each.name for each in retention.PARAMETERS), 0)
        run = runs.begin("retention", self.where, {**values, **days})
        sent: list[tuple[int, str, str, bool]] = []
        while run.state in runs.OPEN:
            task_managers.manage_run(run, self.where.control, NOW, lambda *worker: sent.append(worker))
            while sent:
                batch_worker.work_at(run.pk, sent.pop()[1], self.where.control, self.where.data, lambda: NOW)
            run.refresh_from_db()
        return run


@pytest.fixture
def keeper(control, tmp_path):
    return Keeper(control, tmp_path)


def archived(keeper: Keeper, block: str = "ab" * 16, age_days: float = 100) -> Path:
    """A block in the archive, by the handler itself, written so long ago."""
    place = Place("process", keeper.where.data)
    Parquet(place, Options("parquet", {})).handle([delivery_of(4, block)])
    newest = max((keeper.where.data / "archive").glob("queue=*/day=*/*.parquet"), key=os.path.getmtime)
    written = (NOW - timedelta(days=age_days)).timestamp()
    os.utime(newest, (written, written))
    return newest


def entry(loop: Loop, age_days: float, **fields: object) -> LedgerEntry:
    at = NOW - timedelta(days=age_days)
    return LedgerEntry.objects.create(loop=loop, at=at, mode="auto", parameters={}, reason="A test.", **fields)


def test_old_events_go_with_their_index_and_may_be_archived_again(keeper):
    path, new = archived(keeper), archived(keeper, "cd" * 16, age_days=1)
    assert keeper.run(archive_days=0).chunks_total == 0 and path.exists(), "no days mean for ever"
    run = keeper.run(archive_days=30)
    assert (run.state, run.progress["rows"]) == ("done", 1)
    assert new.exists() and not path.exists()
    assert archived(keeper).exists()


@given(st.lists(st.tuples(st.integers(0, 9_000_000), st.booleans()), max_size=8), st.integers(1, 20))
def test_the_oldest_go_until_the_rest_fits_and_no_more(rows, most):
    sizes = {number: size for number, (size, _) in enumerate(rows)}
    may_go = [number for number, (_, stays) in enumerate(rows) if not stays]
    gone = retention.list_excess_items(sizes, most, lambda number: rows[number][1])
    assert gone == may_go[: len(gone)]
    left = sum(sizes.values()) - sum(sizes[number] for number in gone)
    assert left <= most * retention.BYTES_PER_MEBIBYTE or gone == may_go
    assert not gone or left + sizes[gone[-1]] > most * retention.BYTES_PER_MEBIBYTE
    assert retention.list_excess_items(sizes, retention.FOREVER, lambda _: False) == []


def snapshots(keeper: Keeper, day: int, size_bytes: int) -> Path:
    folder = snapshot_archive.get_day_folder(keeper.where.data, f"2026-12-{day:02}")
    folder.mkdir(parents=True)
    (folder / "block").write_bytes(bytes(size_bytes))
    return folder


def test_what_takes_more_room_than_it_may_goes_by_the_day_the_oldest_first(keeper):
    days = [snapshots(keeper, day, 600_000) for day in (27, 28, 29, 30)]
    keep(NOW - timedelta(days=3, hours=6), NOW - timedelta(days=3, hours=5), "an incident")
    assert keeper.run(snapshot_megabytes=1).state == "done"
    # The 28th is kept for its incident; of the newest day nothing goes, whatever it takes.
    assert [day.exists() for day in days] == [False, True, False, True]


def test_a_file_that_goes_while_it_is_measured_takes_no_room_and_ends_no_run(keeper, monkeypatch):
    """As of a partition that is written anew meanwhile."""
    days = [snapshots(keeper, day, 600_000) for day in (28, 29, 30)]
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda top: [(top, [], ["gone"]), *walk(top)])
    assert keeper.run(snapshot_megabytes=1).state == "done"
    assert [day.exists() for day in days] == [False, False, True]


@pytest.mark.parametrize("newest", [NOW.date().isoformat(), "2036-01-01"])
def test_of_the_newest_day_nothing_goes_of_any_queue_nor_of_today(keeper, newest):
    folders = [
        keeper.where.data / "archive" / f"queue={queue}" / f"day={day}"
        for queue in ("alert", "process")
        for day in ("2026-12-30", NOW.date().isoformat(), newest)
    ]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "block.parquet").write_bytes(bytes(600_000))
        os.utime(folder / "block.parquet", ((NOW - timedelta(hours=1)).timestamp(),) * 2)
    assert keeper.run(archive_megabytes=1).state == "done"
    left = [folder.name for folder in folders if folder.exists()]
    assert left == [folder.name for folder in folders if folder.name != "day=2026-12-30"]


def test_an_archive_that_takes_too_much_room_loses_its_oldest_partition_with_its_index(keeper):
    path = archived(keeper, age_days=0.5)
    newer = path.parents[1] / "day=2026-12-31" / path.name
    newer.parent.mkdir()
    newer.write_bytes(path.read_bytes() * (1 + retention.BYTES_PER_MEBIBYTE // path.stat().st_size))
    os.utime(path, ((NOW - timedelta(hours=1)).timestamp(),) * 2)
    assert keeper.run(archive_megabytes=1).progress["rows"] == 1
    assert not path.exists() and newer.exists()
    assert archived(keeper).exists()


def test_a_ledger_of_too_many_entries_loses_the_oldest_but_none_that_is_checked(keeper):
    loop = Loop.objects.create(name="x", law="worker_rate", target={})
    rows = [entry(loop, 5 - number / 10) for number in range(6)]
    LedgerEntry.objects.filter(pk=rows[1].pk).update(verdict=LedgerEntry.Verdict.CHECKING)
    assert keeper.run(ledger_entries=3).state == "done"
    left = set(LedgerEntry.objects.values_list("pk", flat=True))
    assert left == {rows[1].pk, *(row.pk for row in rows[3:])}


@pytest.mark.parametrize(("queue", "stays"), [("", True), ("process", True), ("alert", False)])
def test_events_that_an_incident_refers_to_stay(keeper, queue, stays):
    path = archived(keeper)
    noon = datetime.fromisoformat(f"{DAY}T12:00:00+00:00")
    keep(noon, noon + timedelta(minutes=5), "incident 12", queue=queue)
    keeper.run(archive_days=30)
    assert path.exists() is stays


@pytest.mark.parametrize(("days", "left"), [(90, ["new"]), (0, ["new", "old"])])
def test_sets_to_forecast_by_are_kept_as_long_as_the_events_that_they_are_made_of(keeper, days, left):
    for queue, age_days in (("new", 80), ("old", 100)):
        path = keeper.where.data / f"training/queue={queue}/day=2026-01-01.parquet"
        path.parent.mkdir(parents=True)
        path.touch()
        written = (NOW - timedelta(days=age_days)).timestamp()
        os.utime(path, (written, written))
    assert keeper.run(archive_days=days).state == "done"
    found = (keeper.where.data / "training").glob("queue=*/day=*.parquet")
    assert sorted(path.parent.name.removeprefix("queue=") for path in found) == left


def test_a_keep_that_came_after_the_plan_still_counts(keeper):
    path = archived(keeper)
    values = {**{each.name: 0 for each in retention.PARAMETERS}, "archive_days": 30}
    run = runs.begin("retention", keeper.where, values)
    keep(datetime.fromisoformat(f"{DAY}T00:00:00+00:00"), NOW, "experiment 3")
    task_managers.manage_run(
        run,
        keeper.where.control,
        NOW,
        lambda number, worker, *_: batch_worker.work_at(
            number, worker, keeper.where.control, keeper.where.data, lambda: NOW
        ),
    )
    assert path.exists()


def test_metrics_go_by_their_own_days(keeper):
    root = keeper.where.data / "metrics"
    for name in ("raw/day=2026-11-01/1-0_2-0.parquet", "10s/day=2026-11-01.parquet", "1m/day=2026-11-01.parquet"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    keeper.run(raw_days=14, **{"10s_days": 30, "1m_days": 400})
    assert sorted(path.name for path in root.rglob("*.parquet")) == ["day=2026-11-01.parquet"]
    assert (root / "1m/day=2026-11-01.parquet").exists()


@pytest.mark.parametrize(
    "stray",
    [
        "archive/queue=process/day={day}.bak/old.parquet",
        "archive/queue=process/day={day} (1)/old.parquet",
        "metrics/raw/day={day}.bak/1-0_2-0.parquet",
        "metrics/10s/day={day}.parquet.bak",
        "snapshots/day={day}.old/1790000000.200.jsonl.zst",
    ],
)
def test_what_somebody_has_put_beside_the_days_is_left_alone_and_stops_nothing(keeper, stray):
    path = archived(keeper)
    beside = keeper.where.data / stray.format(day=DAY)
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.touch()
    run = keeper.run(archive_days=30, raw_days=14, snapshot_days=14, snapshot_megabytes=1, **{"10s_days": 30})
    assert (run.state, path.exists(), beside.exists()) == ("done", False, True)


def test_the_ledger_is_deleted_in_small_batches_and_spares_what_is_referred_to(keeper, monkeypatch):
    monkeypatch.setattr(retention, "BATCH_ROWS", 3)
    monkeypatch.setattr(retention, "LEDGER_RANGE_IDS", 5)
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")
    old = [entry(loop, 100) for _ in range(8)]
    kept = entry(loop, 95)
    checking = entry(loop, 100, verdict="checking")
    young = entry(loop, 5)
    keep(kept.at, kept.at, "incident 12")
    run = keeper.run(ledger_days=90)
    assert run.progress["rows"] == len(old)
    assert set(LedgerEntry.objects.values_list("pk", flat=True)) == {kept.pk, checking.pk, young.pk}


@pytest.mark.parametrize("days", [{"ledger_days": 90}, {"ledger_entries": 1}])
def test_what_is_left_of_a_year_ago_makes_no_work_each_night(keeper, days):
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate")
    planned = entry(loop, 400)
    Plan.objects.create(
        entry=planned, title="A test", kind="rebalance", moves=[], base={}, base_revision=1, expires_at=NOW
    )
    old = [entry(loop, 100, pk=planned.pk + 1_000_000 + number) for number in range(2)]
    young = entry(loop, 1, pk=planned.pk + 2_000_000)
    run = keeper.run(**days)
    assert (run.chunks_total, run.progress["rows"]) == (1, len(old))
    assert set(LedgerEntry.objects.values_list("pk", flat=True)) == {planned.pk, young.pk}


def test_a_keep_without_reason_or_with_its_ends_crossed_is_refused():
    with pytest.raises(BadInput, match="reason"):
        keep(NOW, NOW, " ")
    with pytest.raises(BadInput, match="until"):
        keep(NOW, NOW - timedelta(seconds=1), "incident 12")


def test_snapshots_go_by_their_day_unless_an_incident_refers_to_it(keeper):
    for day in (1, 2):
        recorder = Recorder(keeper.where.data)
        begin = datetime(2026, 11, day, 9, tzinfo=UTC)
        for minute in range(3):
            at = (begin + timedelta(minutes=minute)).timestamp()
            recorder.add(at, orjson.dumps({"at": at}))
    Recorder(keeper.where.data).add(NOW.timestamp(), b"{}")
    keep(datetime(2026, 11, 2, tzinfo=UTC), datetime(2026, 11, 2, 10, tzinfo=UTC), "incident 12")
    run = keeper.run(snapshot_days=14)
    assert run.progress["rows"] == 3
    assert snapshot_archive.list_archived_days(keeper.where.data) == ["2026-11-02"]


def test_what_went_before_its_chunk_could_be_noted_as_done_stops_no_run(keeper, monkeypatch):
    commit, answers = ChunkLease.commit, iter([OperationalError("the database is away")])

    def away_at_first(*arguments: object) -> None:
        for error in answers:
            raise error
        commit(*arguments)

    folder = snapshots(keeper, 1, 10)
    monkeypatch.setattr(ChunkLease, "commit", away_at_first)
    assert keeper.run(snapshot_days=14).state == "done"
    assert not folder.exists()


def resolved(at: datetime) -> Alert:
    times = dict.fromkeys(("began_at", "fired_at", "resolved_at"), at)
    names = {"rule_name": "r", "condition": "node_lost", "labels": {}, "severity": "warning", "title": "t"}
    return Alert.objects.create(fingerprint=str(at), threshold=1, state="resolved", **names, **times)


def test_alerts_that_are_long_over_go_with_their_notes_and_an_incidents_stay(keeper):
    old, kept, new = (NOW - timedelta(days=days) for days in (60, 40, 3))
    for at in (old, kept, new):
        AlertEvent.objects.create(alert=resolved(at), at=at, kind="fired")
    keep(kept - timedelta(hours=1), kept + timedelta(hours=1), "an incident")
    assert keeper.run(alert_days=30).state == "done"
    assert [alert.fired_at for alert in Alert.objects.order_by("pk")] == [kept, new]
    assert AlertEvent.objects.count() == 2


def test_an_alert_stays_until_what_is_to_be_done_after_it_is_done(keeper):
    alert = resolved(NOW - timedelta(days=60))
    to_do = Incident.objects.create(alert=alert).follow_ups.create(text="a limit")
    keeper.run(alert_days=30)
    assert Alert.objects.filter(pk=alert.pk).exists()
    FollowUp.objects.filter(pk=to_do.pk).update(done_at=NOW)
    keeper.run(alert_days=30)
    assert not Alert.objects.exists()


def test_runs_that_ended_long_ago_go_with_their_chunks_and_others_stay(keeper):
    task = Task.objects.create(name="old work", job="noop")
    for days in (500, 401, 399):
        ended = NOW - timedelta(days=days)
        run = Run.objects.create(task=task, state="done", single_instance=True, ended_at=ended)
        Chunk.objects.create(run=run, identifier="only", place=0)
    open_run = Run.objects.create(task=task, state="running", single_instance=True)
    assert keeper.run(run_days=400).state == "done"
    left = Run.objects.filter(task=task)
    assert left.count() == 2 and open_run in left and Chunk.objects.filter(run__task=task).count() == 1


def test_overrides_and_silences_that_ended_long_ago_go_and_those_with_an_effect_stay(keeper, django_user_model):
    owner = django_user_model.objects.create_user("desk-2")
    for days in (401, 399, None):
        ended = None if days is None else NOW - timedelta(days=days)
        Override.objects.create(queue="q", name="mode", value="hold", owner=owner, reason=str(days), ended_at=ended)
        Silence.objects.create(matchers=[], owner=owner, reason=str(days), expires_at=ended or NOW + timedelta(days=1))
    assert keeper.run(record_days=400).state == "done"
    for model in (Override, Silence):
        assert set(model.objects.values_list("reason", flat=True)) == {"399", "None"}


def test_planned_windows_that_were_over_long_ago_go(keeper):
    for days in (401, 399):
        plan_window(NOW - timedelta(days=days + 1), name=str(days))
    PlannedWindow.objects.filter(name="401").update(ended_at=NOW - timedelta(days=401))
    assert keeper.run(record_days=400).state == "done"
    assert [window.name for window in PlannedWindow.objects.all()] == ["399"]


def test_the_newest_and_the_running_versions_are_kept(keeper, django_user_model):
    owner = django_user_model.objects.create_user("desk-2")
    old = NOW - timedelta(days=500)
    for number in range(1, 14):
        PipelineVersion.objects.create(
            application="a", number=number, text="", reason="", owner=owner, created_at=old,
            active=number == 1,
        )  # fmt: skip
    assert keeper.run(record_days=400).state == "done"
    left = sorted(PipelineVersion.objects.values_list("number", flat=True))
    assert left == [1, *range(4, 14)]


def host_loop(host: str, age_days: float, **target: str) -> Loop:
    ticked_at = NOW - timedelta(days=age_days)
    fields = {"target": {"host": host, **target}, "ticked_at": ticked_at, "mode": "advise"}
    return Loop.objects.create(name=f"concurrency/{host}", law="concurrency", **fields)


def test_loops_of_containers_that_are_gone_go_once_nothing_else_is_known_of_them(keeper, django_user_model):
    gone = [host_loop(f"jobs@{number}", 31, retired_at="gone") for number in range(3)]
    target = {"plant": "shop", "operator": "celery@one", "retired_at": "gone"}
    of_a_pool = {"law": "concurrency", "target": target, "ticked_at": NOW - timedelta(days=31)}
    gone.append(Loop.objects.create(name="concurrency/plant:shop/celery@one", **of_a_pool))
    at_work, lately = host_loop("jobs@a", 31), host_loop("jobs@b", 29, retired_at="gone")
    decided, set_by_somebody = (host_loop(f"jobs@{name}", 31, retired_at="gone") for name in "cd")
    entry(decided, 31)
    Override.objects.create(
        loop=set_by_somebody, name="minimum", value=2, reason="A test.",
        owner=django_user_model.objects.create_user("ada"), created_at=NOW, expires_at=NOW,
    )  # fmt: skip
    of_a_queue = Loop.objects.create(
        name="worker_rate/alert/n1", law="worker_rate", ticked_at=NOW - timedelta(days=31),
        target={"queue": "alert", "node": "n1", "retired_at": "gone"},
    )  # fmt: skip
    for loop in (*gone, at_work):
        Lease(keeper.where.control, f"loop:{loop.pk}", 5).acquire()
    assert keeper.run().state == "done"
    assert set(Loop.objects.all()) == {at_work, lately, decided, set_by_somebody, of_a_queue}
    fences = keeper.where.control.keys(keys.FENCE.build("loop:*"))
    assert fences == [keys.FENCE.build(f"loop:{at_work.pk}").encode()]
    assert keeper.run(ledger_days=30).state == "done"
    assert keeper.run().state == "done"
    assert not Loop.objects.filter(pk=decided.pk).exists()


def plan(age_days: float, state: str = "done", kind: str = "rebalance", **fields: object) -> Plan:
    """A plan of a loop that ended so long ago, and of which ever since a lease has had a number."""
    ended = None if state in ("proposed", "approved", "running") else NOW - timedelta(days=age_days)
    rest = {"title": "A test", "moves": [], "base": {}, "base_revision": 1, "expires_at": NOW, **fields}
    created = NOW - timedelta(days=age_days)
    return Plan.objects.create(state=state, kind=kind, created_at=created, ended_at=ended, **rest)


def plan_ids() -> set[int]:
    return set(Plan.objects.values_list("pk", flat=True))


def test_plans_that_are_long_over_go_with_their_fencing_numbers(keeper, monkeypatch):
    monkeypatch.setattr(retention, "BATCH_ROWS", 2)
    for state in ("done", "void", "rejected", "failed", "stopped"):
        plan(100, state)
    left = [plan(100, "running"), plan(100, "proposed"), plan(80)]
    for number in plan_ids():
        with Lease(keeper.where.control, f"plan:{number}", 5.0):
            pass
    assert keeper.run(plan_days=90).progress["rows"] == 5
    assert plan_ids() == {each.pk for each in left}
    fences = {key.decode() for key in keeper.where.control.scan_iter("weir:fence:plan:*")}
    assert fences == {f"weir:fence:plan:{each.pk}" for each in left}
    assert keeper.run(plan_days=90).chunks_total == 0


def test_a_plan_stays_as_long_as_something_points_to_it(keeper):
    undone, incident = plan(400, "rolled-back"), plan(95)
    keep(incident.created_at, incident.created_at, "incident 12")
    plan(310, "void", "use", law="node_scaling")
    declined, restored = plan(300, "rejected", "use", law="node_scaling"), plan(300, kind="restore")
    left = [
        undone,
        plan(80, "stopped", "roll-back", undoes=undone),
        incident,
        declined,
        restored,
        plan(299, "done", "roll-back", undoes=restored),
    ]
    plan(150, "done", "roll-back", undoes=plan(200, "rolled-back"))
    assert keeper.run(plan_days=90).progress["rows"] == 3
    assert plan_ids() == {each.pk for each in left}


def test_the_ledger_entry_of_a_plan_that_is_gone_goes_as_others_do(keeper):
    row = entry(Loop.objects.create(name="x", law="rebalancing"), 100)
    plan(100, entry=row)
    assert keeper.run(ledger_days=90).chunks_total == 0
    keeper.run(plan_days=90)
    assert keeper.run(ledger_days=90).progress["rows"] == 1


def handled(keeper: Keeper, *ages_days: float, table: str = "handled", queue: str = "alert") -> None:
    """Rows of events of these ages, put there by the handler's own store."""
    store = SqliteStore(keeper.where.data / handled_rows.FILE, table)
    times = [round((NOW - timedelta(days=age)).timestamp() * 1e6) for age in ages_days]
    ids = [f"{age:g}" for age in ages_days]
    store.insert(queue, [ids, times, *([[None] * len(ids)] * 5)])
    store.close()


def handled_ids(keeper: Keeper, table: str = "handled") -> set[str]:
    with closing(sqlite3.connect(keeper.where.data / handled_rows.FILE)) as database:
        return {name for (name,) in database.execute(f"SELECT id FROM {table}")}


def test_handled_events_go_by_their_time_in_small_steps_and_an_incident_s_stay(keeper, monkeypatch):
    monkeypatch.setattr(handled_rows, "STEP_ROWS", 3)
    handled(keeper, 100, 99, 98, 97, 96, 95, 91, 89, 1)
    handled(keeper, 100, 1, table="mine")
    with closing(sqlite3.connect(keeper.where.data / handled_rows.FILE)) as database:
        database.execute("CREATE TABLE another (id)")
        database.execute("INSERT INTO another VALUES ('old')")
        database.commit()
    at = NOW - timedelta(days=97)
    keep(at - timedelta(hours=1), at + timedelta(hours=1), "incident 12", queue="alert")
    assert keeper.run(handled_days=90).progress["rows"] == 7
    assert handled_ids(keeper) == {"97", "89", "1"}
    assert handled_ids(keeper, "mine") == {"1"} and handled_ids(keeper, "another") == {"old"}
    assert keeper.run(handled_days=0).state == keeper.run(handled_days=1).state == "done"


@pytest.mark.parametrize(
    ("file", "days"), [("archive/index.sqlite3", {"archive_days": 30}), (handled_rows.FILE, {"handled_days": 30})]
)
def test_while_a_worker_writes_a_file_retention_keeps_nobody_waiting_for_the_database(keeper, file, days, monkeypatch):
    archived(keeper)
    handled(keeper, 100)
    guarded, held = ChunkLease.guard_transaction, []
    monkeypatch.setattr(ChunkLease, "guard_transaction", lambda lease: held.append(lease) or guarded(lease))
    for waiting in (event_archive, handled_rows):
        monkeypatch.setattr(waiting, "LOCK_SECONDS", 0.0)
    with closing(sqlite3.connect(keeper.where.data / file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        run = keeper.run(**days)
        assert (run.state, held) == ("failed", []) and "locked" in run.error
    assert keeper.run(**days).state == "done" and held


def test_handled_events_that_take_too_much_room_go_by_the_hour_the_oldest_first(keeper, monkeypatch):
    monkeypatch.setattr(handled_rows, "STEP_ROWS", 3)
    monkeypatch.setattr(retention, "BYTES_PER_MEBIBYTE", 100)
    handled(keeper, 5, 4, 3, 2)
    handled(keeper, 5.5, 1, table="mine")
    at = NOW - timedelta(days=4)
    keep(at - timedelta(hours=1), at + timedelta(hours=1), "incident 12", queue="alert")
    # A row takes some 22 bytes: two too many for 100 of them. What is kept counts, and stays.
    assert keeper.run(handled_megabytes=1).progress["rows"] == 2
    assert handled_ids(keeper) == {"4", "3", "2"} and handled_ids(keeper, "mine") == {"1"}
    assert keeper.run(handled_megabytes=1).progress["rows"] == 0


def test_of_the_newest_day_no_handled_event_goes_by_the_room_it_takes(keeper, monkeypatch):
    monkeypatch.setattr(retention, "BYTES_PER_MEBIBYTE", 1)
    handled(keeper, 2, 0.4, 0.1, -400)
    assert keeper.run(handled_megabytes=1).progress["rows"] == 1
    assert handled_ids(keeper) == {"0.4", "0.1", "-400"}


def test_a_file_of_handled_events_that_is_small_enough_is_not_read(keeper, monkeypatch):
    monkeypatch.delattr(handled_rows, "measure_rows")
    handled(keeper, 5)
    assert keeper.run(handled_megabytes=1).progress["rows"] == 0


def test_old_experiments_go_with_their_series_and_open_ones_stay(keeper):
    old, new, at_work = (
        Experiment.objects.create(scenario="crash", laws=["thesis"], created_at=NOW - timedelta(days=days))
        for days in (40, 20, 40)
    )
    at_work.run = runs.begin("experiment", keeper.where, {"experiment": at_work.pk})
    at_work.save()
    for each in (old, new, at_work):
        write_series(keeper.where.data / get_series_file(each.pk, "thesis"), 1.0, {"waiting": np.zeros(3)})
    assert keeper.run(experiment_days=30).progress["rows"] == 1
    assert set(Experiment.objects.all()) == {new, at_work}
    kept = {path.name for path in (keeper.where.data / "experiments").iterdir()}
    assert kept == {str(new.pk), str(at_work.pk)}


def test_extracts_and_uploaded_traces_go_by_their_age_wherever_a_version_kept_them(keeper):
    names = ["extracts/a.csv", "extracts/queue=alert/b.csv", "traces/c.csv", "traces/7/d.csv.gz"]
    paths = [keeper.where.data / name for name in names]
    new = keeper.where.data / "extracts/queue=alert/new.parquet"
    for path in (*paths, new):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("v\n1\n")
        os.utime(path, ((NOW - timedelta(days=40)).timestamp(),) * 2)
    os.utime(new, (NOW.timestamp(),) * 2)
    assert keeper.run(extract_days=30).progress["rows"] == 4
    assert new.exists() and not any(path.exists() for path in paths)
    assert keeper.run().state == "done" and new.exists()  # 0 days: for ever
