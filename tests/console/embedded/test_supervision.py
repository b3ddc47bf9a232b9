"""Processes under a real supervisor: seen, their logs read without secrets, started again."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from common import environment as variables
from common.errors import BadInput
from console.connections import supervisor
from console.connections.log_text import mask_secrets
from console.embedded.leftovers import end_leftovers
from console.embedded.processes import Process
from console.embedded.supervision import Supervisor
from queues.nodes.server import ServerConfig, free_port
from tests.servers import Server
from tests.waiting import MAX_SECONDS, until

ROOT = Path(__file__).resolve().parents[3]
SECRET = "a-password-of-the-plant"
TALK = "import os, time; print('redis://:" + SECRET + "@host/0 begins', os.getpid(), flush=True); time.sleep(600)"


@pytest.fixture
def supervised(tmp_path, monkeypatch):
    """One process that says its secret and sleeps; the supervisor's events are read as ./run reads them."""
    monkeypatch.setitem(variables.PROCESS, variables.DATA.name, str(tmp_path))
    monkeypatch.setitem(variables.PROCESS, variables.REDIS_URL.name, f"redis://:{SECRET}@host/0")
    monkeypatch.setitem(variables.PROCESS, variables.SUPERVISOR.name, "")
    script = tmp_path / "talk.py"
    script.write_text(TALK)
    made = Supervisor(tmp_path, tmp_path)
    made.start([Process("talker", (sys.executable, str(script)), first=True)], [])
    reader = threading.Thread(target=lambda: list(made.iterate_process_events()), daemon=True)
    reader.start()
    until(lambda: _state() == "RUNNING")
    yield made
    made.stop()
    reader.join(MAX_SECONDS)


def _state():
    try:
        return supervisor.get_process("talker").state
    except (supervisor.NoSupervisor, BadInput):
        return None


# It ends once the others that it was given were asked to end as well: one after the other, none would.
LAST_WORDS = """
import signal, sys, time
name, path, *others = sys.argv[1:]
def say(word):
    with open(path, "a") as out:
        print(word, name, file=out, flush=True)
def end(*_):
    say("asked")
    while not all(f"asked {other}" in open(path).read() for other in others):
        time.sleep(0.01)
    say("ended")
    sys.exit()
signal.signal(signal.SIGTERM, end)
say("runs")
while True:
    time.sleep(60)
"""


def test_a_plant_is_stopped_at_once_and_its_servers_after_it(tmp_path, monkeypatch):
    """One after another, 15 processes took a minute to stop on a busy host."""
    monkeypatch.setitem(variables.PROCESS, variables.SUPERVISOR.name, "")
    script, said = tmp_path / "words.py", tmp_path / "said"
    script.write_text(LAST_WORDS)
    a, b, s = (
        Process(name, (sys.executable, str(script), name, str(said), *others), stop_seconds=120)
        for name, others in (("a", "b"), ("b", "a"), ("s", ""))
    )
    made = Supervisor(tmp_path, tmp_path)
    made.start([s], [a, b])
    until(lambda: said.exists())
    made.start_processes(*(process.name for process in made.plant))
    until(lambda: said.read_text().count("runs") == 3)
    made.stop()
    _assert_ended_in_order(said)


def _assert_ended_in_order(said):
    """The plant at once, then the server that it writes to."""
    lines = [line for line in said.read_text().splitlines() if not line.startswith("runs")]
    assert {*lines[:2]} == {"asked a", "asked b"} and {*lines[2:4]} == {"ended a", "ended b"}
    assert lines[4:] == ["asked s", "ended s"]


@pytest.mark.parametrize("name", ["my plant (2nd)", "C#; 100%(a)s? %"])
def test_a_plant_runs_in_a_folder_whatever_its_name_has(name, tmp_path, monkeypatch):
    monkeypatch.setitem(variables.PROCESS, variables.SUPERVISOR.name, "")
    folder = tmp_path / name
    folder.mkdir()
    script, said = folder / "words.py", folder / "said"
    script.write_text(LAST_WORDS)
    made = Supervisor(folder, folder)
    try:
        made.start([Process("a", (sys.executable, str(script), "a", str(said)))], [])
        until(lambda: said.exists() and said.read_text() == "runs a\n")
    finally:
        made.stop()


LAUNCHER = """
import sys
from pathlib import Path
from console.embedded.leftovers import end_leftovers
from console.embedded.processes import Process
from console.embedded.supervision import FIRST_NICE, Supervisor, may_go_first
from tests.waiting import until
data = Path(sys.argv[1])
script, said = data / "words.py", data / "said"
a, b, s = (
    Process(name, (sys.executable, str(script), name, str(said), *others), stop_seconds=120)
    for name, others in (("a", "b"), ("b", "a"), ("s", ""))
)
made = Supervisor(data, Path.cwd())
made.start([s], [a, b])
until(said.exists)  # the supervisor listens
made.start_processes(*(process.name for process in made.plant))
for sentence in made.iterate_process_events():
    print(sentence, flush=True)
"""


@pytest.fixture
def launched(tmp_path):
    """A launcher with a server and two processes, as ./run is one; whatever becomes of it is ended."""
    (tmp_path / "words.py").write_text(LAST_WORDS)
    environment = {**os.environ, variables.DATA.name: str(tmp_path)}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)], env=environment, cwd=ROOT)
    said = tmp_path / "said"
    until(lambda: said.exists() and said.read_text().count("runs") == 3)
    yield launcher, tmp_path
    launcher.kill()
    launcher.wait()
    end_leftovers(tmp_path)


def _started_by(launcher):
    """The supervisor, and three processes.

    psutil leaves out children while the system clock is adjusted: it compares start times by the clock.
    """
    return until(lambda: len(found := psutil.Process(launcher.pid).children(recursive=True)) == 4 and found)


def _ended(processes):
    return not psutil.wait_procs(processes, timeout=0)[1]


def test_a_launcher_that_is_killed_takes_its_processes_with_it(launched):
    launcher, data = launched
    started = _started_by(launcher)
    launcher.kill()
    launcher.wait()
    until(lambda: _ended(started))
    _assert_ended_in_order(data / "said")


def test_what_a_killed_launcher_and_supervisor_left_is_ended_before_the_next_start(launched):
    launcher, data = launched
    started = _started_by(launcher)
    (supervisord,) = psutil.Process(launcher.pid).children()
    supervisord.suspend()  # frozen, it follows no signal of the kernel's either
    launcher.kill()
    launcher.wait()
    assert len([process for process in started if process.is_running()]) == 4
    assert end_leftovers(data) == 4
    assert _ended(started)
    assert {"ended a", "ended b", "ended s"} <= {*(data / "said").read_text().splitlines()}


def test_a_server_and_the_pipeline_are_known_without_what_they_were_started_with(tmp_path):
    """A server writes over its environment, the pipeline drops most of its own."""
    server = Server(ServerConfig(free_port(), tmp_path / "servers/n1")).start()
    sleep = ["-c", "import time; time.sleep(600)", "workers.pipeline.runtime.application"]
    pipeline = subprocess.Popen([sys.executable, *sleep], env={variables.DATA.name: str(tmp_path)})
    try:
        until(lambda: psutil.Process(pipeline.pid).environ())
        assert end_leftovers(tmp_path / "other") == 0
        assert end_leftovers(tmp_path) == 2
        assert not psutil.pid_exists(pipeline.pid)
    finally:
        pipeline.kill()
        pipeline.wait()
        server.close()


def test_a_supervisor_that_is_killed_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setitem(variables.PROCESS, variables.SUPERVISOR.name, "")
    monkeypatch.setitem(variables.PROCESS, variables.DATA.name, str(tmp_path))
    script, said = tmp_path / "words.py", tmp_path / "said"
    script.write_text(LAST_WORDS)
    made = Supervisor(tmp_path, tmp_path)
    made.start([Process("a", (sys.executable, str(script), "a", str(said)))], [])
    until(lambda: said.exists())
    made.child.kill()
    assert list(made.iterate_process_events()) == []  # the launcher sees its end, and stops
    made.stop()
    assert "ended a" in said.read_text()


def test_a_process_is_shown_and_comes_back_with_its_restarts_counted(supervised):
    before = supervisor.get_process("talker")
    assert (before.is_well, before.restarts, before.ended_at) == (True, 0, None)
    assert before.pid and before.since
    supervisor.restart("talker", at_once=False)
    until(lambda: _state() == "RUNNING" and supervisor.get_process("talker").restarts == 1)
    after = supervisor.get_process("talker")
    assert after.pid != before.pid and after.ended_at and "SIGTERM" in after.how_it_ended
    supervisor.restart("talker", at_once=True)
    until(lambda: _state() == "RUNNING" and supervisor.get_process("talker").restarts == 2)
    assert "SIGKILL" in supervisor.get_process("talker").how_it_ended


def test_a_log_is_read_without_the_secret_in_it(supervised):
    lines = until(lambda: supervisor.log_lines("talker"))
    assert "begins" in lines[0]
    assert SECRET not in "".join(lines)


def test_a_frozen_supervisor_keeps_no_page_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "ANSWER_SECONDS", 0.2)
    address = tmp_path / "frozen.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as frozen:
        frozen.bind(str(address))
        frozen.listen()
        monkeypatch.setitem(variables.PROCESS, variables.SUPERVISOR.name, str(address))
        with pytest.raises(supervisor.NoSupervisor, match="is not responding"):
            supervisor.list_processes()


@pytest.mark.parametrize(
    "text, shown",
    [
        ("postgres://weir:hunter22@db/weir", "postgres://…@db/weir"),
        ("Authorization: Bearer abc.def", "Authorization: …"),
        ("token weir_0123456789abcdefgh was used", "token … was used"),
        ('{"password": "hunter22", "user": "ada"}', '{"password": …", "user": "ada"}'),
        ("the key is long-secret-word", "the key is …"),
        ("east was asked with plain-old-word", "east was asked with …"),
        ("3 events, n1 OFFLINE", "3 events, n1 OFFLINE"),
    ],
)
def test_what_is_secret_or_resembles_it_is_left_out(text, shown):
    named = {"WEIR_SECRET_SHOP": "long-secret-word", "WEIR_EAST_TOKEN": "plain-old-word"}
    said = mask_secrets(text, named)
    assert said == shown or ("hunter22" not in said and "abc.def" not in said)
