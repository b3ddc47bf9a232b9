"""Equal decisions are one line with their count."""

from datetime import UTC, datetime, timedelta

import pytest

from console.display.loops import FoldedDecisions, fold_decisions
from console.templatetags.filters import decisions_of, folded
from workers.control.ledger.runs import TickRun
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def decide(second, loop, action=None, **values):
    return LedgerEntry.objects.create(
        **{
            "loop": loop,
            "at": NOON + timedelta(seconds=second),
            "mode": "auto",
            "parameters": {},
            "reason": f"{second} events wait",
            "action": action or {"start": 1},
            "verdict": "ineffective",
            **values,
        }
    )


@pytest.fixture
def loops(db):
    nodes = ("n1", "n2")
    return [
        Loop.objects.create(name=f"worker_rate/slow/{node}", law="worker_rate", target={"queue": "slow", "node": node})
        for node in nodes
    ]


def idle(first, last, ticks):
    at = [NOON + timedelta(seconds=second) for second in (first, last)]
    return TickRun(newest=last, oldest=first, since=at[0], until=at[1], no_action=ticks, loops={first})


def test_equal_decisions_of_one_law_are_one_line_even_with_idle_ticks_in_between(loops):
    rows = [decide(6, loops[0]), idle(4, 5, 3), decide(3, loops[1]), idle(1, 2, 4), decide(0, loops[0])]
    line, between = fold_decisions(rows)
    assert isinstance(line, FoldedDecisions) and isinstance(between, TickRun)
    assert (line.count, line.newest, line.since) == (3, rows[0], NOON)
    assert [loop.name for loop in line.loops] == ["worker_rate/slow/n1", "worker_rate/slow/n2"]
    assert not line.has_one_reason
    assert (between.count, between.since, between.until) == (7, rows[3].since, rows[1].until)


def test_another_effect_action_mode_limit_or_a_harmful_decision_is_a_line_of_its_own(loops):
    rows = [
        decide(9, loops[0]),
        decide(8, loops[0], verdict="effective"),
        decide(7, loops[0], {"start": 2}),
        decide(6, loops[0], mode="advise"),
        decide(5, loops[0], limited_by="cooldown"),
        decide(4, loops[0], verdict="harmful"),
        decide(3, loops[0], verdict="harmful"),
    ]
    assert fold_decisions(rows) == rows


def test_a_folded_line_links_to_each_of_its_decisions_which_the_ledger_then_lists(loops):
    rows = [decide(6, loops[0]), decide(3, loops[0])]
    (line,) = folded(rows)
    address = decisions_of(line)
    assert f"loop={loops[0].pk}&acted=1&verdict=ineffective" in address and address.endswith("&ticks=all")
    assert folded(rows, address.partition("?")[2]) == rows


def test_the_ledger_shows_twelve_equal_decisions_of_three_idle_loops_as_one_row(loops, viewer, stored_snapshot):
    for second in range(12):
        decide(second, loops[second % 2])
    page = viewer.get("/ledger/").content.decode()
    assert page.count("\u00d7") == 1 and "\u00d7 12" in page and "12 entries" in page
