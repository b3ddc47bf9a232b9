"""A real PostgreSQL server for tests; they are skipped where none is installed."""

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from queues.nodes.server import free_port
from tests.waiting import MAX_SECONDS, until


def server_binary(name: str) -> str | None:
    places = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")))]
    return next((place for place in places if place), None)


def as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


@contextmanager
def folder_of_postgres() -> Iterator[Path]:
    """A folder of its user's, beside pytest's: those are closed to other users whenever a pytest begins."""
    with tempfile.TemporaryDirectory(prefix="weir-postgres-") as folder:
        if os.geteuid() == 0:
            try:
                shutil.chown(folder, "postgres")
            except LookupError:
                pytest.skip("PostgreSQL can't run as root, and there is no user postgres.")
        yield Path(folder)


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    initdb, postgres = server_binary("initdb"), server_binary("postgres")
    if not initdb or not postgres:
        pytest.skip("PostgreSQL is not installed here; install postgresql to run this.")
    with folder_of_postgres() as folder:
        data, port = f"{folder}/data", free_port()
        user = "postgres" if os.geteuid() == 0 else getpass.getuser()
        subprocess.run(
            as_postgres([initdb, "-D", data, "-A", "trust", "-N"]),
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = subprocess.Popen(
            as_postgres([postgres, "-D", data, "-p", str(port), "-k", str(folder), "-h", "127.0.0.1", "-F"]),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        url = f"postgresql://{user}@127.0.0.1:{port}/postgres"
        try:
            until(lambda: _answers(url))
            yield url
        finally:
            server.terminate()
            server.wait(MAX_SECONDS)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=1).close()
    except psycopg.OperationalError:
        return False
    return True
