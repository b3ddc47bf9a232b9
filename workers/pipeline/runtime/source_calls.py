"""Streaming sources answer Spark in the process that has the session.

By default Spark starts a process for each of them, which takes 65 MB and a second or more to import PySpark, and does
little but wait. What Spark starts (`worker_start`) hands its call over here, by a socket in a folder of this user
alone, and ends. A thread answers each source until Spark closes the connection.
"""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql.streaming import python_streaming_source_runner as runner

from workers.pipeline.runtime.worker_start import call_back, open_calls_address

MAX_BYTES = 4_096
HAND_OVER_SECONDS = 5.0


def answer_sources(folder: Path) -> None:
    """Answer the sources whose calls arrive in that folder, until this process ends."""
    with open_calls_address(folder) as address:
        Path(address).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(address)
    listener.listen()
    threading.Thread(target=_accept, args=(listener,), daemon=True, name="sources").start()


def _accept(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        # After any error the next call is answered; a worker whose call is not taken calls Spark itself.
        with suppress(OSError, ValueError, KeyError, TypeError), _take_call(connection) as (port, secret):
            threading.Thread(target=_answer, args=(port, secret), daemon=True, name="source").start()


@contextmanager
def _take_call(connection: socket.socket) -> Iterator[tuple[int, str]]:
    """Take a call that a worker hands over; it counts as taken once a thread has it."""
    with connection:
        connection.settimeout(HAND_OVER_SECONDS)
        asked = json.loads(connection.recv(MAX_BYTES))
        yield int(asked["port"]), str(asked["secret"])
        connection.sendall(b"ok")


def _answer(port: int, secret: str) -> None:
    # Spark closes the connection when its query ends; a failure before that has been sent to it.
    with suppress(OSError, SystemExit), call_back(port, secret) as stream:
        runner.main(stream, stream)
