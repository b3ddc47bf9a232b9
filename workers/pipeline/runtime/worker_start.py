"""Startup of the Python workers of a local Spark.

Its PYSPARK_PYTHON calls `main` with `-m MODULE ARGUMENTS`, and with `-c CODE` to query Python's version. Spark waits 10
seconds for the worker behind a streaming source to call back, and the worker calls once it has imported PySpark: on a
loaded host too late, at every try. Here the call goes to the process that has the session (`source_calls`). If no
process takes it, this one calls first and imports then. Workers for planning are only needed when queries start, so
their daemon ends when it has had no worker for a while; Spark starts it again.
"""

import json
import os
import runpy
import signal
import socket
import struct
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, cast

import psutil

from common import environment as variables
from common.files import create_private_folder, write_private
from workers.pipeline.runtime.worker_daemon import prefer_installed

SOURCE_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"
DAEMON = "pyspark.daemon"
CONNECT_SECONDS = 15.0
CALLS = "calls"  # the socket that takes the calls of sources
TAKEN_SECONDS = 5.0
# Spark and its Python workers communicate over Unix sockets in this folder, which only this user can open. Over the
# loopback interface, a job of one task takes 40 ms longer, because its last packets wait for delayed acknowledgments.
SOCKETS = "sockets"
SOCKET_NAME = f".{uuid.UUID(int=0)}.sock"  # the form of the names of Spark's sockets
MAX_SOCKET_PATH = 103  # bytes; the limit of Spark, which is lower than the limit of the kernel
IDLE_SECONDS = 60.0  # Spark ends a worker that was idle for as long
_START = "#!{python}\nfrom workers.pipeline.runtime.worker_start import main\n\nmain()\n"


def create_python_launcher(folder: Path) -> str:
    """Return an executable file in `folder` that Spark starts in place of Python.

    Returns Python itself if files in the folder can't be executed.
    """
    file = folder / "python"
    create_private_folder(folder)
    write_private(file, _START.format(python=sys.executable))
    file.chmod(0o700)
    return str(file) if os.access(file, os.X_OK) else sys.executable


def build_socket_settings(folder: Path) -> dict[str, str]:
    """Return Spark's settings for Unix sockets in a folder of `folder`.

    Returns no settings if the paths of the sockets would be too long. Then Spark uses the loopback interface.
    """
    sockets = folder.resolve() / SOCKETS
    if len(os.fsencode(sockets / SOCKET_NAME)) > MAX_SOCKET_PATH:
        return {}
    create_private_folder(sockets)
    for left in sockets.glob(".*.sock"):  # by a process that was killed
        left.unlink(missing_ok=True)
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(sockets)}


@dataclass(frozen=True)
class SparkCall:
    """The address at which Spark waits for a worker: the path of a Unix socket, or a port with a secret."""

    path: str = ""
    port: int = 0
    secret: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "SparkCall":
        """Return the address in Spark's environment variables. Raises `KeyError` or `ValueError` if it is invalid."""
        if path := environment.get(variables.SPARK_CALLBACK_PATH):
            return cls(path)
        return cls("", int(environment[variables.SPARK_CALLBACK_PORT]), environment[variables.SPARK_CALLBACK_SECRET])

    @classmethod
    def from_text(cls, text: bytes) -> "SparkCall":
        """Parse the result of `to_text`. Raises `KeyError`, `TypeError`, or `ValueError`."""
        call = json.loads(text)
        return cls(str(call["path"]), int(call["port"]), str(call["secret"]))

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Run MODULE as `python -m` would; other calls are passed to Python."""
    if sys.argv[1] != "-m":
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    folder, module, sys.argv = Path(sys.argv[0]).parent, sys.argv[2], sys.argv[2:]
    prefer_installed()
    if module == DAEMON:
        end_when_idle(IDLE_SECONDS)
    if module == SOURCE_WORKER:
        if hand_over(folder):
            return
        connection = call_back(SparkCall.read(variables.PROCESS))

        @contextmanager
        def as_called(timeout: int | None = -1) -> Iterator[IO[bytes]]:
            with connection:
                yield connection

        import_module("pyspark.worker_util").get_sock_file_to_executor = as_called  # type: ignore[attr-defined]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def end_when_idle(seconds: float) -> None:
    """End this process once it had no worker at two consecutive checks, that far apart."""
    idle = False

    def check(*_: object) -> None:
        nonlocal idle
        was_idle, idle = idle, not psutil.Process().children()
        if idle and was_idle:
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)  # forked processes don't inherit it


@contextmanager
def open_calls_address(folder: Path) -> Iterator[str]:
    """Yield the socket's address in a folder whose path may be too long for a socket address."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{CALLS}"
    finally:
        os.close(opened)


def hand_over(folder: Path) -> bool:
    """Return whether the process that has the session calls Spark back in place of this one."""
    asked = SparkCall.read(variables.PROCESS).to_text()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, open_calls_address(folder) as address:
        connection.settimeout(TAKEN_SECONDS)
        try:
            connection.connect(address)
            connection.sendall(asked.encode())
            return connection.recv(2) == b"ok"
        except OSError:
            return False


def call_back(call: SparkCall) -> IO[bytes]:
    """Return the connection that the worker's module would make. It is authenticated, and this process's id is sent."""
    if call.path:  # only this user can open it, so Spark asks for no secret
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(call.path)
    else:
        connection = socket.create_connection(("127.0.0.1", call.port), timeout=CONNECT_SECONDS)
    with connection:  # closed once the stream is
        stream = connection.makefile("rwb", 65536)
        if not call.path:
            said = call.secret.encode()
            stream.write(struct.pack("!i", len(said)) + said)
            stream.flush()
            (length,) = struct.unpack("!i", stream.read(4))
            if stream.read(length) != b"ok":
                raise ConnectionRefusedError("Spark does not accept this worker")
        stream.write(struct.pack("!i", os.getpid()))
        stream.flush()
        connection.settimeout(None)
    return cast(IO[bytes], stream)
