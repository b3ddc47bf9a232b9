"""A worker behind a source calls Spark back at once: Spark waits 10 seconds, and imports may take longer.
The process that has the session takes its call, where it can.
"""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

from tests.waiting import MAX_SECONDS
from workers.pipeline.runtime.session import answer_sources
from workers.pipeline.runtime.worker_start import (
    CALLS,
    MAX_SOCKET_PATH,
    SOURCE_WORKER,
    build_socket_settings,
    create_python_launcher,
)

ROOT = Path(__file__).resolve().parents[4]
SECRET = "a secret of Spark"


@contextmanager
def begun(folder: Path):
    """Yield a process as Spark starts one, and the connection on which it calls back at a port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with called_back(
            folder, server, PYTHON_WORKER_FACTORY_PORT=port, PYTHON_WORKER_FACTORY_SECRET=SECRET
        ) as called:
            yield called


@contextmanager
def begun_with_unix_socket(folder: Path):
    """The same where Spark waits at a Unix socket."""
    path = str(folder / "waiting")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        with called_back(folder, server, PYTHON_WORKER_FACTORY_SOCK_PATH=path) as called:
            yield called


@contextmanager
def called_back(folder: Path, server: socket.socket, **variables: str):
    server.settimeout(MAX_SECONDS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [create_python_launcher(folder), "-m", SOURCE_WORKER]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(MAX_SECONDS)
            yield process, connection
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def asked(tmp_path):
    with begun(tmp_path) as begins:
        yield begins


def test_it_proves_who_it_is_and_says_its_process_before_it_imports_pyspark(asked):
    process, connection = asked
    assert connection.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)
    assert "numpy" not in Path(f"/proc/{process.pid}/maps").read_text()
    assert proves_itself(connection) == process.pid


def test_without_the_answer_that_it_is_known_it_ends(asked):
    process, connection = asked
    connection.sendall(struct.pack("!i", 2) + b"no")
    assert process.wait(MAX_SECONDS) != 0


def proves_itself(connection: socket.socket) -> int:
    """The process that it says it is, once it is known."""
    (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    assert connection.recv(length, socket.MSG_WAITALL) == SECRET.encode()
    connection.sendall(struct.pack("!i", 2) + b"ok")
    (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    return pid


def test_the_process_that_has_the_session_answers_in_its_place_until_spark_hangs_up(tmp_path):
    place = tmp_path / ("long" * 40)
    create_python_launcher(place)
    answer_sources(place)
    with begun(place) as (process, connection):
        assert proves_itself(connection) == os.getpid()
        assert process.communicate(timeout=MAX_SECONDS) == (None, "")
        assert process.returncode == 0
        answering = [each for each in threading.enumerate() if each.name == "source"]
        assert len(answering) == 1
        connection.close()
        answering[0].join(MAX_SECONDS)
        assert not answering[0].is_alive()


def test_at_a_unix_socket_the_caller_says_its_process_and_no_secret(tmp_path):
    create_python_launcher(tmp_path)
    answer_sources(tmp_path)
    with begun_with_unix_socket(tmp_path) as (_, connection):
        (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        assert pid == os.getpid()


def test_a_worker_whose_call_is_not_taken_calls_the_unix_socket_itself(tmp_path):
    with begun_with_unix_socket(tmp_path) as (process, connection):
        (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        assert pid == process.pid


def test_the_unix_sockets_are_in_a_folder_that_only_this_user_can_open():
    with tempfile.TemporaryDirectory() as short:
        left = Path(short) / "sockets" / ".left.sock"
        left.parent.mkdir()
        left.touch()
        settings = build_socket_settings(Path(short))
        folder = Path(settings["spark.python.unix.domain.socket.dir"])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert not left.exists(), "of a process that was killed"


def test_in_a_folder_with_a_long_path_the_loopback_interface_is_used(tmp_path):
    assert build_socket_settings(tmp_path / ("n" * MAX_SOCKET_PATH)) == {}


def test_a_folder_whose_path_is_too_long_for_spark_is_not_given_to_it():
    # Spark rejects a folder of sockets whose path has 61 characters or more.
    with tempfile.TemporaryDirectory() as short:
        fits = Path(short, "n" * (60 - len(f"{short}//sockets")))
        assert len(build_socket_settings(fits)["spark.python.unix.domain.socket.dir"]) == 60
        assert build_socket_settings(fits.with_name(f"{fits.name}n")) == {}


def test_what_is_no_call_is_refused_and_the_next_is_answered(tmp_path):
    create_python_launcher(tmp_path)
    answer_sources(tmp_path)
    for nonsense in (b"", b"[1]", b"{}", b'{"port": "x", "secret": 1}', b"\xff" * 9_000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.settimeout(MAX_SECONDS)
            caller.connect(str(tmp_path / CALLS))
            with suppress(OSError):  # what is too long is not read to its end
                caller.sendall(nonsense)
                caller.shutdown(socket.SHUT_WR)
                assert caller.recv(2) == b""
    with begun(tmp_path) as (_, connection):
        assert proves_itself(connection) == os.getpid()


def test_where_nobody_is_behind_the_socket_it_answers_by_itself(tmp_path):
    create_python_launcher(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(tmp_path / CALLS))
    with begun(tmp_path) as (process, connection):
        assert proves_itself(connection) == process.pid


def test_what_plans_queries_ends_once_it_has_had_no_worker_for_a_while():
    lines = (
        "from workers.pipeline.runtime.worker_start import end_when_idle",
        "import os, signal, time",
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))",
        "end_when_idle(3_600.0)",
        "assert signal.getitimer(signal.ITIMER_REAL)[1] == 3_600.0",
        "child = os.fork()",
        "time.sleep(0 if child else 600)",
        "for _ in range(3): signal.raise_signal(signal.SIGALRM)",
        "os.kill(child, signal.SIGKILL), os.waitpid(child, 0), print('has no worker', flush=True)",
        "signal.raise_signal(signal.SIGALRM), print('idle once', flush=True)",
        "signal.raise_signal(signal.SIGALRM), print('idle twice', flush=True)",
    )
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stdout) == (7, "has no worker\nidle once\n")


def test_spark_is_answered_which_python_it_is(tmp_path):
    command = [create_python_launcher(tmp_path), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=True)
    assert (said.stdout, said.stderr) == (f"{sys.version_info.major}.{sys.version_info.minor}\n", "")


def test_nobody_else_may_change_what_spark_starts(tmp_path):
    file = Path(create_python_launcher(tmp_path / "python"))
    assert file.stat().st_mode & 0o777 == 0o700


INSTALLED = Path(pyspark.__file__).parent
ARCHIVES = sorted((INSTALLED / "python" / "lib").glob("*.zip"))
SAID = """
import sys
from zipimport import zipimporter
from workers.pipeline.runtime.worker_daemon import prefer_installed
prefer_installed()
import pyspark.version
print(pyspark.version.__file__)
print(sum(isinstance(importer, zipimporter) for importer in sys.path_importer_cache.values()))
"""


def test_pyspark_is_imported_as_it_is_installed_and_no_archive_is_searched():
    path = os.pathsep.join([*map(str, ARCHIVES), str(Path.cwd())])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", SAID]
    emitted = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert emitted.stdout.split() == [str(INSTALLED / "version.py"), "0"]
