"""Files of a plant are its owner's alone: from the first byte, and after what an older version left."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import BadInput
from common.files import create_private_folder, keep_private, load_or_create_secret, mend, write_private


@pytest.fixture(autouse=True)
def _generous_umask() -> Iterator[None]:
    """As a shell has it: nothing here may lean on the caller's umask."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_after_keep_private_a_new_file_is_the_owners_alone(tmp_path):
    keep_private()
    (tmp_path / "made").write_text("x")
    (tmp_path / "folder").mkdir()
    assert (mode(tmp_path / "made"), mode(tmp_path / "folder")) == (0o600, 0o700)


def test_a_private_file_replaces_one_that_others_could_read_and_leaves_a_links_target_alone(tmp_path):
    target, path = tmp_path / "target", tmp_path / "secret"
    target.write_text("theirs")
    path.symlink_to(target)
    write_private(path, "ours")
    assert (path.read_text(), mode(path), target.read_text()) == ("ours", 0o600, "theirs")
    path.chmod(0o644)
    write_private(path, "again")
    assert mode(path) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["secret", "target"]


def test_processes_that_start_together_keep_one_secret_and_none_reads_it_half_written(tmp_path):
    """Several threads stand for the processes of a first start."""
    path, found = tmp_path / "data" / "secret-key", set()
    begin = threading.Barrier(16)

    def start(number: int) -> None:
        begin.wait()
        found.add(load_or_create_secret(path, f"{number:040}"))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {path.read_text()} and len(path.read_text()) == 40
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert [each.name for each in path.parent.iterdir()] == ["secret-key"]


def test_what_is_kept_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A power loss just after a first start must leave no secret that is empty."""
    synced = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.fstat(descriptor).st_size, sorted(each.name[0] for each in tmp_path.iterdir())))

    monkeypatch.setattr(os, "fsync", noted)
    load_or_create_secret(tmp_path / "secret-key", "k" * 40)
    write_private(tmp_path / "ports", "8000")
    assert synced == [(40, ["."]), (4, [".", "s"])]


def test_what_an_older_version_left_is_mended_and_what_links_point_to_is_not(tmp_path):
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_text("not the plant's")
    data = tmp_path / "data"
    (data / "servers" / "n1").mkdir(parents=True)
    (data / "servers" / "n1" / "appendonly.aof").write_text("events")
    (data / "run.sh").write_text("#!/bin/sh")
    (data / "run.sh").chmod(0o755)
    os.mkfifo(data / "pipe", 0o666)
    (data / "file").symlink_to(outside / "file")
    (data / "folder").symlink_to(outside / "folder")
    answer = mend(data)
    assert answer.changed == 5 and not answer.foreign and not answer.unseen
    assert mode(data) == 0o700 and mode(data / "run.sh") == 0o700
    assert mode(data / "servers" / "n1" / "appendonly.aof") == 0o600
    assert (mode(outside / "file"), mode(outside / "folder")) == (0o644, 0o755)
    assert mend(data).changed == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_files_of_other_users_are_counted_and_left_alone(tmp_path):
    (tmp_path / "theirs").write_text("x")
    os.chown(tmp_path / "theirs", 65534, 65534)
    (tmp_path / "theirs").chmod(0o644)
    answer = mend(tmp_path)
    assert (answer.changed, answer.foreign, mode(tmp_path / "theirs")) == (0, 1, 0o644)


def test_a_walk_ends_at_its_limit_behind_a_closed_folder(tmp_path):
    for number in range(10):
        (tmp_path / str(number)).write_text("x")
    tmp_path.chmod(0o755)
    answer = mend(tmp_path, most_entries=4)
    assert (answer.changed, answer.unseen, mode(tmp_path)) == (4, True, 0o700)


def test_a_private_folder_that_is_there_is_closed_to_others(tmp_path):
    tmp_path.chmod(0o755)
    create_private_folder(tmp_path)
    assert mode(tmp_path) == 0o700


def test_a_folder_that_all_users_share_is_refused_and_left_as_it_is(tmp_path: Path):
    tmp_path.chmod(0o1777)
    for close in (create_private_folder, mend):
        with pytest.raises(BadInput, match="shared by all users"):
            close(tmp_path)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    tmp_path.chmod(0o700)
