"""A start removes the folders of launchers that are dead, and nothing else."""

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.embedded.leftovers import RuntimeFolder, remove_of_dead_launchers

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = """
import socket, sys, time
from console.embedded.leftovers import RuntimeFolder
folder = RuntimeFolder()
if sys.argv[1:]:
    socket.socket(socket.AF_UNIX).bind(str(folder.socket))
print(folder.path, flush=True)
time.sleep(60)
"""
TWO_HOURS = 7_200


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A /tmp of the test's own; a short path, as of a socket."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@contextmanager
def launcher(*words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    command = [sys.executable, "-c", LAUNCHER, *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


def dead_socket(path: Path) -> None:
    with listening(path):
        pass


def made(folder: Path, old: bool = True, mode: int = 0o700) -> Path:
    folder.mkdir(mode=mode)
    folder.chmod(mode)
    dead_socket(folder / "supervisor.sock")
    if old:
        os.utime(folder, (time.time() - TWO_HOURS,) * 2)
    return folder


@pytest.mark.parametrize("words", [(), ("bound",)])
def test_the_folder_of_a_launcher_that_was_killed_goes_and_that_of_one_that_lives_stays(words: tuple[str, ...]) -> None:
    with launcher(*words) as (first, dead), launcher(*words) as (_, alive):
        assert remove_of_dead_launchers() == 0
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert remove_of_dead_launchers() == 1
        assert not dead.exists() and alive.is_dir()


def test_a_folder_at_whose_socket_somebody_listens_stays(temporary: Path) -> None:
    with launcher() as (process, folder), listening(folder / "supervisor.sock"):
        process.kill()
        process.wait()
        assert remove_of_dead_launchers() == 0
    assert remove_of_dead_launchers() == 1


def test_what_a_launcher_has_not_made_stays(temporary: Path) -> None:
    precious = temporary / "precious"
    precious.mkdir()
    (precious / "supervisor.sock").touch()
    (precious / "lock").touch()
    (temporary / "weir-aaaaaaa1").symlink_to(precious)
    (temporary / "weir-aaaaaaa2").touch()
    more = made(temporary / "weir-aaaaaaa3")
    (more / "notes.txt").touch()
    os.utime(more, (time.time() - TWO_HOURS,) * 2)
    made(temporary / "weir-aaaaaaa4", mode=0o755)
    made(temporary / "weir-postgres-aaaaaaaa")
    linked = temporary / "weir-aaaaaaa5"
    linked.mkdir(mode=0o700)
    (linked / "lock").symlink_to(precious / "lock")
    before = sorted(each.name for each in temporary.iterdir())
    assert remove_of_dead_launchers() == 0
    assert sorted(each.name for each in temporary.iterdir()) == before
    assert len(list(precious.iterdir())) == 2 and (more / "notes.txt").exists()


def test_a_folder_is_closed_to_others_and_goes_with_its_launcher(temporary: Path) -> None:
    folder = RuntimeFolder()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert [each.name for each in folder.path.iterdir()] == ["lock"]
    folder.remove()
    assert list(temporary.iterdir()) == []
