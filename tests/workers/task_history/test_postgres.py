"""The task history on a real PostgreSQL: stored, found, archived, and found again."""

import orjson
import pytest

from bench.celery.task_history import call_rows
from bench.plant.running_plant import clean_environment, manage
from tests.postgres import postgres_url as postgres_url  # a fixture of the tests here

pytestmark = pytest.mark.slow
COUNT = 20_000


def test_tasks_are_recorded_found_and_archived_on_postgresql(postgres_url, tmp_path):
    environment = {
        **clean_environment(),
        "DATABASE_URL": postgres_url,
        "WEIR_DATA": str(tmp_path),
        "REDIS_URL": "redis://127.0.0.1:1/0",
    }
    manage(environment, "migrate", "--skip-checks", "--verbosity=0", "--no-input")
    call_rows(environment, f"fill({COUNT})")
    call_rows(environment, "record_tasks(); measure()")  # they fail if a task is missing
    call_rows(environment, "archive_all()")
    measured = orjson.loads(call_rows(environment, "measure()"))
    assert 0 < measured["bytes_per_task"]["archive"] < 300
