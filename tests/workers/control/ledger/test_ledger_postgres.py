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

WRITTEN = """
import json
from datetime import UTC, datetime
from django.db import connection, transaction
from workers.coordination.bulk_writes import insert_rows, prepare_values, update_rows
from workers.models import LedgerEntry, Loop
loop, noon = Loop.objects.get(), datetime(2026, 1, 6, 12, tzinfo=UTC)
def build():
    terms = {"rate": 2.5, "limit": float("inf"), "ü": [None]}
    calm = LedgerEntry(loop=loop, at=noon, mode="auto", parameters={}, reason="tab \\t, line \\n, \\\\N")
    acts = LedgerEntry(loop=loop, at=noon, mode="auto", parameters={"b": 2}, reason="", terms=terms, raw=1, guarded=1.0,
                       action={"start": 1}, verdict=LedgerEntry.Verdict.CHECKING, folded=b"\\x00\\t", folded_since=noon)
    return [calm, acts]
def columns(rows):
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM workers_ledgerentry WHERE id = ANY(%s) ORDER BY id", [[row.pk for row in rows]])
        return [repr(row[1:]) for row in cursor.fetchall()]
one_by_one, together = build(), build()
for row in one_by_one:
    row.save()
with transaction.atomic():
    insert_rows(together, prepare_values(LedgerEntry, together))
same = columns(together) == columns(one_by_one)
loop.fence, loop.state, loop.ticked_at = 9, {"law": None}, noon
with transaction.atomic():
    names = ["fence", "state", "ticked_at"]
    update_rows(Loop, names, prepare_values(Loop, [loop], names))
    calm, acts = together
    calm.outcome, acts.outcome = {"of": "calm"}, {"of": "acts"}
    values = prepare_values(LedgerEntry, together, ["outcome", "limited_by"])
    update_rows(LedgerEntry, ["outcome", "limited_by"], values, {"verdict": "checking"})
later = LedgerEntry.objects.create(loop=loop, at=noon, mode="auto", parameters={}, reason="")
again = Loop.objects.get()
print(json.dumps({
    "judged": [LedgerEntry.objects.get(pk=row.pk).outcome for row in together],
    "same": same,
    "new keys": one_by_one[-1].pk < together[0].pk < together[1].pk < later.pk,
    "loop": [again.fence, again.state, again.ticked_at == noon],
}))
"""


@pytest.fixture
def manage(postgres_url, tmp_path):
    environment = {**os.environ, "DATABASE_URL": postgres_url, "WEIR_DATA": str(tmp_path)}

    def run(*arguments):
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_entries_of_an_older_release_are_read_and_found_beside_new_ones(manage):
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
    # Rows that a tick writes together are the same as those that Django writes one by one.
    written = {"judged": [None, {"of": "acts"}], "same": True, "new keys": True, "loop": [9, {"law": None}, True]}
    assert json.loads(manage("shell", "-v", "0", "-c", WRITTEN)) == written
