"""Which files of the data folder are in a backup: it may lie in that folder, and is never in itself."""

import random
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from django.core.management import call_command

from console.embedded.seeding import seed
from console.upkeep.backup import archive, files
from tests.workers.samples import delivery_of
from workers.consumer.handler import Options, Outcome, Place
from workers.consumer.handlers import parquet


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
