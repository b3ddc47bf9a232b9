"""A PostgreSQL server of its own, in a temporary folder, where PostgreSQL is installed."""

import getpass
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from queues.nodes.server import free_port

START_SECONDS, END_SECONDS = 30.0, 30.0


def server_binary(name: str) -> str | None:
    """Return the path of a program of PostgreSQL, or None where it is not installed."""
    places = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    return next((place for place in places if place), None)


def as_postgres(command: list[str]) -> list[str]:
    """Return the command for the user `postgres` if this process runs as root, because PostgreSQL refuses root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


def can_run() -> bool:
    """Return whether a server can be started here."""
    is_installed = server_binary("initdb") is not None and server_binary("postgres") is not None
    return is_installed and (os.geteuid() != 0 or any(user.pw_name == "postgres" for user in pwd.getpwall()))


@contextmanager
def postgresql_server(folder: Path, *options: str) -> Iterator[str]:
    """Start a server with its data in the folder, and yield the URL of its database. `can_run` must be true.

    options: further arguments of the server. Raises `psycopg.OperationalError` if it doesn't start.
    """
    data, port = f"{folder}/data", free_port()
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    user = "postgres" if os.geteuid() == 0 else getpass.getuser()
    create = as_postgres([str(server_binary("initdb")), "-D", data, "-A", "trust", "-N"])
    subprocess.run(create, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    arguments = ["-D", data, "-p", str(port), "-k", str(folder), "-h", "127.0.0.1", *options]
    server = subprocess.Popen(
        as_postgres([str(server_binary("postgres")), *arguments]),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"postgresql://{user}@127.0.0.1:{port}/postgres"
    try:
        _wait_until_it_answers(url)
        yield url
    finally:
        server.terminate()
        server.wait(END_SECONDS)


def _wait_until_it_answers(url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=1).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
