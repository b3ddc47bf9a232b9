"""What conditions of loops read from their ticks, and how much of the ledger the alerter holds for that."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.workers.alerts.checks import loop_facts
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.evidence import STALE
from workers.alerts.conditions.gatherer import Gatherer
from workers.alerts.evaluation import evaluator
from workers.alerts.lifecycle.models import AlertRule
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("condition", "ticks", "value"),
    [
        ("loop_oscillation", [(None, "no action", value) for value in (0, 10, 0, 10, 0, 10)], 4),
        ("loop_saturated", [("maximum_rate", "no action", 1.0)] * 60, 50),
        ("loop_saturated", [("stale measurement", "no action", 1.0)] * 60, 0),
        ("loop_ineffective", [(None, each, 1.0) for each in ("harmful", "effective", "ineffective", "harmful")], 2),
        ("loop_harmful", [(None, each, 1.0) for each in ("harmful", "effective", "harmful")], 2),
        ("loop_stale", [(None, "no action", 1.0)] + [("stale measurement", "no action", None)] * 7, 30),
    ],
)
def test_conditions_of_loops_read_their_ticks(condition, ticks, value, looks):
    reading = next(
        evaluator.CONDITIONS[condition].read(replace(looks.evidence(), loops=[loop_facts(looks, ticks)]), 600.0)
    )
    assert reading.value == value
    assert reading.labels == {"loop": "worker_rate/alert/n1", "queue": "alert", "node": "n1"}


@pytest.mark.parametrize(
    ("limited_by", "seconds", "value"),
    [(None, 40.0, 0), ("nothing to decide", 40.0, 0), (None, 20.0, 3), ("executed workers", 40.0, 3)],
)
def test_actions_without_effect_are_over_once_a_loop_has_wanted_nothing_for_half_a_minute(
    limited_by, seconds, value, looks
):
    """A busy host kept workers of one queue waiting; a minute after it was over, the alert fired."""
    facts = loop_facts(looks, [(None, "ineffective", 1.0)] * 3)
    last = facts.ticks[-1]
    ticks = [replace(each, at=each.at - seconds) for each in facts.ticks]
    ticks.append(replace(last, at=looks.now, acted=False, limited_by=limited_by, verdict="no action"))
    evidence = replace(looks.evidence(), loops=[replace(facts, ticks=ticks)])
    reading = next(evaluator.CONDITIONS["loop_ineffective"].read(evidence, 600.0))
    assert reading.value == value
    assert reading.sentence.startswith("Worker rate of alert on n1: its last 3 actions had no effect")
    assert reading.sentence.endswith("it has requested no change since." if value == 0 else "no effect.")


@pytest.mark.parametrize(
    ("law", "kept", "value"), [("flow", 7.0, 0), ("flow", None, 3), ("ladder", 7.0, 3), ("worker_rate", 7.0, 3)]
)
def test_a_limit_that_only_lasts_on_is_no_act_while_a_ladders_level_and_each_start_of_workers_is(
    law, kept, value, looks
):
    """Flow sets its limit at each tick: after a node had come back, its alert stayed for half an hour."""
    ticks = [(None, "ineffective", 7.0)] * 3
    ticks += [(None, "no action", kept if kept is not None else float(number)) for number in range(8)]
    facts = replace(loop_facts(looks, ticks), law=law, target={"application": "flow", "queue": "alert"})
    evidence = replace(looks.evidence(), loops=[facts])
    assert next(evaluator.CONDITIONS["loop_ineffective"].read(evidence, 600.0)).value == value


@pytest.fixture
def loop():
    AlertRule.objects.all().delete()
    return Loop.objects.create(name="a", law="worker_rate", target={}, interval_seconds=60.0)


def tick(loop: Loop, at: Any, **values: Any) -> None:
    LedgerEntry.objects.create(loop=loop, at=at, **{"mode": "auto", "parameters": {}, "reason": "", **values})


def test_ticks_are_held_as_far_back_as_a_rule_goes_and_read_again_when_one_goes_further(control, looks, loop):
    def minutes():
        (facts,) = gatherer.gather(looks.now, looks.now).loops
        return [round((looks.now - each.at) / 60) for each in facts.ticks]

    for age_minutes in (100, 50, 20, 5):
        tick(loop, looks.at - timedelta(minutes=age_minutes))
    gatherer = Gatherer(control)
    assert minutes() == [5]
    rule = AlertRule(name="swings", condition="loop_oscillation", title="t", threshold=5, clear_threshold=1)
    rule.window_seconds = 3_600
    rule.save()
    assert minutes() == [50, 20, 5]
    rule.delete()
    assert minutes() == [5]


def test_a_loop_that_is_blind_for_longer_than_any_rule_goes_back_is_so_for_all_of_it(control, looks, loop):
    gatherer = Gatherer(control)
    for _ in range(30):
        tick(loop, looks.at, limited_by=STALE)
        (facts,) = gatherer.gather(looks.now, looks.now).loops
        looks.now += 60.0
    assert len(facts.ticks) <= 11
    evidence = gatherer.gather(looks.now, looks.now)
    (reading,) = CONDITIONS["loop_stale"].read(evidence, 600.0)
    assert reading.value == 29 * 60


def test_a_loop_whose_target_was_gone_was_not_blind_meanwhile(control, looks, loop):
    """A node is lost, its containers are emptied, and come back with it."""
    gatherer, blind = Gatherer(control), CONDITIONS["loop_stale"]
    for target in ({}, {"retired_at": "revision 3"}, {}):
        Loop.objects.filter(pk=loop.pk).update(target=target)
        if not target:
            tick(loop, looks.at, limited_by=STALE)
        evidence = gatherer.gather(looks.now, looks.now)
        assert [each.value for each in blind.read(evidence, 600.0)] == [] if target else [0.0]
        looks.now += 120.0


def test_a_loop_that_only_advises_on_one_pool_of_a_silent_plant_is_not_one_alert_more(control, looks, loop):
    target = {"plant": "shop", "operator": "celery@one"}
    gatherer, values = Gatherer(control), {}
    for mode in ("advise", "auto"):
        Loop.objects.filter(pk=loop.pk).update(mode=mode, target=target)
        for _ in range(3):
            tick(loop, looks.at, limited_by=STALE, mode=mode)
            evidence = gatherer.gather(looks.now, looks.now)
            looks.now += 60.0
        (reading,) = CONDITIONS["loop_stale"].read(evidence, 600.0)
        values[mode] = reading.value
    assert values["advise"] == 0.0 and values["auto"] >= 120.0
