"""What of the database stands in the snapshot: of a manager's decision the terms that a page follows."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from queues.models import Container, Node, Queue
from workers.alerts.lifecycle.models import AlertRule
from workers.models import LedgerEntry, Loop
from workers.snapshot.control_record import control_record

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
TERMS = {"rate_per_second": 0.61234567, "coming": 960, "cap": None, "patience_seconds": 4.0, "method": "forecast"}


@pytest.fixture
def loop():
    queue = Queue.objects.create(name="alert", kind="jobs")
    node = Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    Container.objects.create(queue=queue, node=node, points=1000)
    target = {"queue": "alert", "node": "n1"}
    name = "worker_rate/alert/n1"
    return Loop.objects.create(name=name, law="worker_rate", target=target, ticked_at=NOW, decided_at=NOW)


def terms_of(loop: Loop) -> dict:
    return control_record(NOW).loops[loop.name].terms


def test_a_managers_forecast_is_sent_rounded_and_without_what_is_unknown(loop):
    entry = {"mode": "auto", "parameters": {}, "reason": "a test", "at": NOW}
    LedgerEntry.objects.create(loop=loop, terms={"coming": 1}, **{**entry, "at": NOW.replace(minute=20)})
    LedgerEntry.objects.create(loop=loop, terms=TERMS, **entry)
    assert terms_of(loop) == {"method": "forecast", "rate_per_second": 0.612, "coming": 960}


def test_what_a_loop_decided_before_its_clock_was_set_back_is_over(loop):
    entry = {"mode": "auto", "parameters": {}, "reason": "a test"}
    LedgerEntry.objects.create(loop=loop, terms={"coming": 1}, at=NOW + timedelta(hours=1), **entry)
    LedgerEntry.objects.create(loop=loop, terms=TERMS, at=NOW, **entry)
    assert terms_of(loop)["coming"] == 960


def test_what_was_done_before_a_clock_was_set_back_hides_nothing_that_was_done_since(loop):
    given = {"mode": "auto", "parameters": {}, "reason": "a test", "applied": True, "verdict": "effective"}
    LedgerEntry.objects.create(loop=loop, action={"start": 9}, at=NOW + timedelta(hours=1), **given)
    LedgerEntry.objects.create(loop=loop, action={"start": 2}, at=NOW, **given)
    assert [each.did for each in control_record(NOW).recent_actions] == ["started 2 workers"]


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="it reads SQLite's plans")
def test_the_last_decisions_are_found_by_an_index_however_long_the_ledger_is(loop):
    with CaptureQueriesContext(connection) as asked:
        control_record(NOW)
    (last,) = [each["sql"] for each in asked.captured_queries if '"decided_at")' in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {last}")
        steps = [step for *_, step in cursor.fetchall()]
    assert [step for step in steps if "(loop_id=? AND at=?)" in step], steps


def test_a_rule_of_another_version_of_weir_leaves_the_plant_observed(loop):
    """Between two versions there is a while in which one reads what the other has made; the alerter passes
    over a condition that it doesn't know.
    """
    of_both = AlertRule.objects.create(name="slow", condition="queue_wait", threshold=5, clear_threshold=2)
    AlertRule.objects.create(name="newer", condition="of_a_newer_weir", threshold=5, clear_threshold=2)
    found = control_record(NOW).limits.by_condition
    assert [each.rule for each in found["queue_wait"]] == [of_both.name] and "of_a_newer_weir" not in found


def test_a_loop_of_a_law_that_this_version_does_not_have_leaves_the_plant_observed(loop):
    """One of one's own that is gone, or of a newer Weir that has begun to take this one's place."""
    Loop.objects.create(name="tides/alert", law="tides", target={"queue": "alert"}, ticked_at=NOW)
    assert list(control_record(NOW).loops) == [loop.name]
