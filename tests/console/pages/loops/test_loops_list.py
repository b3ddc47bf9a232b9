"""The list of loops: no two alike, the worst first, a late tick marked."""

from html import unescape

import orjson
import pytest
from django.utils import timezone

from console.display.states import compute_loop_severity, compute_tick_lateness
from queues import keys
from queues.models import Queue
from workers.documents.loops import LoopStatus
from workers.models import LedgerEntry, Loop

AT = 1_800_000_000.0


@pytest.mark.parametrize(("age", "late"), [(1.0, 0.0), (5.0, 0.0), (20.0, 18.0)])
def test_a_tick_is_late_after_two_intervals_and_the_age_of_a_snapshot(age, late):
    assert compute_tick_lateness(LoopStatus(at=AT - age), 2.0, AT) == late


def test_what_never_ticked_or_is_not_known_is_not_called_late():
    assert [compute_tick_lateness(each, 2.0, AT) for each in (None, LoopStatus())] == [0.0, 0.0]


def test_harm_comes_before_lateness_before_no_effect_before_a_hold_before_an_override():
    rows = [
        compute_loop_severity(LoopStatus(verdict="harmful"), 0.0),
        compute_loop_severity(LoopStatus(verdict="effective"), 9.0),
        compute_loop_severity(LoopStatus(verdict="ineffective"), 0.0),
        compute_loop_severity(LoopStatus(mode="hold", verdict="no action"), 0.0),
        compute_loop_severity(LoopStatus(overrides=1), 0.0),
        compute_loop_severity(LoopStatus(verdict="effective"), 0.0),
        compute_loop_severity(LoopStatus(verdict="no action"), 0.0),
    ]
    assert rows == sorted(rows, reverse=True) and len(set(rows)) == len(rows)


@pytest.mark.django_db
@pytest.mark.parametrize(("loop", "page"), [("ladder/alert", "/queues/alert/"), ("worker_rate/alert/n1", "/workers/")])
def test_a_decision_on_another_page_says_when_it_was_taken_and_how_late_the_next_is(
    loop, page, browsers, stored_snapshot, control
):
    """While the control worker hung, the ladder said that demand is met, and a forecast that events wait."""
    Queue.objects.create(name="alert", kind="jobs")
    law, queue, *node = loop.split("/")
    target = {"queue": queue, **({"node": node[0]} if node else {})}
    at = timezone.now()
    row = Loop.objects.create(name=loop, law=law, target=target, decided_at=at)
    LedgerEntry.objects.create(loop=row, at=at, mode="auto", parameters={}, reason="No action: demand is met.")
    status = {"id": row.pk, "law": law, "target": target, "interval_seconds": 5.0, "reason": "No action"}
    stored_snapshot["loops"] = {loop: {**status, "at": stored_snapshot["at"] - 80.0}}
    control.set(keys.SNAPSHOT, orjson.dumps(stored_snapshot))
    text = browsers["viewer"].get(page).content.decode()
    tick = f'data-bind="loops.{loop}.at" data-format="tick" data-interval="5.0"'
    assert tick in text and "1 min late" in text


@pytest.mark.django_db
def test_the_page_lists_titles_with_their_targets(browsers, stored_snapshot):
    for node in ("n1", "n2"):
        target = {"queue": "alert", "node": node}
        Loop.objects.create(name=f"worker_rate/alert/{node}", law="worker_rate", target=target)
    text = unescape(browsers["viewer"].get("/loops/").content.decode())
    assert "Worker rate of alert on n1" in text and "Worker rate of alert on n2" in text
