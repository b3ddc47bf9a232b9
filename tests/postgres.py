"""A real PostgreSQL server for tests; they are skipped where none is installed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.plant.postgresql import as_postgres as as_postgres
from bench.plant.postgresql import postgresql_server, server_binary


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
    if not server_binary("initdb") or not server_binary("postgres"):
        pytest.skip("PostgreSQL is not installed here; install postgresql to run this.")
    with folder_of_postgres() as folder, postgresql_server(folder, "-F") as url:
        yield url
