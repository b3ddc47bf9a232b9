"""The console's database on a real PostgreSQL: it migrates, and the audit refuses there too."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.console.served import ROOT
from tests.postgres import postgres_url as postgres_url  # a fixture of the tests here

pytestmark = pytest.mark.slow
INSERT = (
    "INSERT INTO console_auditentry"
    " (sequence, previous, digest, at, actor, action, target, reason, request_id)"
    " SELECT coalesce(max(sequence), 0) + 1, '', '', now(), 'desk-2', 'override.set', 'x', '', ''"
    " FROM console_auditentry"
)
CHANGES = (
    "UPDATE console_auditentry SET actor = 'somebody else'",
    "DELETE FROM console_auditentry",
    "TRUNCATE console_auditentry",
)


@pytest.fixture(scope="module")
def migrated(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    data: Path = tmp_path_factory.mktemp("console")
    environment = {**os.environ, "WEIR_DATA": str(data), "DATABASE_URL": postgres_url}
    command = [sys.executable, "manage.py", "migrate", "--skip-checks", "--verbosity=0", "--no-input"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return postgres_url


@pytest.mark.parametrize("change", CHANGES)
def test_the_audit_takes_rows_and_refuses_every_change(change, migrated):
    with psycopg.connect(migrated) as connection:
        connection.execute(INSERT)
        connection.commit()
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            connection.execute(change)
        connection.rollback()
        found = connection.execute("SELECT DISTINCT actor FROM console_auditentry").fetchall()
        assert found == [("desk-2",)]
