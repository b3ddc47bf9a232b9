"""How much of the ledger the alerter holds: as far back as a rule goes, and how long a loop is blind."""

from datetime import timedelta
from typing import Any

import pytest

from tests.workers.alerts.checks import Looks
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.evidence import STALE
from workers.alerts.conditions.gatherer import Gatherer
from workers.alerts.lifecycle.models import AlertRule
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db


@pytest.fixture
def looks():
    return Looks()


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
