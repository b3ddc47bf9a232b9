"""What the other tests hold on SQLite holds on a real PostgreSQL, too: rights, sessions, lockout, the audit,
the doctor, two who act at once, and texts that it can't store as they are. (The fuzz does so in `test_fuzz`.) Each in a
process of its own, with a database of its own.
"""

import os
import subprocess
import sys

import pytest

from tests.console.served import ROOT
from tests.postgres import postgres_url as postgres_url

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]
HELD = {
    "authorisation matrix": (
        "tests/console/accounts/test_access.py",
        "tests/security/people/test_authorisation_matrix.py",
    ),
    "tokens and sessions": (
        "tests/security/people/test_tokens.py",
        "tests/console/accounts/test_people.py",
        "tests/security/people/test_lockout.py",
        "tests/security/people/test_login.py",
    ),
    "audit": ("tests/security/people/test_audit_chain.py", "tests/security/people/test_refusals_in_the_audit.py"),
    "doctor": ("tests/console/upkeep/test_doctor.py",),
    "two transactions at once": (
        "tests/console/actions/test_turns.py",
        "tests/queues/test_projection.py",
        "tests/workers/batch/test_task_managers.py",
        "tests/workers/placement/test_rebalancing_loop.py",
    ),
    "what others say": (
        "tests/console/audit/test_audit.py",
        "tests/workers/alerts/test_alertmanager.py",
        "tests/workers/alerts/test_evaluator.py",
        "tests/workers/control/ledger/test_ledger_filter.py",
    ),
}


@pytest.mark.parametrize("files", [pytest.param(files, id=name) for name, files in HELD.items()])
def test_it_holds_on_postgresql(files, postgres_url):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", *files]
    environment = {**os.environ, "DATABASE_URL": postgres_url}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8_000:]
    assert " passed" in done.stdout
