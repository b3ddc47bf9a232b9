"""The ledger's lines: what changed stands alone, the rest is counted."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from workers.control.ledger import runs
from workers.control.ledger.runs import TickRun, TickRunPage
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def loop(db):
    return loop_of("worker_rate")


def loop_of(law: str, interval_seconds: float = 2.0) -> Loop:
    return Loop.objects.create(name=f"{law}/alert/n1", law=law, interval_seconds=interval_seconds)


def tick(loop: Loop, at_seconds: float, **values: Any) -> LedgerEntry:
    at = NOON + timedelta(seconds=at_seconds)
    return LedgerEntry.objects.create(
        **{"loop": loop, "at": at, "mode": "auto", "parameters": {}, "reason": "calm", **values}
    )


def lines(most: int = 50, **place: int) -> list[Any]:
    """An entry as its id, a run as its count."""
    page = runs.load_page(LedgerEntry.objects.all(), most, **place)
    return [row.count if isinstance(row, TickRun) else -row.pk for row in page.rows]


def test_ticks_without_action_are_one_line_with_their_count_and_their_times(loop):
    for second in range(0, 10, 2):
        tick(loop, second)
    (row,) = runs.load_page(LedgerEntry.objects.all(), 50).rows
    assert (row.count, row.no_action, row.since, row.until) == (5, 5, NOON, NOON + timedelta(seconds=8))


def test_a_change_of_the_mode_or_of_the_limit_is_a_line_and_what_stays_so_is_not(loop):
    tick(loop, 0)
    held = tick(loop, 2, mode="hold")
    tick(loop, 4, mode="hold")
    limited = tick(loop, 6, mode="hold", limited_by="stale")
    tick(loop, 8, mode="hold", limited_by="stale")
    assert lines() == [1, -limited.pk, 1, -held.pk, 1]


def test_a_law_that_acts_at_every_tick_is_counted_but_not_where_it_did_harm(loop):
    flow = loop_of("flow")
    for second in range(0, 8, 2):
        tick(flow, second, action={"admit": 10.0}, verdict="effective")
    harmful = tick(flow, 8, action={"admit": 10.0}, verdict="harmful")
    page = runs.load_page(LedgerEntry.objects.all(), 50)
    assert page.rows[0] == harmful
    assert (page.rows[1].routine, page.rows[1].no_action) == (4, 0)


def test_late_ticks_are_counted_with_the_longest_delay_and_marked_on_their_own_line():
    loop = loop_of("rebalancing")
    for second in (0, 2, 4, 18, 20, 25):
        tick(loop, second)
    act = tick(loop, 35, action={"start": 1})
    page = runs.load_page(LedgerEntry.objects.all(), 50)
    assert page.rows[0] == act and runs.compute_entry_lateness(page.rows[0]) == 8.0
    assert (page.rows[1].late, page.rows[1].late_seconds) == (2, 12.0)


def test_a_loop_that_was_at_rest_is_not_late(loop):
    for second in (0, 20, 42, 70):
        tick(loop, second)
    (row,) = runs.load_page(LedgerEntry.objects.all(), 50).rows
    assert (row.late, row.late_seconds) == (1, 6.0)


def shown(page: TickRunPage) -> list[int]:
    return [row.newest if isinstance(row, TickRun) else row.pk for row in page.rows]


def test_who_went_down_comes_back_up_by_the_same_pages(loop):
    other = loop_of("rebalancing")
    for place in range(20):
        tick(loop, 4 * place, action={"start": 1})
        tick(other, 4 * place + 1, mode="hold" if place % 5 == 0 else "auto")
    chosen = LedgerEntry.objects.all()
    down = [runs.load_page(chosen, 4)]
    while down[-1].older is not None:
        down.append(runs.load_page(chosen, 4, before=down[-1].older))
    assert len(down) > 5
    seen = [row.count if isinstance(row, TickRun) else 1 for page in down for row in page.rows]
    assert sum(seen) == 40, "none is left out"
    page = down[-1]
    for expected in reversed(down[:-1]):
        page = runs.load_page(chosen, 4, after=page.newer)
        assert shown(page) == shown(expected)
    assert page.newer is None


def limit_reads(monkeypatch: pytest.MonkeyPatch, first: int, most: int) -> None:
    monkeypatch.setattr(runs, "FIRST_READ", first)
    monkeypatch.setattr(runs, "MAX_READ", most)


def test_a_page_reads_only_the_newest_ticks_if_older_ones_would_not_change_its_lines(loop, monkeypatch):
    for second in range(25):
        tick(loop, 2 * second, action={"start": 1})
    newest, whole = LedgerEntry.objects.latest("pk").pk, lines(4)
    limit_reads(monkeypatch, 5, 20)
    with CaptureQueriesContext(connection) as queries:
        assert lines(4) == whole == [-newest, 1 - newest, 2 - newest, 3 - newest]
    limits = [row["sql"].rpartition("LIMIT ")[2] for row in queries]
    assert [limit for limit in limits if limit.isdigit()] == ["6"]


def test_a_change_at_the_end_of_what_was_read_first_is_found(loop, monkeypatch):
    tick(loop, 0)
    held = tick(loop, 2, mode="hold")
    tick(loop, 4, mode="hold")
    limit_reads(monkeypatch, 2, 10)
    assert lines() == [1, -held.pk, 1]
    assert lines(2) == [1, -held.pk]


def test_up_leaves_nothing_out_where_more_lies_above_than_is_read(loop, monkeypatch):
    for place in range(30):
        tick(loop, 4 * place, action={"start": 1})
    chosen = LedgerEntry.objects.all()
    second = runs.load_page(chosen, 4, before=runs.load_page(chosen, 24).older)
    limit_reads(monkeypatch, 5, 10)
    up = runs.load_page(chosen, 4, after=second.newer)
    assert up.rows[-1].pk == second.rows[0].pk + 1


def test_what_is_read_for_a_page_is_bounded(loop, monkeypatch):
    limit_reads(monkeypatch, 5, 10)
    for second in range(25):
        tick(loop, 2 * second)
    first = runs.load_page(LedgerEntry.objects.all(), 50)
    assert [row.count for row in first.rows] == [10]
    second = runs.load_page(LedgerEntry.objects.all(), 50, before=first.older)
    assert [row.count for row in second.rows] == [10]
    third = runs.load_page(LedgerEntry.objects.all(), 50, before=second.older)
    assert [row.count for row in third.rows] == [5] and third.older is None
    back = runs.load_page(LedgerEntry.objects.all(), 50, after=third.newer)
    assert back.rows[0].until == second.rows[0].until
