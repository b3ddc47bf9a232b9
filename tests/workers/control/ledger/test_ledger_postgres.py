"""The ledger on a real PostgreSQL server: rows of an older release are read, and filters find their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import postgres_url as postgres_url  # a fixture of the test here

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[4]
OLDER = """
from django.db import connection
target, documents = '{"queue": "alert"}', ['{"upper_limit": 700}', '{"start": 1}', '{"rate": 2.5}']
with connection.cursor() as cursor:
    cursor.execute(
        "INSERT INTO workers_loop (name, law, target, mode, parameters, guard, interval_seconds, fence) "
        "VALUES ('worker_rate/alert/n1', 'worker_rate', %s, 'auto', '{}', '{}', 5, 0)", [target],
    )
    cursor.execute(
        "INSERT INTO workers_ledgerentry (loop_id, at, fence, mode, parameters, action, terms, reason, "
        "applied, error, verdict, code) "
        "SELECT id, now(), 1, 'auto', %s, %s, %s, '12 events wait. 1 worker starts.', "
        "true, '', 'effective', '' FROM workers_loop", documents,
    )
"""
NEWER = """
import json
from workers.coordination import keyset
from workers.control.ledger.ledger_search import LedgerFilter
from workers.models import LedgerEntry, Loop
calm = {"mode": "hold", "parameters": {"b": 2}, "reason": "Nothing waits.", "verdict": "no action"}
LedgerEntry.objects.create(loop=Loop.objects.get(), **calm)
def found(**wanted):
    page = keyset.load_page(LedgerFilter(**wanted).choose(LedgerEntry.objects.all()), 10)
    return [row.reason[:7] for row in page.rows]
old = LedgerEntry.objects.earliest("pk")
print(json.dumps({
    "documents": [old.parameters, old.terms, old.observation],
    "acted": found(acted=True),
    "words": found(text="worker sta"),
    "queue": found(queue="alert", verdict="effective"),
    "both": found(text="nothing waits", acted=False),
    "none": found(text="nothing waits", acted=True),
}))
"""
FOLDED = """
import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from workers.control.ledger import folds
from workers.models import Loop
loop, noon = Loop.objects.get(), datetime(2026, 1, 5, 12, tzinfo=UTC)
for second in range(10):
    at = noon + timedelta(seconds=second)
    loop.entries.create(at=at, mode="auto", parameters={"b": 2}, observation={"seen": second}, reason="Calm.")
hour = timedelta(hours=1)
folded = sum(folds.fold(loop, noon - hour, noon + hour, nullcontext))
ticks = [*folds.iterate_ticks(loop.entries.all(), noon, noon + hour)]
print(json.dumps({
    "folded": folded,
    "left": loop.entries.filter(at__lt=noon + hour).count(),
    "seen": [each.observation["seen"] for each in ticks],
    "by_id": folds.find_entry(ticks[3].pk).observation["seen"],
}))
"""


def test_entries_of_an_older_release_are_read_and_found_beside_new_ones(postgres_url, tmp_path):
    environment = {**os.environ, "DATABASE_URL": postgres_url, "WEIR_DATA": str(tmp_path)}

    def manage(*arguments):
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    manage("migrate", "workers", "0008", "-v", "0")
    manage("shell", "-v", "0", "-c", OLDER)
    manage("migrate", "-v", "0")
    assert json.loads(manage("shell", "-v", "0", "-c", NEWER)) == {
        "documents": [{"upper_limit": 700}, {"rate": 2.5}, None],
        "acted": ["12 even"],
        "words": ["12 even"],
        "queue": ["12 even"],
        "both": ["Nothing"],
        "none": [],
    }
    folded = {"folded": 9, "left": 1, "seen": list(range(10)), "by_id": 3}
    assert json.loads(manage("shell", "-v", "0", "-c", FOLDED)) == folded
