"""A name that comes from outside leads to no file beyond its folder: backups, jobs, archives, uploads."""

import io
import os
import stat
import zipfile
from pathlib import Path

import orjson
import pytest
from django.contrib.auth.models import User

from common.errors import BadInput, Forbidden
from common.files import resolve_inside_folder, write_inside
from console.accounts.access import Actor
from console.actions.lab.traces import save_upload
from console.upkeep.backup import archive, backup, files
from workers.batch import files as outputs

HOSTILE_NAMES = [
    "/etc/evil",
    "//etc/evil",
    "../evil",
    "archive/../../evil",
    "archive//evil",
    "archive/./evil",
    "..\\evil",
    "C:\\evil",
    "evil\0.parquet",
    "evil\n",
    "",
    ".",
    "archive/",
    "x" * 256,
    "x/" * 3_000 + "x",
]


PERSON = Actor("ada", "operator", user=User(pk=7, username="ada"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


def files_below(path: Path) -> list[str]:
    return sorted(found.relative_to(path).as_posix() for found in path.rglob("*") if found.is_file())


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_leads_out_is_refused_and_nothing_is_written(name, folder):
    with pytest.raises(Forbidden, match="FILE: must be a relative path inside the folder"):
        write_inside(folder, name, [b"x"], "FILE")
    with pytest.raises(Forbidden, match="FILE: must be a relative path inside the folder"):
        resolve_inside_folder(folder, name, "FILE")
    assert files_below(folder.parent) == []


@pytest.mark.parametrize("link", ["archive", "archive/queue=alert"])
def test_a_link_inside_the_folder_is_not_followed(link, folder, tmp_path):
    (tmp_path / "outside").mkdir()
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(tmp_path / "outside")
    with pytest.raises(Forbidden, match="a link"):
        resolve_inside_folder(folder, f"{link}/a.parquet", "FILE")
    with pytest.raises(Forbidden, match="a link"):
        write_inside(folder, f"{link}/a.parquet", [b"x"], "FILE", replace=True)
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("replace", [True, False])
def test_a_link_or_a_pipe_in_the_place_of_the_file_is_neither_followed_nor_opened(replace, folder, tmp_path):
    (tmp_path / "outside").write_text("theirs")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe")
    for name in ("link", "dangling", "pipe"):
        with pytest.raises(Forbidden, match="special file"):
            write_inside(folder, name, [b"x"], "FILE", replace=replace)
    assert (tmp_path / "outside").read_text() == "theirs" and not (tmp_path / "nowhere").exists()


def forged(path: Path, names: dict[str, bytes], kind: int = 0, **manifest: object) -> Path:
    with zipfile.ZipFile(path, "w") as target:
        for name, content in {"control": b"", **names}.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (kind | 0o644) << 16
            target.writestr(member, content)
        whole = {"format": 1, "nodes": [], "members": dict.fromkeys(["control", *names], 1), **manifest}
        target.writestr(archive.MANIFEST, orjson.dumps(whole))
    return path


@pytest.mark.parametrize("name", ["/tmp/evil", "/etc/cron.d/evil", "../evil", "a\\..\\evil", "archive/\u202e"])
def test_a_backup_with_a_name_that_leads_out_is_refused_before_anything_is_read(name, tmp_path):
    path = forged(tmp_path / "forged.backup", {f"files/{name}": b"x"})
    with pytest.raises(BadInput, match="inside the folder"), archive.open_backup(path):
        pass


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_a_backup_with_a_link_or_a_device_is_refused(kind, tmp_path):
    path = forged(tmp_path / "forged.backup", {"files/archive/a.parquet": b"/etc/passwd"}, kind)
    with pytest.raises(BadInput, match="as a link or a device"), archive.open_backup(path):
        pass


def test_a_restore_writes_no_program_of_spark_and_no_file_of_a_server(tmp_path):
    """A backup never holds them: they are made by a start, and run by it."""
    names = ["pipeline/python/evil.py", "servers/n1/server.conf", "weir.sqlite3", "archive/a.parquet"]
    path = forged(tmp_path / "forged.backup", {f"files/{name}": b"x" for name in names})
    with archive.open_backup(path) as found:
        assert backup._list_kept_files(found) == ["archive/a.parquet"]
    assert not files.is_kept(Path("pipeline/python/evil.py"))


@pytest.mark.parametrize("name", ["/etc/passwd", "../evil", "secret-key", "extracts/../secret-key", "logs/a"])
def test_an_output_that_the_database_names_is_neither_shown_nor_removed_elsewhere(name, folder):
    (folder / "secret-key").write_text("ours")
    with pytest.raises(Forbidden, match="outputs"):
        outputs.discard(folder, [name])
    with pytest.raises(Forbidden, match="outputs"):
        outputs.show(folder, {"extracts/a.csv": name})
    with pytest.raises(Forbidden, match="outputs"):
        outputs.show(folder, {name: "extracts/.a.csv.tmp"})
    assert files_below(folder) == ["secret-key"]


@pytest.mark.parametrize("name", ["../evil.csv", "/etc/evil.csv", "traces/../../evil.csv"])
def test_an_uploaded_trace_lies_among_the_traces_whatever_its_name(name, folder):
    trace = save_upload(folder, name, io.BytesIO(b"rate\n1\n2\n"), "rate", PERSON)
    assert trace.path == "traces/7/evil.csv" and files_below(folder.parent) == ["data/traces/7/evil.csv"]


def test_an_uploaded_trace_goes_through_no_link(folder, tmp_path):
    (folder / "traces" / "7").mkdir(parents=True)
    (folder / "traces" / "7" / "evil.csv").symlink_to(tmp_path / "outside.csv")
    with pytest.raises(Forbidden, match="a link"):
        save_upload(folder, "evil.csv", io.BytesIO(b"rate\n1\n2\n"), "rate", PERSON)
    assert files_below(tmp_path) == []
