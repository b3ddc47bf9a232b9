"""A server that answers every request with its given content, for as long as it is read."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def answering(scheme: str, answer: Iterator[bytes]) -> Iterator[str]:
    """Yield its address; it takes one connection."""

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.recv(1_000)
                for piece in answer:
                    connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/0"


def drops(begin: bytes = b"") -> Iterator[bytes]:
    yield begin
    while True:
        threading.Event().wait(0.1)
        yield b"1"
