"""A PostgreSQL server of a bench, in a folder of its own."""

import getpass
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from queues.nodes.server import free_port

START_SECONDS = 30.0


@contextmanager
def run_postgres() -> Iterator[str | None]:
    """Run a server and give its URL; None if it is not installed."""
    initdb, postgres = _find_program("initdb"), _find_program("postgres")
    if not initdb or not postgres:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="weir-postgres-") as folder:
        data, port = f"{folder}/data", free_port()
        user = "postgres" if os.geteuid() == 0 else getpass.getuser()
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        subprocess.run(
            _as_user([initdb, "-D", data, "-A", "trust", "-N"], user), check=True, cwd=folder, stdout=subprocess.DEVNULL
        )
        server = subprocess.Popen(
            _as_user([postgres, "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"], user),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        url = f"postgresql://{user}@127.0.0.1:{port}/postgres"
        try:
            _wait_for(url)
            yield url
        finally:
            server.terminate()
            server.wait()


def _find_program(name: str) -> str | None:
    places = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    return next((place for place in places if place), None)


def _as_user(command: list[str], user: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", user, "--", *command] if os.geteuid() == 0 else command


def _wait_for(url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=1).close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
