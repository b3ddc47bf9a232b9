"""The migrated database and the static files with which new plants of an installation start."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from console import release
from console.embedded import preparation, prepared_files
from console.embedded.prepared_files import PreparedFiles, compute_digest


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """An installation without kept files."""
    monkeypatch.setattr(release, "get_default_data_folder", lambda: tmp_path / "installation")
    return tmp_path / "installation"


def _write_database(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode=WAL; CREATE TABLE loop (name TEXT);")


def _list_tables(path):
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


def _make_data_folder(tmp_path, name):
    static = tmp_path / name / "static"
    static.mkdir(parents=True)
    return tmp_path / name, static


def test_a_new_plant_starts_with_the_migrated_database_of_an_earlier_one(installation, tmp_path):
    first, second = tmp_path / "first.sqlite3", tmp_path / "second.sqlite3"
    _write_database(first)
    PreparedFiles("a").keep_database(first)
    PreparedFiles("other").copy_database(second)
    assert not second.exists()
    PreparedFiles("a").copy_database(second)
    assert _list_tables(second) == ["loop"]


def test_a_database_of_a_plant_is_not_replaced(installation, tmp_path):
    first, own = tmp_path / "first.sqlite3", tmp_path / "own.sqlite3"
    _write_database(first)
    PreparedFiles("a").keep_database(first)
    own.write_bytes(b"")
    PreparedFiles("a").copy_database(own)
    assert own.read_bytes() == b""


def test_static_files_are_collected_once_for_each_version(installation, tmp_path):
    first, static = _make_data_folder(tmp_path, "first")
    (static / "a.css").write_text("a {}")
    prepared = PreparedFiles("a")
    assert not prepared.has_collected(first) and not prepared.copy_static_files(static)
    prepared.keep_static_files(first, static)
    assert prepared.has_collected(first)
    assert not PreparedFiles("b").has_collected(first)

    second, static = _make_data_folder(tmp_path, "second")
    assert prepared.copy_static_files(static)
    prepared.keep_static_files(second, static)
    assert (static / "a.css").read_text() == "a {}" and prepared.has_collected(second)
    (static / "a.css").unlink()
    static.rmdir()
    assert not prepared.has_collected(second)


def test_only_the_files_of_the_installed_version_are_kept(installation, tmp_path):
    data, static = _make_data_folder(tmp_path, "data")
    for digest in ("a", "b"):
        PreparedFiles(digest).keep_static_files(data, static)
    assert [folder.name for folder in (installation / "prepared").iterdir()] == ["b"]
    assert [path.name for path in (installation / "prepared" / "b").iterdir()] == ["static"]


def test_an_installation_that_cannot_be_written_keeps_nothing(installation, tmp_path):
    installation.write_text("no folder")
    data, static = _make_data_folder(tmp_path, "data")
    _write_database(tmp_path / "first.sqlite3")
    prepared = PreparedFiles("a")
    prepared.keep_database(tmp_path / "first.sqlite3")
    prepared.keep_static_files(data, static)
    assert prepared.has_collected(data) and not prepared.copy_static_files(static)


@pytest.fixture
def unreadable(installation, monkeypatch):
    """The kept files of an installation whose folder belongs to another user."""
    for name in ("exists", "is_dir", "mkdir"):
        original = getattr(Path, name)

        def refuse(path, original=original, **options):
            if installation in path.parents:
                raise PermissionError(13, "Permission denied", str(path))
            return original(path, **options)

        monkeypatch.setattr(Path, name, refuse)
    return PreparedFiles("a")


def test_files_in_a_private_folder_of_another_user_do_not_count_as_kept(unreadable, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "static").mkdir()
    first, second = tmp_path / "first.sqlite3", tmp_path / "second.sqlite3"
    _write_database(first)
    unreadable.keep_database(first)
    unreadable.copy_database(second)
    unreadable.keep_static_files(tmp_path / "data", tmp_path / "static")
    assert not unreadable.copy_static_files(tmp_path / "static") and not second.exists()


@pytest.fixture
def kept(installation, tmp_path):
    """Kept files: a database, and two static files."""
    data, static = _make_data_folder(tmp_path, "data")
    for name in ("a.css", "b.css"):
        (static / name).write_text(name * 1_000)
    _write_database(tmp_path / "first.sqlite3")
    prepared = PreparedFiles("a")
    prepared.keep_database(tmp_path / "first.sqlite3")
    prepared.keep_static_files(data, static)
    return prepared


def _fail_to_copy(monkeypatch, name):
    """Make the copy of a file fail after half of its bytes, as on a full disk."""
    copy = shutil.copyfile

    def copy_half(source, target, **options):
        if Path(source).name != name:
            return copy(source, target, **options)
        content = Path(source).read_bytes()
        Path(target).write_bytes(content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", copy_half)


def test_a_failed_copy_of_the_database_leaves_no_file(kept, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    _fail_to_copy(monkeypatch, "database.sqlite3")
    kept.copy_database(tmp_path / "new" / "database.sqlite3")
    assert not list((tmp_path / "new").iterdir())


def test_files_that_another_start_deletes_meanwhile_are_not_copied(kept, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    monkeypatch.setattr(Path, "exists", lambda path, **_: kept.folder in path.parents)
    monkeypatch.setattr(Path, "is_dir", lambda path, **_: kept.folder in path.parents)
    shutil.rmtree(kept.folder)
    kept.copy_database(tmp_path / "new" / "database.sqlite3")
    assert not kept.copy_static_files(tmp_path / "new" / "static")
    assert not list((tmp_path / "new").iterdir())


def test_after_an_incomplete_copy_the_static_files_are_collected(kept, tmp_path, settings, monkeypatch):
    settings.WEIR_DATA, settings.STATIC_ROOT = tmp_path / "new", tmp_path / "new" / "static"
    settings.WEIR_DATA.mkdir()
    _fail_to_copy(monkeypatch, "b.css")
    copied = []

    def collect(name, **_):
        copied.extend(path.name for path in settings.STATIC_ROOT.iterdir())

    monkeypatch.setattr("django.core.management.call_command", collect)
    preparation.collect(kept)
    assert copied == ["a.css"]  # `collectstatic` would leave a newer incomplete file as it is


def test_a_failed_copy_to_the_kept_files_leaves_no_file(installation, tmp_path, monkeypatch):
    data, static = _make_data_folder(tmp_path, "data")
    (static / "a.css").write_text("a {}")
    _fail_to_copy(monkeypatch, "a.css")
    PreparedFiles("a").keep_static_files(data, static)
    assert not list((installation / "prepared" / "a").iterdir())


@pytest.mark.parametrize("kind", ["migrations", "static_files"])
def test_a_changed_file_changes_the_digest(kind, tmp_path, monkeypatch):
    file = tmp_path / "0001_initial.py"
    file.write_text("")
    monkeypatch.setattr(prepared_files, f"_iterate_{kind}", lambda: iter([file]))
    before = compute_digest()
    assert compute_digest() == before
    os.utime(file, (1, 1))
    assert compute_digest() != before


def test_static_files_that_a_data_folder_has_are_not_collected_again(installation, tmp_path, settings, monkeypatch):
    settings.WEIR_DATA, settings.STATIC_ROOT = tmp_path, tmp_path / "static"
    calls = []

    def call(name, **_):
        calls.append(name)
        settings.STATIC_ROOT.mkdir()

    monkeypatch.setattr("django.core.management.call_command", call)
    for _ in range(2):
        preparation.collect(PreparedFiles("a"))
    assert calls == ["collectstatic"]
