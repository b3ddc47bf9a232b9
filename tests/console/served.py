"""The console as it is served: a real uvicorn on a database and a data folder of its own."""

import http.client
import os
import shutil
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from console.embedded.processes import build_web_process
from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
# For tests that watch with more sockets than one person may have.
MANY_SOCKETS = {"WEIR_LIVE_SOCKETS_PER_PERSON": "200"}
PASSWORD = "a long enough pass phrase"
MIGRATED = "migrated.sqlite3"  # an empty database with every table, which tests/conftest.py makes once in a run
# In one process: each start of Django takes seconds. What takes even longer is done once for all consoles of a run:
# the first leaves a copy in the folder that it is given.
READY = """
import os, shutil, sys, tempfile
from contextlib import suppress
from pathlib import Path
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
django.setup()
from django.conf import settings
from django.core.management import call_command
from django.db import connection
prepared = Path(sys.argv[1])
if not prepared.exists():
    call_command("migrate", verbosity=0, interactive=False)
    call_command("collectstatic", verbosity=0, interactive=False)
    connection.close()  # which writes what its journal holds
    copy = Path(tempfile.mkdtemp(dir=prepared.parent))
    shutil.copy(settings.DATABASES["default"]["NAME"], copy)
    shutil.copytree(settings.STATIC_ROOT, copy / "static")
    with suppress(OSError):  # another was first
        copy.rename(prepared)
call_command("seed")
"""


@dataclass(frozen=True)
class Served:
    """A running console."""

    port: int
    log: Path
    environment: dict[str, str]

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def live(self):
        return f"ws://127.0.0.1:{self.port}/live/"

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=MAX_SECONDS)

    def answers(self):
        with closing(self.connection()) as connection:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200

    def log_in(self):
        """The Cookie header of a logged-in administrator."""
        with closing(self.connection()) as connection:
            connection.request("GET", "/login/")
            answer = connection.getresponse()
            answer.read()
            csrf = answer.headers["Set-Cookie"].split(";")[0]
            body = urlencode({"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": csrf.split("=", 1)[1]})
            headers = {"Cookie": csrf, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/login/", body, headers)
            answer = connection.getresponse()
            assert answer.status == 302, answer.read()[:500]
            cookies = [value.split(";")[0] for value in answer.headers.get_all("Set-Cookie")]
        return "; ".join(cookies)


@contextmanager
def serving(control, nodes, data, open_files=None, **variables):
    """A console on these servers, its database and files in `data`, with these variables in its environment;
    it ends with the block. open_files: how many files it may hold open.
    """
    environment = {
        **os.environ, "WEIR_DATA": str(data), "REDIS_URL": control.url,
        "WEIR_NODES": " ".join((f"{name}={server.url}" for name, server in nodes.items())),
        "WEIR_ADMIN_PASSWORD": PASSWORD, "DATABASE_URL": f"sqlite:///{data / 'weir.sqlite3'}", **variables,
    }  # fmt: skip
    prepared, migrated = (_find_shared_folder(data) / name for name in ("prepared-console", MIGRATED))
    if prepared.exists():
        shutil.copytree(prepared, data, dirs_exist_ok=True)
    elif migrated.exists():
        shutil.copy(migrated, data / "weir.sqlite3")
    ready = [sys.executable, "-c", READY, prepared]
    subprocess.run(ready, cwd=ROOT, env=environment, check=True, capture_output=True)
    port = free_port()
    log = data / "web.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*_limited(open_files), sys.executable, "-m", *build_web_process("127.0.0.1", port).command], cwd=ROOT,
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    console = Served(port, log, environment)
    try:
        until(console.answers, 200)
        yield console
    finally:
        process.terminate()
        process.wait(MAX_SECONDS)


def _find_shared_folder(data):
    """Return the folder that all processes of a run share, above the temporary folders of this one."""
    return data.parent.parent if "PYTEST_XDIST_WORKER" in os.environ else data.parent


def _limited(open_files):
    """Return what a command begins with to have this limit."""
    return [] if open_files is None else ["bash", "-c", f'ulimit -n {open_files}; exec "$0" "$@"']


@pytest.fixture(scope="session")
def served(_control_server, _node_servers, tmp_path_factory):
    """One console for all tests that need a served one: to start it takes longer than most of them."""
    data = tmp_path_factory.mktemp("console")
    with serving(_control_server, _node_servers, data, **MANY_SOCKETS) as console:
        yield console
