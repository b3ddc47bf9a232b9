"""A backup holds the plant, and an empty plant becomes it again; half a one or a newer one is refused."""

import os
import shutil
import sqlite3
import zipfile
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import orjson
import pytest
import redis
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from common import environment as variables
from common.errors import BadInput
from console.accounts.access import Actor
from console.audit import audit_log, witness
from console.audit.check import Checker
from console.embedded import launch
from console.embedded.local import check_whole
from console.embedded.seeding import seed
from console.models import AuditEntry, Mark
from console.upkeep.backup import archive, backup, database, files, rest, servers
from queues import keys, pausing
from queues.models import Queue
from queues.segments.segment import Segment
from tests.console.rows import held
from tests.queues.samples import blocks_of
from tests.races import another_thread
from workers.steering import overrides

pytestmark = pytest.mark.django_db
LONG_AGO = 1_700_000_000.25
UNITS = ("events", "blocks", "bytes")
CHECKPOINT = "pipeline/performance/spark/iap1/offsets/3"


def of(server, on_nodes):
    return list(servers.export_lines(server, on_nodes))


def test_a_segment_comes_back_with_what_was_claimed_and_how_often(node, fresh):
    segment = Segment(node, "alert")
    segment.publish(blocks_of(40, 8))
    (first, *_) = segment.claim("a worker", 10, 60)
    segment.retry(first, "a worker", 30)
    segment.move_to_dead_letters(segment.claim("another", 8, 60)[0], "another", [])
    target = fresh("node").client()
    assert servers.load_node(target, of(node, on_nodes=True)) > 2
    assert of(target, on_nodes=True) == of(node, on_nodes=True)
    again = Segment(target, "alert")
    assert again.get_counters() == segment.get_counters()
    assert again.claim("a third", 100, 0) and again.measure()["length_blocks"] == segment.measure()["length_blocks"]


def copied(server, on_nodes, meanwhile):
    """The lines, where something happens after each of them: between a stream's head and its entries, too."""
    lines = []
    for line in servers.export_lines(server, on_nodes):
        lines.append(line)
        meanwhile()
    return lines


def test_what_arrives_while_a_node_is_copied_spoils_nothing_and_what_was_copied_is_counted(node, fresh):
    segment, target = Segment(node, "alert"), fresh("node").client()
    segment.publish(blocks_of(40, 8))
    segment.acknowledge([segment.claim("a worker", 8, 60)[0].entry_id])
    lines = copied(node, True, lambda: segment.publish(blocks_of(8, 8)))
    servers.load_node(target, lines)
    again = Segment(target, "alert")
    held, counters = again.scan("0-0"), again.get_counters()
    assert len(held) > 4, "the blocks that came between the counters and the segment"
    assert counters["inserted_blocks"] - counters["removed_blocks"] == len(held)
    assert counters["inserted_events"] - counters["removed_events"] == 8 * len(held)
    assert counters["inserted_events"] > 40
    again.acknowledge([each.entry_id for each in held])
    counters = again.get_counters()
    assert [counters[f"inserted_{unit}"] - counters[f"removed_{unit}"] for unit in UNITS] == [0, 0, 0]


def test_of_the_control_server_what_lasts_comes_back_and_what_passes_stays_behind(control, fresh):
    control.hset(keys.PIPELINE_STATE.build("performance"), mapping={"a/1": b"\x00\xff", "a/1:batch": "7"})
    control.rpush(keys.PIPELINE_RECENT.build("performance"), "b", "a")
    control.set(keys.THROTTLE.build("alert"), "1", px=60_000)
    control.incr(keys.FENCE.build("loop"))
    passing = [keys.TOPOLOGY, keys.SNAPSHOT, keys.LEASE.build("loop"), keys.PAUSE.build("alert", "intake")]
    for name in passing:
        control.set(name, "x")
    target = fresh("control").client()
    servers.load(target, of(control, on_nodes=False))
    assert of(target, on_nodes=False) == of(control, on_nodes=False)
    assert not target.exists(*passing)
    assert 50_000 < target.pttl(keys.THROTTLE.build("alert")) <= 60_000


def test_every_table_comes_back_row_by_row(control, nodes, data, django_user_model):
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    audit_log.record(Actor(name="ada", role=None), "test", "plant", after={"big": 2**70})
    tables = database.list_models()
    before = {model._meta.label_lower: list(database.encode_rows(model)) for model in tables}
    assert sum(len(rows) > 1 for rows in before.values()) > 10
    database.protect(False)
    database.clear(tables)
    database.protect(True)
    assert not User.objects.exists()
    for model in tables:
        database.load(model, iter(before[model._meta.label_lower]))
    assert {model._meta.label_lower: list(database.encode_rows(model)) for model in tables} == before
    assert Checker(data).step().sound


def test_of_the_folder_what_lasts_is_kept_and_a_database_in_it_is_of_one_instant(data):
    for inside in ("archive/queue=alert/a.parquet", CHECKPOINT, "secret-key"):
        (data / inside).parent.mkdir(parents=True, exist_ok=True)
        (data / inside).write_text("kept")
    for inside in ("logs/web.log", "weir.sqlite3", "servers/n1/x", "pipeline/java/java", "lock"):
        (data / inside).parent.mkdir(parents=True, exist_ok=True)
        (data / inside).write_text("not kept")
    with closing(sqlite3.connect(data / "handled.sqlite3")) as effects:
        effects.execute("PRAGMA journal_mode=WAL")
        effects.execute("CREATE TABLE handled (id)")
        effects.execute("INSERT INTO handled VALUES (7)")
        effects.commit()
        kept = [inside.as_posix() for inside in files.list_files(data)]
        copy = data / "copy"
        copy.write_bytes(b"".join(files.read_content(data / "handled.sqlite3")))
    assert kept == ["archive/queue=alert/a.parquet", "handled.sqlite3", CHECKPOINT, "secret-key"]
    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("SELECT id FROM handled").fetchall() == [(7,)]
    assert files.list_unsettled(data) == ["performance/spark/iap1"]


@pytest.fixture
def made(control, nodes, data, tmp_path):
    """A backup of a small plant with waiting events."""
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    Segment(nodes["n2"].client(), "alert").publish(blocks_of(40, 8))
    (data / "archive").mkdir()
    (data / "archive" / "a.parquet").write_text("rows")
    os.utime(data / "archive" / "a.parquet", (LONG_AGO, LONG_AGO))
    path = tmp_path / "weir.backup"
    by = User.objects.get(username="admin")
    with rest.quiesce(control, data, by) as still:
        backup.make(path, data, control, clients, still)
    return path


def clients(url):
    return redis.Redis.from_url(url)


def emptied():
    """A database without entries, as a new plant has it."""
    tables = database.list_models()
    database.protect(False)
    database.clear(tables)
    database.protect(True)


@pytest.mark.django_db(transaction=True)
def test_while_the_tables_are_copied_others_write_and_the_copy_is_of_one_instant(
    control, nodes, data, tmp_path, monkeypatch
):
    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    rows, path = database.encode_rows, tmp_path / "weir.backup"
    with another_thread() as call, rest.quiesce(control, data, User.objects.get(username="admin")) as still:

        def rows_then(model):
            yield from rows(model)
            if model is User:
                call(Mark.objects.create, title="Somebody writes", kind="note", at=timezone.now()).result()

        monkeypatch.setattr(backup.database, "encode_rows", rows_then)
        backup.make(path, data, control, clients, still)
    assert Mark.objects.get().title == "Somebody writes"
    with archive.open_backup(path) as found:
        assert len(list(found.read_lines("database/console.mark"))) == 1, "the names of the fields alone"


def test_an_empty_plant_becomes_the_one_of_the_backup(made, nodes, control, data, fresh, tmp_path):
    waiting = of(nodes["n2"].client(), on_nodes=True)
    rows = {model: list(database.encode_rows(model))[1:] for model in database.list_models()}
    emptied()
    shutil.rmtree(data)
    target, urls = fresh("control").client(), {name: fresh(name).url for name in nodes}
    with archive.open_backup(made) as found:
        done = backup.restore(found, data, target, urls, clients)
    assert of(clients(urls["n2"]), on_nodes=True) == waiting
    assert (data / "archive" / "a.parquet").read_text() == "rows"
    # By when a file was written retention knows how old it is.
    assert (data / "archive" / "a.parquet").stat().st_mtime == LONG_AGO
    assert done["rows"] == sum(map(len, rows.values()))
    assert set(orjson.loads(target.get(keys.TOPOLOGY))["nodes"]) == set(nodes)
    assert Queue.objects.count() == 3 and User.objects.get().username == "admin"
    # It rested when it was copied; it need not rest here.
    assert not overrides.list_active(timezone.now()).exists()
    assert made.stat().st_mode & 0o077 == 0
    check_whole(data)


def test_half_a_restored_plant_is_not_started(made, nodes, data, fresh, monkeypatch, capsys):
    def die(*unused):
        raise KeyboardInterrupt

    emptied()
    shutil.rmtree(data)
    target, urls = fresh("control").client(), {name: fresh(name).url for name in nodes}
    with archive.open_backup(made) as found, monkeypatch.context() as by, pytest.raises(KeyboardInterrupt):
        by.setattr(backup.servers, "load_node", die)
        backup.restore(found, data, target, urls, clients)
    assert User.objects.exists() and not clients(urls["n2"]).dbsize()
    with pytest.raises(SystemExit) as caught:
        call_command("seed")
    assert caught.value.code == launch.main(["--data", str(data)]) == 2
    assert capsys.readouterr().err.count("a restore did not finish") == 2


@pytest.fixture
def empty_plant(made, nodes, data, fresh, settings, monkeypatch):
    """An empty one in place of the plant of the backup, for `manage.py restore`: its nodes' URLs."""
    emptied()
    shutil.rmtree(data)
    urls = {name: fresh(name).url for name in nodes}
    settings.REDIS_URL = fresh("control").url
    monkeypatch.setenv(variables.NODES.name, " ".join(f"{name}={url}" for name, url in urls.items()))
    return urls


def test_a_restore_is_in_the_audit_with_the_time_of_its_backup(made, empty_plant, data, capsys):
    call_command("restore", str(made))
    said = orjson.loads(capsys.readouterr().out)
    entry = AuditEntry.objects.latest("sequence")
    assert (entry.actor, entry.action, entry.after) == ("manage.py", "backup.restored", {"made_at": said["made_at"]})
    assert Checker(data).step().sound


def test_a_plant_with_data_is_not_overwritten(made, nodes, control, data):
    urls = {name: server.url for name, server in nodes.items()}
    with archive.open_backup(made) as found, pytest.raises(BadInput, match="contains data"):
        backup.restore(found, data, control, urls, clients)


def altered(path, change):
    """A copy with another manifest."""
    copy = path.with_name("altered.backup")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            if name == archive.MANIFEST:
                manifest = orjson.loads(text)
                change(manifest)
                text = orjson.dumps(manifest)
            target.writestr(name, text)
    return copy


def test_half_a_backup_is_refused(made, tmp_path):
    half = tmp_path / "half.backup"
    half.write_bytes(made.read_bytes()[: made.stat().st_size // 2])
    with pytest.raises(BadInput, match="not a complete backup"), archive.open_backup(half):
        pass
    without = altered(made, lambda manifest: manifest["members"].update({"database/workers.plan2": 1}))
    with pytest.raises(BadInput, match=r"workers.plan2 is damaged or missing"), archive.open_backup(without):
        pass
    with zipfile.ZipFile(tmp_path / "none.backup", "w") as empty:
        empty.writestr("control", "")
    with pytest.raises(BadInput, match="manifest is missing"), archive.open_backup(tmp_path / "none.backup"):
        pass


def test_whichever_byte_is_damaged_the_backup_is_refused_in_words(tmp_path):
    path, random = tmp_path / "a.backup", Random(1)
    with archive.write_backup(path, {}) as writer:
        writer.write_lines("control", [random.randbytes(50).hex().encode() for _ in range(500)])
    whole = path.read_bytes()
    for place in [*range(0, len(whole), 97), *range(len(whole) - 300, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with suppress(BadInput), archive.open_backup(path) as found:
            # What no reader looks at may be another.
            assert list(found.read_lines("control"))


def test_who_laid_something_at_a_backup_s_place_before_reads_nothing_of_it(tmp_path):
    """In a folder that others write to, too: it holds the plant's secrets."""
    path, theirs = tmp_path / "plant.backup", tmp_path / "theirs"
    laid = archive.build_partial_path(path)
    laid.touch(mode=0o666)
    with laid.open("rb") as opened:
        with archive.write_backup(path, {}) as writer:
            writer.write_pieces("files/secret-key", [b"word"])
        assert opened.read() == b"" and path.stat().st_mode & 0o077 == 0
    path.unlink()
    theirs.write_text("mine")
    laid.symlink_to(theirs)
    with archive.write_backup(path, {}) as writer:
        writer.write_pieces("files/secret-key", [b"word"])
    assert theirs.read_text() == "mine" and not path.is_symlink()


def test_while_it_rests_nothing_is_handed_out_and_what_was_paused_stays_so(control, nodes, data):
    seed(control, {"WEIR_NODES": "n1=" + nodes["n1"].url})
    by = User.objects.get(username="admin")
    mine = held(by, "consumption", "paused", queue="process", control=control)
    with rest.quiesce(control, data, by) as still:
        assert {each.queue for each in still.pauses} == {"alert", "telemetry"}
        assert set(pausing.load_pauses(control, ["alert", "telemetry", "process"], "consumption")) == {
            "alert",
            "process",
            "telemetry",
        }
    assert list(overrides.list_active(timezone.now())) == [mine]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("place", ["the control server", "the tables", "the file of heads"])
def test_the_audit_is_whole_after_a_restore_though_it_grew_while_it_was_copied(
    place, control, nodes, data, fresh, tmp_path, monkeypatch, django_capture_on_commit_callbacks
):
    def sign_in():
        with django_capture_on_commit_callbacks(execute=True):
            entry = audit_log.record(Actor(name="ada", role=None), "mark.add", "plant", after={})
        witness.keep(data, witness.Head(entry.sequence, entry.digest))

    lines_of, rows, content = servers.export_lines, database.encode_rows, files.read_content

    def lines_then(server, on_nodes):
        if place == "the control server" and not on_nodes:
            sign_in()
        yield from lines_of(server, on_nodes)

    def rows_then(model):
        yield from rows(model)
        if place == "the tables" and model is AuditEntry:
            sign_in()

    def content_then(path):
        if place == "the file of heads" and path.name == witness.FILE:
            sign_in()
        yield from content(path)

    seed(control, {"WEIR_NODES": " ".join(f"{name}={server.url}" for name, server in nodes.items())})
    sign_in()
    path = tmp_path / "weir.backup"
    with rest.quiesce(control, data, User.objects.get(username="admin")) as still, monkeypatch.context() as by:
        by.setattr(backup.servers, "export_lines", lines_then)
        by.setattr(backup.database, "encode_rows", rows_then)
        by.setattr(backup.files, "read_content", content_then)
        backup.make(path, data, control, clients, still)
    emptied()
    shutil.rmtree(data)
    target, urls = fresh("control").client(), {name: fresh(name).url for name in nodes}
    with archive.open_backup(path) as found:
        backup.restore(found, data, target, urls, clients)
    control.set(keys.AUDIT_HEAD, target.get(keys.AUDIT_HEAD))
    verdict = Checker(data).step()
    assert verdict.sound and verdict.heads > 1, verdict.findings


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "inside",
    [
        "pipeline/performance/spark/iap1/offsets/57",
        "archive/queue=alert/day=2026-01-05/a.parquet",
        "handled.sqlite3",
        "handled.sqlite3-wal",
    ],
)
def test_a_folder_with_an_older_plant_is_not_restored_into(inside, made, nodes, data, fresh):
    emptied()
    shutil.rmtree(data)
    (data / inside).parent.mkdir(parents=True)
    (data / inside).write_text("older")
    target, urls = fresh("control").client(), {name: fresh(name).url for name in nodes}
    with archive.open_backup(made) as found, pytest.raises(BadInput, match="move everything except") as caught:
        backup.restore(found, data, target, urls, clients)
    assert Path(inside).name in caught.value.message
    assert [path for path in data.rglob("*") if path.is_file()] == [data / inside]
    assert not target.dbsize() and not User.objects.exists()
