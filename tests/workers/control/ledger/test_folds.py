"""Folding: an old run of ticks that did nothing becomes one entry, and each tick is still to be had."""

from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.workers.control.test_loops import tick as ticked
from workers.batch import runs as batch_runs
from workers.batch import task_definitions, task_managers
from workers.batch import worker as batch_worker
from workers.batch.job import JobContext
from workers.batch.jobs import folding
from workers.control import what_if
from workers.control.ledger import folds, ledger, runs
from workers.control.ledger.runs import TickRun
from workers.models import LedgerEntry, Loop
from workers.plants.memory import MemoryPlant

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def loop():
    return Loop.objects.create(name="rebalancing", law="rebalancing", interval_seconds=2.0)


def tick(loop: Loop, at_seconds: float, **values: Any) -> LedgerEntry:
    at = NOON + timedelta(seconds=at_seconds)
    given_ = {"mode": "auto", "parameters": {"a": 1}, "observation": {"seen": at_seconds}, "reason": "calm"}
    return LedgerEntry.objects.create(loop=loop, at=at, **{**given_, **values})


def fold(loop: Loop, until: datetime = NOON + HOUR) -> int:
    return sum(folds.fold(loop, NOON - HOUR, until, nullcontext))


def fields(entry: LedgerEntry) -> dict[str, Any]:
    names = (*folds.FIELDS, "loop_id", "mode", "verdict", "action", "limited_by", "outcome", "applied", "error")
    return {name: getattr(entry, name) for name in names}


def all_ticks(loop: Loop) -> list[dict[str, Any]]:
    return [fields(each) for each in folds.iterate_ticks(loop.entries.all(), NOON - HOUR, NOON + 2 * HOUR)]


def test_a_run_becomes_its_last_entry_and_gives_back_each_tick_as_it_was(loop):
    stored = [fields(tick(loop, second)) for second in range(0, 20, 2)]
    assert fold(loop) == 9
    (left,) = LedgerEntry.objects.all()
    assert (left.pk, left.folded_ticks, left.folded_since) == (stored[-1]["id"], 9, NOON)
    assert all_ticks(loop) == stored
    assert [fields(folds.find_entry(each["id"])) for each in stored] == stored


@pytest.mark.parametrize(
    "news",
    [
        {"action": {"start": 1}},
        {"limited_by": "guard slew"},
        {"error": "not reached"},
        {"verdict": "harmful"},
        {"mode": "hold"},
        {"observation": {"late_seconds": 4.0}},
        {"outcome": {"before": {}}},
    ],
)
def test_what_is_news_stays_by_itself(loop, news):
    for second in range(0, 10, 2):
        tick(loop, second)
    stays = tick(loop, 10, **news)
    for second in range(12, 22, 2):
        tick(loop, second)
    fold(loop)
    assert LedgerEntry.objects.get(pk=stays.pk).folded_ticks == 0
    by_itself = 2 if "mode" in news or "limited_by" in news else 1  # that it is as before again is news, too
    assert LedgerEntry.objects.count() == 2 + by_itself


def test_what_stays_under_one_limit_is_one_run_after_the_first(loop):
    limits = [None] * 3 + ["stale"] * 12
    stored = [fields(tick(loop, 2 * place, limited_by=limit)) for place, limit in enumerate(limits)]
    fold(loop)
    found = LedgerEntry.objects.order_by("pk").values_list("limited_by", "folded_ticks")
    assert list(found) == [(None, 0), (None, 0), (None, 0), ("stale", 0), ("stale", 10)]
    assert all_ticks(loop) == stored


def test_the_newest_hours_and_a_slot_that_goes_on_stay_as_they_are(loop):
    for second in range(0, 20, 2):
        tick(loop, second)
    assert fold(loop, until=NOON + timedelta(minutes=14)) == 0
    assert fold(loop, until=NOON + timedelta(minutes=15)) == 9


def test_a_run_of_which_an_entry_has_gone_meanwhile_is_left(loop):
    class Gone(nullcontext):
        def __enter__(self):
            LedgerEntry.objects.order_by("pk").first().delete()

    for second in range(0, 20, 2):
        tick(loop, second)
    assert sum(folds.fold(loop, NOON - HOUR, NOON + HOUR, Gone)) == 0
    assert LedgerEntry.objects.count() == 9


KINDS = some.sampled_from(
    [{}] * 8 + [{"mode": "hold"}, {"action": {"start": 1}}, {"limited_by": "stale"}, {"error": "gone"}]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(several=some.lists(some.tuples(some.sampled_from([2, 2, 2, 120, 700]), KINDS), max_size=40))
def test_whatever_was_written_every_tick_is_there_once_and_in_its_order(loop, several):
    LedgerEntry.objects.all().delete()
    at = 0
    for seconds, values in several:
        at += seconds
        tick(loop, at, **values)
    before = all_ticks(loop)
    folded = fold(loop)
    assert all_ticks(loop) == before
    assert LedgerEntry.objects.count() == len(before) - folded
    for since, until in ((NOON, NOON + HOUR), (NOON + timedelta(seconds=5), NOON + timedelta(seconds=901))):
        inside = [each for each in before if since <= each["at"] < until]
        assert [fields(each) for each in folds.iterate_ticks(loop.entries.all(), since, until)] == inside
        assert folds.count(loop.entries.all(), since, until) == len(inside)


def test_the_ledgers_page_counts_them_and_calls_none_late(loop):
    for second in range(0, 1800, 2):
        tick(loop, second)
    fold(loop)
    (run,) = runs.load_page(LedgerEntry.objects.all(), 50).rows
    assert isinstance(run, TickRun)
    assert (run.count, run.since, run.late) == (900, NOON, 0)
    assert run.until == NOON + timedelta(seconds=1798)


def test_each_of_them_is_decided_once_more_with_the_same_result(control, clock):
    plant = MemoryPlant(clock, [("alert", "n1")])
    loop = Loop.objects.create(
        name="worker_rate/alert/n1",
        law="worker_rate",
        target={"queue": "alert", "node": "n1"},
        parameters={"method": "thesis", "events_per_worker": 100, "upper_limit": 500},
    )
    made = []
    for _ in range(8):
        made.append(ticked(loop, plant, clock, control).pk)
        loop.refresh_from_db()
        clock.pass_seconds(2)
    assert sum(folds.fold(loop, clock.now - HOUR, clock.now + HOUR, nullcontext)) >= 4
    for pk in made:
        found = ledger.replay(folds.find_entry(pk))
        assert found.same and found.same_code, (pk, found)
    again = what_if.rerun(loop, {}, clock.now - HOUR, clock.now + HOUR, lambda: 0.0)
    assert (len(again.steps) + again.skipped, again.left) == (8, 0)


def test_the_job_folds_what_is_older_than_three_hours_loop_by_loop(loop, control, tmp_path):
    other = Loop.objects.create(name="node_scaling", law="node_scaling")
    for second in range(0, 20, 2):
        tick(loop, second), tick(other, second), tick(loop, 3600 + second)
    now = NOON + timedelta(hours=3, minutes=30)
    where, sent = JobContext(tmp_path, control, now), []
    task_definitions.ensure_tasks()
    run = batch_runs.begin(folding.NAME, where, {})
    while run.state in batch_runs.OPEN:
        task_managers.manage_run(run, control, now, lambda *worker: sent.append(worker))
        while sent:
            batch_worker.work_at(run.pk, sent.pop()[1], control, tmp_path, lambda: now)
        run.refresh_from_db()
    assert run.state == "done"
    assert [each.rows for each in run.chunks.all()] == [18]
    assert LedgerEntry.objects.count() == 1 + 1 + 10
