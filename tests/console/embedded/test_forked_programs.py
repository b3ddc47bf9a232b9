"""Programs that the supervisor forks: they share the imported modules, but no secrets, threads, or open files."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from common import environment as variables
from console.connections import supervisor
from console.embedded import forked_programs
from console.embedded.forked_programs import build_parent_environment, find_program
from console.embedded.leftovers import STARTED_BY_A_SUPERVISOR, end_leftovers
from console.embedded.processes import DRILL, SHOP, Process, list_plant_processes
from console.embedded.supervision import Supervisor, build_command
from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS, until

pytestmark = pytest.mark.skipif(not forked_programs.can_fork(), reason="This system can't fork programs.")
ROOT = Path(__file__).resolve().parents[3]
PASSWORD = "a-password-of-the-plant"
AGENT = "queues.nodes.agent"
# Prints the contents of a process that has imported the programs, and the settings that its fork loads.
ASK = """
import gc, json, os, sys, threading
from console.embedded import forked_programs
files = os.listdir("/proc/self/fd")
programs = forked_programs.ImportedPrograms()
programs.begin()
programs.wait()
from celery import current_app
from django.conf import settings
from django.db import connections
print(json.dumps({
    "secret_key": settings.SECRET_KEY, "url": settings.REDIS_URL,
    "threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")) - len(files),
    "configured": current_app.configured, "connected": connections.all(initialized_only=True),
    "frozen": gc.get_freeze_count(),
    "missing": [name for name in forked_programs.IMPORTED if name not in sys.modules],
}), flush=True)
os.environ.update(json.loads(sys.argv[1]))
forked_programs.load_settings()
print(json.dumps({
    "secret_key": settings.SECRET_KEY, "url": settings.REDIS_URL, "broker": current_app.conf.broker_url,
    "database": connections.settings["default"]["NAME"],
}))
"""


def test_every_python_program_of_a_plant_is_forked_except_the_pipeline():
    processes = [*list_plant_processes(["n1"], 2, "127.0.0.1", 8000, 1), DRILL, SHOP]
    started = [process.name for process in processes if find_program(build_command(process)) is None]
    assert started == ["pipeline", "pipeline-iap1"]


@pytest.mark.parametrize("priority", [(), ("nice", "-n", "-5")])
def test_a_program_is_found_in_its_command(priority):
    assert find_program([*priority, "/a/bin/python", "-m", AGENT, "n1"]) == ["-m", AGENT, "n1"]
    assert find_program([*priority, "/a/bin/python", "manage.py", "observe"]) == ["manage.py", "observe"]
    assert find_program([*priority, "/a/bin/celery", "--app", "b", "beat"]) == ["celery", "--app", "b", "beat"]
    assert find_program([*priority, "/a/bin/python", "-m", "workers.pipeline.runtime.application"]) is None
    assert find_program([*priority, "/a/bin/python", "/a/words.py"]) is None
    assert find_program([*priority, "valkey-server", "a.conf"]) is None


def test_the_environment_of_the_process_that_forks_has_no_secrets(tmp_path):
    secrets = {variable.name: PASSWORD for variable in variables.DECLARED if variable.secret}
    given = {**secrets, variables.NODES.name: PASSWORD, "WEIR_SECRET_MAIL": PASSWORD, "DATABASE_PASSWORD": PASSWORD}
    made = build_parent_environment({**given, "PATH": "/bin", variables.DATA.name: str(tmp_path)})
    assert PASSWORD not in made.values()
    assert (made["PATH"], made[variables.DATA.name], made[STARTED_BY_A_SUPERVISOR]) == ("/bin", str(tmp_path), "1")


def test_the_process_that_forks_holds_no_secrets_and_a_fork_loads_its_settings(tmp_path):
    url = f"redis://:{PASSWORD}@127.0.0.1:1/0"
    own = {variables.SECRET_KEY.name: PASSWORD, variables.REDIS_URL.name: url}
    environment = build_parent_environment({**os.environ, variables.DATA.name: str(tmp_path)})
    command = [sys.executable, "-c", ASK, json.dumps(own)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parent, fork = map(json.loads, done.stdout.splitlines())
    assert parent.pop("frozen") > 100_000
    assert parent == {
        "secret_key": environment[variables.SECRET_KEY.name],
        "url": variables.LOCAL_CONTROL,
        "threads": 1,
        "files": 0,
        "configured": False,
        "connected": [],
        "missing": [],
    }
    database = str(tmp_path / "weir.sqlite3")
    assert fork == {"secret_key": PASSWORD, "url": url, "broker": url, "database": database}
    assert not (tmp_path / "secret-key").exists()


@pytest.fixture
def supervised(tmp_path, monkeypatch):
    """A supervisor that forks an agent, whose control server does not answer."""
    monkeypatch.setitem(variables.PROCESS, variables.DATA.name, str(tmp_path))
    monkeypatch.setitem(variables.PROCESS, variables.REDIS_URL.name, f"redis://:{PASSWORD}@127.0.0.1:{free_port()}/0")
    monkeypatch.setitem(variables.PROCESS, variables.SUPERVISOR.name, "")
    made = Supervisor(tmp_path, ROOT)
    made.start([], [Process("agent-n1", ("python", "-m", AGENT, "n1")), Process("bad", ("python", "-m", AGENT))])
    reader = threading.Thread(target=lambda: list(made.iterate_process_events()), daemon=True)
    reader.start()
    yield made
    made.stop()
    reader.join(MAX_SECONDS)


def _start_agent(made):
    made.start_processes("agent-n1")
    until(lambda: supervisor.get_process("agent-n1").is_well)
    return psutil.Process(supervisor.get_process("agent-n1").pid)


def test_a_fork_is_a_process_like_any_other(supervised, tmp_path):
    agent = _start_agent(supervised)
    assert agent.ppid() == supervised.child.pid
    until(lambda: " ".join(agent.cmdline()).rstrip().endswith(f"-m {AGENT} n1"))
    assert PASSWORD not in "".join(agent.environ().values())
    until(lambda: "heartbeat not sent" in "".join(supervisor.log_lines("agent-n1")))
    agent.kill()
    until(lambda: supervisor.get_process("agent-n1").restarts == 1)
    until(lambda: supervisor.get_process("agent-n1").is_well)
    assert "SIGKILL" in supervisor.get_process("agent-n1").how_it_ended


def test_a_fork_ends_with_the_code_of_its_program(supervised):
    supervised.start_processes("bad")
    until(lambda: "exit status 2" in supervisor.get_process("bad").how_it_ended)
    assert "usage" in supervisor.log_lines("bad")[0]


def test_a_fork_of_a_killed_supervisor_is_ended_before_the_next_start(supervised, tmp_path):
    agent = _start_agent(supervised)
    supervised.child.send_signal(signal.SIGKILL)
    supervised.child.wait()
    assert agent.is_running()
    assert end_leftovers(tmp_path) == 1
    assert not agent.is_running()


@pytest.mark.parametrize(("program", "without_pages"), [("uvicorn", False), ("celery", True)])
def test_only_the_web_process_loads_the_key_of_pages(program, without_pages, monkeypatch):
    monkeypatch.setitem(variables.PROCESS, variables.WITHOUT_PAGES.name, "1")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setitem(forked_programs.SCRIPTS, program, ("os", "getpid"))
    seen = []
    monkeypatch.setattr(forked_programs, "load_settings", lambda: seen.append(variables.WITHOUT_PAGES.is_set()))
    forked_programs._run([program])
    assert seen == [without_pages]
