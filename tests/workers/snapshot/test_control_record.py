"""What of the database stands in the snapshot: of a manager's decision the terms that a page follows."""

from datetime import UTC, datetime

import pytest

from queues.models import Container, Node, Queue
from workers.models import LedgerEntry, Loop
from workers.snapshot.control_record import control_record

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
TERMS = {
    "rate_per_second": 0.61234567,
    "coming": 960,
    "cap": None,
    "patience_seconds": 4.0,
    "method": "forecast",
}


@pytest.fixture
def loop() -> Loop:
    queue = Queue.objects.create(name="alert", kind="jobs")
    node = Node.objects.create(name="n1", url="redis://127.0.0.1:1/0")
    Container.objects.create(queue=queue, node=node, points=1000)
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


def terms_of(loop: Loop) -> dict:
    return control_record(NOW).loops[loop.name].terms


def test_a_managers_forecast_is_sent_rounded_and_without_what_is_unknown(loop):
    entry = {"mode": "auto", "parameters": {}, "reason": "a test", "at": NOW}
    LedgerEntry.objects.create(loop=loop, terms={"coming": 1}, **{**entry, "at": NOW.replace(minute=20)})
    LedgerEntry.objects.create(loop=loop, terms=TERMS, **entry)
    assert terms_of(loop) == {"method": "forecast", "rate_per_second": 0.612, "coming": 960}


def test_a_loop_that_has_not_decided_has_no_terms(loop):
    assert terms_of(loop) == {}


def test_the_terms_of_other_laws_are_left_in_the_ledger(loop):
    Loop.objects.filter(pk=loop.pk).update(law="rebalancing")
    LedgerEntry.objects.create(loop=loop, mode="auto", parameters={}, reason="a test", at=NOW, terms=TERMS)
    assert terms_of(loop) == {}
