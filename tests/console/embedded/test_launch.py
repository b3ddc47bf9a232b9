"""The launcher: what it refuses before it starts anything, and how it ends."""

import os
import signal
from collections.abc import Iterator

import pytest

from console.embedded import launch
from console.embedded.local import EmbeddedServers
from console.embedded.processes import list_plant_processes


@pytest.fixture
def _signals() -> Iterator[None]:
    """Those that stop the launcher, handled as it handles them."""
    before = {signum: signal.signal(signum, launch.stop_on_signal) for signum in launch.STOPPING}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("WEIR_NODES", "n1", "must be name=redis://host:port/0 pairs"),
        ("WEIR_NODES", "n1=redis://a:1/0 n1=redis://b:1/0", "give each node a different name"),
        ("WEIR_PRODUCTION", "yes", "must be 1 or 0"),
    ],
)
def test_a_bad_setting_is_refused_in_one_line_before_anything_is_started(
    name, value, remedy, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv(name, value)
    assert launch.main(["--data", str(tmp_path / "data"), "--prepare"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and f"{name}: " in said.err and remedy in said.err
    assert said.out == "" and not (tmp_path / "data").exists()


def test_a_backup_is_restored_into_a_plant_that_is_started_and_else_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        launch.parse_arguments(["--prepare", "--restore", "weir.tar"])
    assert "can't be combined with --prepare" in capsys.readouterr().err


@pytest.mark.parametrize("inside", ["", "below", "lock"])
def test_a_data_folder_that_can_t_be_written_to_is_said_in_one_line(inside, tmp_path):
    """A file in its place, or above it; a file of its own that can't be opened."""
    data = tmp_path / "data"
    if inside == "lock":
        (data / "lock").mkdir(parents=True, mode=0o700)
    else:
        data.write_text("")
        data = data / inside
    with pytest.raises(SystemExit, match=r"^--data: \S+ is not a writable folder \(.+\); choose another folder\.$"):
        launch.main(["--data", str(data), "--prepare"])


def test_a_plant_and_then_its_servers_have_20_seconds_to_stop(tmp_path):
    """What takes longer is killed; how long it took on a busy host is no verdict."""
    servers = EmbeddedServers(tmp_path)
    launch.choose_ports(servers, ["n1"])
    plant = list_plant_processes(["n1"], 2, "127.0.0.1", 8000)
    server = launch.start_server(servers, "n1")
    assert max(process.stop_seconds for process in plant) + server.stop_seconds <= 20


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("signum", launch.STOPPING)
def test_a_signal_cuts_no_stop_short_also_where_it_is_the_first_one(signum):
    stopped = []

    class Stopping:
        def stop(self) -> None:
            os.kill(os.getpid(), signum)
            stopped.append(signum)

    launch.stop(Stopping())
    assert stopped == [signum]
