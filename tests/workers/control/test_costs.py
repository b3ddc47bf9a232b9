"""What a loop saved against its baselines, and what a hold cost: on its record, in money only where priced."""

from datetime import timedelta

import pytest

from common.errors import BadInput
from tests.workers.control.wasteful import NOW, wasteful_loop
from tests.workers.snapshots import snapshot_of
from workers.control import costs
from workers.control.costs import compute_run_seconds, compute_used_seconds, count_lost_events
from workers.models import LedgerEntry, Loop, Setting

SECONDS, EVERY, RATE = 600, 2, 50.0
HELD = range(200, 400)
VALUES = {"events_per_worker": 100, "upper_limit": 400, "max_wait_seconds": 10.0, "interval_seconds": 2.0}


@pytest.fixture
def loop(db):
    found = wasteful_loop()
    Loop.objects.filter(pk=found.pk).update(parameters={**found.parameters, **VALUES})
    found.refresh_from_db()
    return found


def record(loop: Loop, held: range = range(0)) -> None:
    """Ten minutes of events that come evenly; on hold nothing is removed, and then all at once."""
    rows, waiting = [], 0.0
    for second in range(0, SECONDS, EVERY):
        is_held = second in held
        waiting += RATE * EVERY if second else 0.0
        removed = 0.0 if is_held else waiting
        waiting -= removed
        seen = {"queue_length": waiting, "removed": removed, "started": removed / 100, "waiting_to_run": 0}
        rows.append(
            LedgerEntry(
                loop=loop,
                at=NOW - timedelta(seconds=SECONDS - second),
                mode="hold" if is_held else "auto",
                parameters={},
                observation={**seen, "running": 0 if is_held else 1},
                reason="a test",
            )
        )
    LedgerEntry.objects.bulk_create(rows)


def price(**prices: float) -> None:
    for name, value in prices.items():
        Setting.objects.create(name=f"price.{name}", value=value, changed_at=NOW)


def ask(loop: Loop, hours: float = 0.5) -> costs.LoopCosts:
    return costs.compute_loop_costs(loop, hours, NOW, lambda: 0.0)


def test_without_a_price_amounts_are_known_and_no_money_is(loop):
    record(loop)
    found = ask(loop)
    assert [each.side.name for each in found.baselines] == ["thesis", "static"]
    assert found.law.worker_hours is not None and found.law.worker_hours > 0
    assert found.law.cost is None and all(each.cost is None for each in found.baselines)
    price(worker_hour=6.0)  # one price alone: what the delay costs is still not known
    assert ask(loop).law.workers_cost is not None and ask(loop).law.cost is None


def test_money_is_amounts_times_prices_and_a_saving_the_difference(loop):
    record(loop)
    price(worker_hour=6.0, delay_second=0.5)
    found = ask(loop)
    for side in (found.law, *(each.side for each in found.baselines)):
        hours = side.runs * found.run_seconds / 3600
        assert side.cost == pytest.approx(hours * 6.0 + side.late_seconds * 0.5)
    for each in found.baselines:
        assert each.cost == pytest.approx(each.side.cost - found.law.cost)
    assert found.held_seconds == 0 and found.holds is None


def test_a_hold_costs_what_came_late_because_nobody_decided(loop):
    record(loop, HELD)
    price(worker_hour=6.0, delay_second=0.5)
    found = ask(loop)
    assert found.held_seconds == pytest.approx(len(HELD), abs=EVERY)
    # Of 200 s all but the wait that is allowed, until what has waited is served.
    assert 150 < found.holds.late_seconds < 260
    assert found.holds.cost > 0.5 * 150
    # The baselines and the law itself are measured without it.
    assert found.law.late_seconds == 0


def test_what_can_not_be_replayed_is_refused_by_name(loop):
    with pytest.raises(BadInput, match="only 0 s of recorded data"):
        ask(loop)
    with pytest.raises(BadInput, match="must be above 0"):
        ask(loop, 7.0)
    other = Loop.objects.create(name="flow/performance", law="flow", target={"application": "performance"})
    with pytest.raises(BadInput, match=r"no baseline to replay\. Laws with a baseline: worker_rate"):
        ask(other)


def test_a_run_lasts_as_long_as_processes_worked_over_the_runs_that_began():
    def row(second, running, started):
        return NOW + timedelta(seconds=second), "auto", {"running": running, "started": started}

    assert compute_run_seconds([row(0, 0, 0), row(2, 3, 2), row(4, 1, 0)]) == pytest.approx(8 / 2)
    assert compute_run_seconds([row(0, 0, 0), row(2, 0, 0)]) is None
    assert compute_run_seconds([(NOW, "auto", {"started": 3})]) is None


def test_hours_are_of_what_was_observed_and_no_gap_is_filled():
    measured, (workers, nodes) = compute_used_seconds([0.0, 1.0, 2.0, 100.0], [[2, 4, 1, 9], [None, None, None, None]])
    assert measured == 1 + 1 + 5
    assert (workers, nodes) == (2 * 1 + 4 * 1 + 1 * 5, None)


def test_events_that_were_shed_are_counted_also_where_the_counter_began_anew():
    def seen(**shed):
        rows = {name: {"shed_events": count} for name, count in shed.items()}
        return snapshot_of({"pipeline": {"applications": rows}})

    assert count_lost_events(seen(a=100, b=7), seen(a=130, b=5)).total == 30 + 5
    assert count_lost_events(None, seen(a=1)) is None


def test_shed_events_are_counted_by_the_type_that_patterns_lost():
    def seen(shed_events, clicks, views):
        pattern = {"shed_events": {"click": clicks, "view": views}}
        application = {"shed_events": shed_events, "patterns": {"bought": pattern}}
        return snapshot_of({"pipeline": {"applications": {"shop": application}}})

    assert count_lost_events(seen(10, 6, 4), seen(25, 16, 9)) == (15, {"click": 10, "view": 5})
