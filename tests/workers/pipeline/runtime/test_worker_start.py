"""A worker behind a source calls Spark back at once: Spark waits 10 seconds, and imports may take longer."""

import os
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from workers.pipeline.runtime.worker_start import SOURCE_WORKER, interpreter

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def asked(tmp_path: Path):
    """A process as Spark starts one, and the connection on which it calls back."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "a secret of Spark",
        }
        command = [interpreter(tmp_path), "-m", SOURCE_WORKER]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                yield process, connection
        finally:
            process.kill()
            process.communicate()


def received(connection: socket.socket, size: int) -> bytes:
    return connection.recv(size, socket.MSG_WAITALL)


def test_it_proves_who_it_is_and_says_its_process_before_it_imports_pyspark(asked):
    process, connection = asked
    (length,) = struct.unpack("!i", received(connection, 4))
    assert received(connection, length) == b"a secret of Spark"
    assert "numpy" not in Path(f"/proc/{process.pid}/maps").read_text()
    connection.sendall(struct.pack("!i", 2) + b"ok")
    assert struct.unpack("!i", received(connection, 4)) == (process.pid,)


def test_without_the_answer_that_it_is_known_it_ends(asked):
    process, connection = asked
    connection.sendall(struct.pack("!i", 2) + b"no")
    assert process.wait(60) != 0


def test_nobody_else_may_change_what_spark_starts(tmp_path: Path):
    file = Path(interpreter(tmp_path / "python"))
    assert file.stat().st_mode & 0o777 == 0o700
