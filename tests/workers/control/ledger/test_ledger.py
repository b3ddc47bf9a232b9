"""The ledger: what is kept, replayed, and judged."""

from datetime import timedelta

import pytest
from django.db import connection

from controllers.framework import code
from tests.workers.control.test_loops import override, submitted, tick
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant(plant):
    plant.put("alert", "n1", 1_200)
    return plant


def stored(entry):
    return LedgerEntry.objects.select_related("loop").get(pk=entry.pk)


def judge(plant, clock, seconds=10.0):
    clock.pass_seconds(seconds)
    entries = LedgerEntry.objects.select_related("loop")
    return [entries.get(pk=pk) for pk in ledger.judge_due(clock.now, plant.observe())]


def test_processes_that_judge_a_part_each_judge_every_entry_once(loop, plant, clock, control):
    entries = {tick(loop, plant, clock, control).pk for _ in range(5)}
    entries &= set(LedgerEntry.objects.filter(verdict="checking").values_list("pk", flat=True))
    clock.pass_seconds(30.0)
    parts = [ledger.judge_due(clock.now, plant.observe(), part, 3) for part in range(3)]
    assert len(entries) > 2 and sorted(pk for part in parts for pk in part) == sorted(entries)
    assert not LedgerEntry.objects.filter(verdict="checking").exists()


def test_a_tick_reads_only_the_actions_that_are_due(loop, plant, clock, control, django_assert_num_queries):
    due = tick(loop, plant, clock, control)
    clock.pass_seconds(8.0)
    assert tick(loop, plant, clock, control).judge_at > due.judge_at
    clock.now = due.judge_at
    with django_assert_num_queries(4) as queries:  # one reads, and one writes in a transaction
        assert ledger.judge_due(clock.now, plant.observe()) == [due.pk]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {queries[0]['sql']}")
        assert "USING INDEX ledger_unjudged" in str(cursor.fetchall())
    assert stored(due).judge_at is None


def test_an_action_that_failed_is_not_judged(loop, plant, clock, control):
    ledger.fail(tick(loop, plant, clock, control), "the broker is away")
    assert judge(plant, clock) == []


@pytest.mark.parametrize("mode", ["auto", "advise", "hold", "manual"])
def test_an_entry_of_any_mode_can_be_decided_again_with_the_same_result(loop, plant, clock, control, owner, mode):
    override(loop, owner, clock, "guard.maximum", 3)
    override(loop, owner, clock, "start", 9)
    Loop.objects.update(mode=mode)
    for _ in range(8):
        entry = stored(tick(loop, plant, clock, control))
        replay = ledger.replay(entry)
        assert replay.same and replay.same_code
        assert replay.decision.reason.partition(": ")[2] in entry.reason


def test_a_changed_record_is_not_the_same_decision(loop, plant, clock, control):
    entry = stored(tick(loop, plant, clock, control))
    entry.observation["queue_length"] = 0
    replay = ledger.replay(entry)
    assert replay.same is False
    recorded, replayed = replay.differences["action"]
    assert (recorded, replayed) == ({"start": 2}, None)


def test_an_entry_names_the_code_that_decided_and_a_replay_by_other_code_says_so(loop, plant, clock, control):
    entry = stored(tick(loop, plant, clock, control))
    assert entry.code == code.compute_code_version() and len(entry.code) == code.LENGTH
    entry.code = "0123456789ab"
    replay = ledger.replay(entry)
    assert (replay.same, replay.same_code) == (True, False)
    assert (replay.recorded_code, replay.code) == ("0123456789ab", code.compute_code_version())


def test_a_record_that_no_longer_fits_the_law_says_which_field(loop, plant, clock, control):
    entry = stored(tick(loop, plant, clock, control))
    entry.parameters["speed"] = 1
    replay = ledger.replay(entry)
    assert (replay.same, replay.decision) == (None, None)
    assert replay.error.startswith("parameters.speed")


@pytest.mark.parametrize(
    ("events", "state", "verdict"),
    [(100, "NORMAL", "effective"), (49, "NORMAL", "ineffective"), (100, "TOOBUSY", "harmful")],
)
def test_an_action_is_judged_once_by_what_it_removed_and_what_became_of_its_node(
    loop, plant, clock, control, events, state, verdict
):
    entry = tick(loop, plant, clock, control, seconds=0)
    plant.run("alert", "n1", events)
    plant.set_node("n1", state=state)
    assert judge(plant, clock, 9.9) == []
    (judged,) = judge(plant, clock, 0.1)
    assert (judged.pk, judged.verdict) == (entry.pk, verdict)
    if verdict == "harmful":
        assert "TOOBUSY" in judged.outcome["why"]
    else:
        assert judged.outcome["gained"] == 2 * events
    assert judge(plant, clock) == []


def test_counters_that_were_reset_leave_an_action_ineffective_with_the_reason(loop, plant, clock, control):
    tick(loop, plant, clock, control, seconds=0)
    plant.run("alert", "n1", 100)
    tick(loop, plant, clock, control, seconds=0)
    plant.reset_counters("alert", "n1")
    assert "reset" in judge(plant, clock)[-1].outcome["why"]


def test_what_nobody_could_judge_in_time_is_no_fault_of_the_action(loop, plant, clock, control):
    """The control worker was away, and the node became TOOBUSY for another cause."""
    tick(loop, plant, clock, control, seconds=0)
    plant.set_node("n1", state="TOOBUSY")
    (judged,) = judge(plant, clock, 600.0)
    assert (judged.verdict, judged.outcome["why"]) == ("ineffective", "the effect was not measured in time")


def test_an_entry_that_can_not_be_judged_stops_no_other(loop, plant, clock, control, caplog):
    entry = tick(loop, plant, clock, control, seconds=0)
    gone = Loop.objects.create(name="gone", law="of_an_older_version", target={})
    LedgerEntry.objects.create(
        loop=gone, at=entry.at, mode="auto", parameters={}, reason="A test.", expected=entry.expected,
        verdict="checking", judge_at=entry.judge_at,
    )  # fmt: skip
    plant.run("alert", "n1", 100)
    assert {each.loop.name: each.verdict for each in judge(plant, clock)} == {
        loop.name: "effective",
        "gone": "ineffective",
    }
    assert judge(plant, clock) == [] and "Failed to evaluate the effect" in caplog.text


@pytest.mark.parametrize(("change", "verdict"), [(-300, "harmful"), (300, "effective"), (20, "ineffective")])
def test_a_change_as_large_the_other_way_is_harmful(loop, plant, clock, change, verdict):
    entry = LedgerEntry.objects.create(
        loop=loop,
        at=clock.now - timedelta(seconds=60),
        mode="auto",
        parameters={},
        reason="A test.",
        expected={"metric": "queue_length", "direction": "down", "amount": 500, "within_seconds": 10},
        outcome={"before": {"queue_length": 1_200 + change, "node_state": "NORMAL"}},
        verdict="checking",
        judge_at=clock.now - timedelta(seconds=50),
    )
    assert [each.pk for each in judge(plant, clock, 0)] == [entry.pk]
    assert stored(entry).verdict == verdict
    assert submitted(plant) == 0
