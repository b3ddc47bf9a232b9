"""A loop's page says first why its actions have no effect, and shows its last decision and its guard as tables."""

from datetime import timedelta

import orjson
import pytest
from django.utils import timezone

from queues import keys
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
OBSERVED = {"queue_length": 46, "oldest_seconds": 114.2, "running": 1, "age_seconds": 0.4}


@pytest.fixture
def loop(db):
    target = {"queue": "alert", "node": "n1"}
    return Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target=target)


def act(loop, seconds_ago, verdict="ineffective", **values):
    return LedgerEntry.objects.create(
        **{
            "loop": loop,
            "at": timezone.now() - timedelta(seconds=seconds_ago),
            "mode": "auto",
            "parameters": {},
            "observation": OBSERVED,
            "action": {"start": 1},
            "applied": True,
            "expected": {"metric": "removed_events", "direction": "up", "amount": 25, "within_seconds": 20},
            "reason": "Start 1 worker: 46 events would exceed the 4 s wait limit before the next check.",
            "verdict": verdict,
            **values,
        }
    )


@pytest.fixture
def publish(stored_snapshot, control):
    def change(**values):
        stored_snapshot.update(values)
        control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))

    return change


def full_pool(snapshot):
    alert = snapshot["queues"]["alert"]
    for row in alert["containers"].values():
        row["workers_busy"] = 0
    next(iter(alert["containers"].values()))["workers_busy"] = 2
    return {"queues": snapshot["queues"], "totals": {**snapshot["totals"], "worker_slots": 2, "workers_at_work": 2.0}}


def page_of(browsers, loop):
    return " ".join(browsers["viewer"].get(f"/loops/{loop.pk}/").content.decode().split())


def test_it_names_the_full_pool_and_its_holder_and_links_the_incident_and_the_loop_that_adds_slots(
    browsers, loop, stored_snapshot, publish
):
    host = next(name for name in stored_snapshot["hosts"] if name.startswith("jobs@"))
    helper = Loop.objects.create(name=f"concurrency/{host}", law="concurrency", target={"host": host}, mode="advise")
    finding = {
        "subject": "queue/slow", "severity": "critical", "sign": "TOOBUSY", "sentence": "Slow holds both slots.",
        "affected": ["queue/alert"], "incident": 18,
    }  # fmt: skip
    health = {"state": "TOOBUSY", "sentence": "Slow holds both slots.", "findings": [finding]}
    publish(**full_pool(stored_snapshot), health=health)
    for second in range(7):
        act(loop, second)
    act(loop, 8, "effective")
    page = page_of(browsers, loop)
    assert "The last 7 actions had no effect." in page
    assert f"Pool {host} is full: queue alert holds both slots." in page
    assert 'href="/alerts/18/"' in page and f'href="/loops/{helper.pk}/"' in page
    assert "0 of 2" in page, "the table of the last decision has the free slots"


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        pytest.param(["ineffective"] * 2, 0, id="two may be chance"),
        pytest.param(["checking", *["ineffective"] * 3], 3, id="the newest is still checked"),
        pytest.param(["effective", *["ineffective"] * 5], 0, id="the newest helped"),
    ],
)
def test_it_counts_the_actions_since_the_last_that_helped(verdicts, expected, browsers, loop, publish):
    publish()
    for second, verdict in enumerate(verdicts):
        act(loop, second, verdict)
    page = page_of(browsers, loop)
    assert (f"The last {expected} actions had no effect." in page) is bool(expected)
    assert "actions had no effect" in page or not expected


def test_the_last_decision_and_the_guard_are_tables_with_units_and_counts(browsers, loop, publish):
    publish()
    for second in range(3):
        act(loop, second + 1, limited_by="guard cool-down", verdict="no action", action=None)
    act(loop, 0)
    page = page_of(browsers, loop)
    assert '>Oldest event</th><td class="number">114.2 s</td>' in page
    assert "limited 3 ticks" in page and "0.4 s of 3 s" in page and "after 20 s" in page and "1 without effect" in page
