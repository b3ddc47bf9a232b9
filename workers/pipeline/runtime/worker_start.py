"""Begins the Python workers of a local Spark: its PYSPARK_PYTHON calls `main` with `-m MODULE ARGUMENTS`.

Spark waits 10 seconds for the worker behind a streaming source to call back, and that worker calls when it
has imported PySpark: on a loaded host too late, at every try. Here it calls first, and imports then.
"""

import os
import runpy
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, cast

from queues import environment as variables
from queues.private_files import private_folder, write_private
from workers.pipeline.runtime.worker_daemon import prefer_installed

SOURCE_WORKER = "pyspark.sql.streaming.python_streaming_source_runner"
CONNECT_SECONDS = 15.0
_START = "#!{python}\nfrom workers.pipeline.runtime.worker_start import main\n\nmain()\n"


def interpreter(folder: Path) -> str:
    """An executable file in `folder` that Spark starts in place of Python; Python itself where the folder may
    hold none.
    """
    file = folder / "python"
    private_folder(folder)
    write_private(file, _START.format(python=sys.executable))
    file.chmod(0o700)
    return str(file) if os.access(file, os.X_OK) else sys.executable


def main() -> None:
    """Runs MODULE as `python -m` would."""
    module, sys.argv = sys.argv[2], sys.argv[2:]
    prefer_installed()
    if module == SOURCE_WORKER:
        connection = called_back()

        @contextmanager
        def as_called(timeout: int | None = -1) -> Iterator[IO[bytes]]:
            with connection:
                yield connection

        import_module("pyspark.worker_util").get_sock_file_to_executor = as_called  # type: ignore[attr-defined]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def called_back() -> IO[bytes]:
    """The connection that the worker's module would make: authenticated, this process's id said."""
    port, secret = (
        variables.PROCESS[name] for name in (variables.SPARK_CALLBACK_PORT, variables.SPARK_CALLBACK_SECRET)
    )
    connection = socket.create_connection(("127.0.0.1", int(port)), timeout=CONNECT_SECONDS)
    stream = connection.makefile("rwb", 65536)
    said = secret.encode()
    stream.write(struct.pack("!i", len(said)) + said)
    stream.flush()
    (length,) = struct.unpack("!i", stream.read(4))
    if stream.read(length) != b"ok":
        raise ConnectionRefusedError("Spark does not know this worker")
    stream.write(struct.pack("!i", os.getpid()))
    stream.flush()
    connection.settimeout(None)
    return cast(IO[bytes], stream)
