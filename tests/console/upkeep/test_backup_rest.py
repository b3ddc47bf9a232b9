"""A plant rests while it is copied, whoever transfers blocks or has a clock that is off; and which files are copied."""

import os
import random
import signal
import sqlite3
import tempfile
import time
import zipfile
from contextlib import closing
from pathlib import Path

import orjson
import pytest
import redis
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from console.embedded.seeding import seed
from console.upkeep.backup import archive, backup, files, rest
from console.upkeep.backup.rest import QuiesceFailed
from queues import keys, pausing
from queues.segments.segment import Segment
from tests.console.rows import held
from tests.queues.samples import blocks_of
from tests.workers.placement.plan_plant import Plant, loaded
from tests.workers.samples import delivery_of
from workers.consumer.handler import Options, Outcome, Place
from workers.consumer.handlers import parquet
from workers.coordination.leases import Lease, create_backup_lease, is_copied
from workers.placement import execution, plans, proposals
from workers.steering import overrides

pytestmark = pytest.mark.django_db


def clients(url):
    return redis.Redis.from_url(url)


def begun(control, nodes):
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    return User.objects.get(username="admin")


@pytest.fixture
def plant(control, nodes):
    found = Plant(control, nodes)
    yield found
    found.close()


@pytest.fixture
def emptying(plant, django_user_model):
    """A plan that empties n3, on which blocks wait."""
    user = django_user_model.objects.create_user("ada", password="x")
    plant.segment("alert", "n3").publish(blocks_of(40, 8))
    snapshot = loaded(plant.pass_seconds(3), {})
    plan = proposals.propose_drain("n3", user, "New disk.", snapshot=snapshot, now=plant.now)
    return plans.approve(plan, plan.hash, user, "As shown.", snapshot=snapshot, now=plant.now)


def test_a_plan_that_empties_a_node_transfers_nothing_while_a_backup_is_made(plant, emptying):
    with create_backup_lease(plant.control):
        for _ in range(3):
            plan = execution.advance(emptying, plant.control, plant.now)
            plant.pass_seconds(1)
        assert (plan.state, plan.note) == ("running", "Transfers are waiting: a backup is running.")
        assert plant.segment("alert", "n3").measure()["length_blocks"] == 5
    assert not is_copied(plant.control)
    assert execution.advance(emptying, plant.control, plant.now).state == "done"
    assert plant.segment("alert", "n3").measure()["length_blocks"] == 0


def test_a_transfer_that_was_broken_off_is_brought_to_its_end_after_the_backup(plant):
    segment = plant.segment("alert", "n3")
    segment.publish(blocks_of(8, 8))
    segment.depart({"n1": 1}, 10, 10**6)
    with create_backup_lease(plant.control):
        execution.tidy(plant.control, plant.pass_seconds(1), plant.now)
        assert segment.measure()["leaving_blocks"] == 1
    execution.tidy(plant.control, plant.pass_seconds(1), plant.now)
    assert segment.measure()["leaving_blocks"] == 0


@pytest.mark.parametrize("name", ["plan:7", "settling"])
def test_a_transfer_that_began_before_is_waited_for(control, nodes, data, name):
    by, transfer = begun(control, nodes), Lease(control, name, 60)
    transfer.acquire()
    with rest.quiesce(control, data, by, sleep=lambda _: transfer.release()):
        assert is_copied(control) and transfer.fence is None


def test_two_backups_are_not_made_at_once(control, nodes, data):
    by = begun(control, nodes)
    with (
        rest.quiesce(control, data, by),
        pytest.raises(QuiesceFailed, match="Another backup"),
        rest.quiesce(control, data, by),
    ):
        pass


def test_pauses_are_short_and_prolonged_as_long_as_the_backup_lives(control, nodes, data):
    by = begun(control, nodes)
    with rest.quiesce(control, data, by) as still:
        now = timezone.now()
        ends = {each.expires_at for each in still.pauses}
        assert max(ends) <= now + rest.PAUSE
        rest.prolong(still.pauses, now, control)
        assert {each.expires_at for each in in_force()} == ends, "they last for long enough"
        overrides.end(still.pauses[0], by=by, now=now, control=control)
        later = min(ends) - rest.PAUSE / 4
        rest.prolong(still.pauses, later, control)
        assert {each.expires_at for each in in_force()} == {later + rest.PAUSE}
        assert still.pauses[0].queue not in {each.queue for each in in_force()}, "somebody ended it"


def in_force():
    return list(overrides.list_active(timezone.now()))


def test_the_next_backup_ends_pauses_that_one_has_left_that_was_killed(control, nodes, data):
    by, now = begun(control, nodes), timezone.now()
    for queue, reason in (("alert", rest.REASON), ("process", "mine")):
        held(
            by, pausing.CONSUMPTION, overrides.PAUSED, queue=queue, reason=reason, now=now, minutes=100, control=control
        )
    with rest.quiesce(control, data, by) as still:
        assert {each.queue for each in still.pauses} == {"alert", "telemetry"}
    assert [each.reason for each in in_force()] == ["mine"]
    assert set(pausing.load_pauses(control, ["alert", "process", "telemetry"], "consumption")) == {"process"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_asked_to_end_leaves_no_queue_paused_and_no_half_file(
    number, control, nodes, data, tmp_path, monkeypatch
):
    begun(control, nodes)

    def copying(server, on_nodes):
        yield b"{}"
        os.kill(os.getpid(), number)
        yield b"{}"

    monkeypatch.setattr(backup.servers, "export_lines", copying)
    inherited = signal.signal(number, signal.SIG_DFL)  # under nohup a hang-up is ignored
    try:
        with pytest.raises(SystemExit):
            call_command("backup", str(tmp_path / "weir.backup"))
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, inherited)
    assert in_force() == [] and not pausing.load_pauses(control, ["alert"], pausing.CONSUMPTION)
    assert not list(tmp_path.glob("weir.backup*"))


def transferred(control, nodes):
    source, target = (Segment(nodes[name].client(), "alert") for name in ("n2", "n1"))
    for block in source.depart({"n1": 1}, 10, 10**6):
        target.receive("n2", block)
        source.confirm([block.entry_id])


def handled(control, nodes):
    segment = Segment(nodes["n2"].client(), "alert")
    segment.acknowledge([each.entry_id for each in segment.claim("frozen", 8, 0)])


def pipeline_at_work(control, nodes):
    control.set(keys.PIPELINE, orjson.dumps({"state": "running", "at": time.time() + 60}))
    control.hset(keys.PIPELINE_ROOM.build("performance"), "in_flight_events", 7)


UNREST = {
    "an ended pause": lambda control, nodes: pausing.resume(control, "alert", pausing.CONSUMPTION),
    "a lost lease": lambda control, nodes: control.delete(keys.LEASE.build("backup")),
    "a transfer": transferred,
    "handled events": handled,
    "a dispatch": lambda control, nodes: control.hset(keys.PIPELINE_CURSOR.build("performance"), "tick", 8),
    "room given out": lambda control, nodes: control.hset(keys.PIPELINE_ROOM.build("performance"), "published:iap1", 8),
    "complex events gone out": lambda control, nodes: control.hdel(
        keys.PIPELINE_OUTBOX.build("performance"), "alert|3/run/0/4"
    ),
    "a pipeline at work": pipeline_at_work,
}


@pytest.mark.parametrize("case", UNREST)
def test_a_plant_that_did_not_rest_to_the_end_has_no_backup(control, nodes, data, tmp_path, monkeypatch, case):
    by, lines_of = begun(control, nodes), backup.servers.export_lines
    Segment(nodes["n2"].client(), "alert").publish(blocks_of(40, 8))
    control.hset(keys.PIPELINE_CURSOR.build("performance"), mapping={"tick": 7, "cursor": "{}"})
    control.hset(keys.PIPELINE_ROOM.build("performance"), "published:iap1", 7)
    control.hset(keys.PIPELINE_OUTBOX.build("performance"), "alert|3/run/0/4", b"rows")

    def meanwhile(server, on_nodes):
        yield from lines_of(server, on_nodes)
        if not on_nodes:
            UNREST[case](control, nodes)

    monkeypatch.setattr(backup.servers, "export_lines", meanwhile)
    with pytest.raises(QuiesceFailed, match="again"), rest.quiesce(control, data, by) as still:
        backup.make(tmp_path / "weir.backup", data, control, clients, still)
    assert not list(tmp_path.glob("weir.backup*"))


def test_a_backup_into_the_data_folder_is_not_in_itself(data):
    (data / "archive").mkdir()
    (data / "archive" / "a.parquet").write_bytes(random.randbytes(300_000))
    path = data / "here.backup"
    with archive.write_backup(path, {}) as writer:
        for inside in files.list_files(data, without=(path, archive.build_partial_path(path))):
            writer.write_pieces(f"files/{inside.as_posix()}", files.read_content(data / inside))
        assert list(writer.members) == ["files/archive/a.parquet"]


@pytest.mark.django_db
def test_the_command_makes_the_folder_of_backups_and_leaves_it_out(control, nodes, data, capsys):
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    made = [data / "backups" / "1.backup", data / "backups" / "2.backup"]
    for path in made:
        call_command("backup", str(path))
        assert orjson.loads(capsys.readouterr().out)["file"] == str(path)
    assert made[0].parent.stat().st_mode & 0o777 == 0o700
    with zipfile.ZipFile(made[1]) as found:
        assert not [name for name in found.namelist() if "backup" in name]


def test_what_a_killed_worker_had_archived_but_not_shown_is_shown_after_a_restore(data, tmp_path, monkeypatch):
    def die(path):
        raise KeyboardInterrupt

    block, target = delivery_of(3), tmp_path / "restored"
    with monkeypatch.context() as by, pytest.raises(KeyboardInterrupt):
        by.setattr(parquet, "reveal", die)
        parquet.Parquet(Place("alert", data), Options("parquet", {})).handle([block])
    for inside in files.list_files(data):
        (target / inside).parent.mkdir(parents=True, exist_ok=True)
        (target / inside).write_bytes(b"".join(files.read_content(data / inside)))
    again = parquet.Parquet(Place("alert", target), Options("parquet", {}))
    assert again.handle([block]) == Outcome(duplicates=3)
    assert len(list(target.glob("archive/queue=alert/day=*/[!.]*.parquet"))) == 1


def test_a_database_is_copied_beside_itself_and_nothing_of_the_copy_stays(data, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with closing(sqlite3.connect(data / "handled.sqlite3")) as database:
        database.execute("CREATE TABLE handled (id)")
    assert b"".join(files.read_content(data / "handled.sqlite3")).startswith(b"SQLite format 3")
    (data / "handled.sqlite3.tmp").write_text("what a killed backup left")
    assert [*files.list_files(data)] == [Path("handled.sqlite3")]
    assert list(files.read_content(data / "handled.sqlite3"))
    assert [path.name for path in data.iterdir()] == ["handled.sqlite3"]
