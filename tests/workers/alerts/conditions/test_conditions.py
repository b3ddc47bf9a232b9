"""Conditions of the plant, of plants of others, of overrides and of rates: what fires, and what ends it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.alerts.checks import Looks, attached, banded, node, plant, rule, shipped, the_alert
from workers.alerts.conditions.evidence import STALE, FailingTask, LedgerTick, LoopFacts, NewFailures
from workers.alerts.lifecycle.inhibition import Party, find_causes
from workers.alerts.lifecycle.models import Alert, Receiver
from workers.alerts.rules import rules
from workers.alerts.rules.rules import FIRST_RULES, ensure_rules

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant_rules(looks):
    Receiver.objects.create(name="consoles", channel="browser")
    for name in ("plant-silent", "workers-missed", "queue-unserved", "failure-group-new"):
        rules.define(name, FIRST_RULES[name], looks.at)


def firing() -> list[tuple[str, str]]:
    alerts = Alert.objects.filter(state="firing").order_by("title")
    return [(each.title, each.sentence) for each in alerts]


def test_a_plant_that_answers_no_more_is_said_with_why_and_ends_once_it_is_seen(looks, plant_rules):
    gone = {"age_seconds": 61.0, "silent_seconds": 61.0, "error": "shop does not answer: refused."}
    looks.snapshot = attached("stale", **gone)
    looks.pass_seconds(4)
    said = "Plant shop has not been observed for 61 s. shop does not answer: refused."
    assert firing() == [("Plant shop is not observed", said)]
    looks.snapshot = attached(silent_seconds=0.5)
    looks.pass_seconds(40)
    assert the_alert().state == "resolved"


def test_a_new_observer_gives_a_plant_a_minute_and_ends_no_alert_meanwhile(looks, plant_rules):
    looks.snapshot = attached("stale", silent_seconds=90.0)
    looks.pass_seconds(4)
    looks.snapshot = attached("unseen", silent_seconds=5.0)
    looks.pass_seconds(40)
    assert the_alert().state == "firing"


def test_workers_that_are_gone_together_are_one_alert_and_name_the_last_first(looks, plant_rules):
    missed = {f"celery@{name}": seconds for name, seconds in zip("abcde", (75, 74, 73, 72, 71), strict=True)}
    looks.snapshot = attached(missed_workers=missed)
    looks.pass_seconds(4)
    said = "5 workers of shop have stopped responding: celery@e, celery@d, celery@c and 2 more."
    assert firing() == [("Workers of shop are not responding", said)]
    looks.snapshot = attached("stale", missed_workers=missed)
    looks.pass_seconds(60)
    assert the_alert(rule_name="workers-missed").state == "firing"
    looks.snapshot = attached()
    looks.pass_seconds(60)
    assert the_alert(rule_name="workers-missed").state == "resolved"


def test_a_queue_from_which_nobody_takes_is_said_until_somebody_does(looks, plant_rules):
    looks.snapshot = attached(unserved_queues={"mail": {"waiting": 1, "seconds": 61.0}})
    looks.pass_seconds(4)
    said = "No worker has consumed from mail of shop for 61 s; 1 task waits."
    assert firing() == [("Queue mail of shop has no consumers", said)]
    looks.snapshot = attached()
    looks.pass_seconds(60)
    assert the_alert().state == "resolved"


def test_new_failures_of_a_plant_are_one_alert_for_an_hour(looks, plant_rules):
    looks.more["new_failures"] = [
        NewFailures("shop", f"shop.pay{number}", "KeyError(a)", looks.now - age, number)
        for number, age in enumerate((30, 40, 50, 60, 7_000), 1)
    ]
    looks.pass_seconds(4)
    said = (
        "4 new failure groups in shop: shop.pay1: KeyError(a) (1 failure); shop.pay2: KeyError(a) (2 failures); "
        "shop.pay3: KeyError(a) (3 failures); and 1 more."
    )
    assert firing() == [("New failure in shop", said)]
    looks.pass_seconds(3_600, 60.0)
    looks.pass_seconds(60)
    assert the_alert(rule_name="failure-group-new").state == "resolved"


def test_a_chosen_task_that_fails_is_one_alert_until_it_has_not_failed_for_the_window(looks):
    chosen = [{"label": "task_name", "is": "~", "value": "shop.pay*"}]
    terms = {"threshold": 1, "clear_threshold": 1, "window_seconds": 600, "keep_seconds": 0}
    rule("payments", condition="task_failing", matchers=chosen, title="{task_name} failed", **terms)

    def fail(task, age):
        return FailingTask("shop", task, "KeyError(a)", looks.now - age)

    looks.more["failing_tasks"] = [fail("shop.pay", 30), fail("shop.mail", 30), fail("shop.pay2", 700)]
    looks.pass_seconds(4)
    assert firing() == [("shop.pay failed", "shop.pay of shop failed: KeyError(a).")]
    looks.pass_seconds(500, 50.0)
    looks.more["failing_tasks"] = [fail("shop.pay", 0)]
    looks.pass_seconds(500, 50.0)
    assert len(firing()) == 1 and Alert.objects.count() == 1
    looks.pass_seconds(200, 50.0)
    assert the_alert().state == "resolved"


def test_what_a_silent_plant_or_a_worker_that_is_gone_brings_with_it_stands_below_it():
    def of_shop(number, condition, **labels):
        return Party(number, condition, "warning", {"plant": "shop", **labels})

    silent, missed = of_shop(1, "plant_silent"), of_shop(2, "workers_missed")
    unserved = of_shop(3, "queue_unserved", plant_queue="mail")
    blind = of_shop(4, "loop_stale", loop="worker_rate/plant:shop/celery@a")
    lag, other = of_shop(5, "consumer_lag", group="g"), Party(6, "loop_stale", "warning", {"plant": "east"})
    assert find_causes([silent, missed, unserved, blind, lag, other]) == {2: 1, 3: 1, 4: 1, 5: 1}
    assert find_causes([missed, unserved, blind, lag, other]) == {3: 2, 4: 2}
    assert find_causes([unserved, blind, lag, other]) == {4: 3}


def test_nobody_is_warned_of_the_end_of_a_short_override(looks):
    shipped("override-ending")
    row = {"id": 3, "loop": "l", "name": "upper_limit", "owner": "anna", "expires_at": looks.now + 90}
    looks.snapshot = plant(overrides=[{**row, "created_at": looks.now - 13 * 60}])
    looks.look()
    assert not Alert.objects.exists()
    looks.snapshot = plant(overrides=[{**row, "created_at": looks.now - 14 * 60}])
    looks.look()
    assert the_alert().state == "firing"


def test_a_manual_change_without_an_end_is_reminded_of_until_it_gets_one(looks):
    shipped("manual-change-open")
    change = {
        "key": "node/n4/drained", "kind": "drain", "of": "node/n4", "title": "Node n4", "value": "drained",
        "owner": "mika", "effect": "n1 serves its load", "since": looks.now - 8 * 3_600, "remind_at": looks.now + 5,
    }  # fmt: skip
    looks.snapshot = plant(hands=[change])
    looks.look()
    assert not Alert.objects.exists()
    looks.pass_seconds(10)
    assert the_alert().sentence == ("Node n4: drained by mika for 8 h, without an end. Effect now: n1 serves its load.")
    looks.snapshot = plant(hands=[{**change, "until": looks.now + 60, "remind_at": None}])
    looks.look()
    assert the_alert().state == "resolved"


def test_an_override_that_ends_soon_is_said(looks):
    rule(
        "override-ending", condition="override_ending", title="Ends", threshold=120, clear_threshold=120, keep_seconds=0
    )
    row = {"id": 3, "loop": "l", "node": None, "name": "upper_limit", "instead_of": 5, "owner": "desk-2"}
    endless = {**row, "id": 4, "loop": None, "queue": "alert", "expires_at": None}
    looks.snapshot = plant(overrides=[{**row, "expires_at": looks.now + 200}, endless])
    looks.look()
    assert not Alert.objects.exists()
    looks.pass_seconds(90)
    assert "expires in" in the_alert().sentence


@pytest.mark.parametrize(
    ("row", "title", "said"),
    [
        ({"name": "work", "host": "jobs@a", "value": "drained"}, "Drain of jobs@a", "the host accepts work again"),
        ({"name": "intake", "queue": "alert"}, "Intake pause of alert", "the queue accepts events again"),
        ({"name": "consumption", "queue": "alert"}, "Consumption pause of alert", "process its events again"),
        (
            {"name": "upper_limit", "law": "flow", "scope": "all flow loops", "instead_of": 5},
            "Override of upper limit for all flow loops",
            "returns to 5",
        ),
    ],
)
def test_what_ends_soon_is_named(looks, row, title, said):
    shipped("override-ending")
    lasting = {"id": 3, "owner": "ada", "created_at": looks.now - 3_600, "expires_at": looks.now + 90}
    looks.snapshot = plant(overrides=[{**lasting, **row}])
    looks.look()
    assert the_alert().title == f"{title} expires soon"
    assert the_alert().sentence.startswith(f"{title} by ada expires in") and said in the_alert().sentence


def unusual(looks: Looks) -> list[str]:
    rows = Alert.objects.filter(rule_name="rate-unexpected", state="firing")
    return [each.sentence for each in rows]


@pytest.mark.thorough
def test_it_fires_after_ten_minutes_well_outside_and_ends_with_the_rate(looks):
    ensure_rules(looks.at)
    looks.snapshot = banded(36.0)
    looks.pass_seconds(590, 5.0)
    assert unusual(looks) == []
    looks.pass_seconds(20, 5.0)
    said = "Queue alert received 36.0 events/s in the last minute; 20.0 to 30.0 were expected."
    assert unusual(looks) == [said]
    looks.snapshot = banded(26.0)
    looks.pass_seconds(120, 5.0)
    assert unusual(looks) == []


@pytest.mark.sweep(2)
@pytest.mark.parametrize("snapshot", [banded(33.0), banded(90.0, days=0.9), banded(None)])
def test_a_little_outside_a_young_band_and_a_minute_that_is_not_known_say_nothing(looks, snapshot):
    ensure_rules(looks.at)
    looks.snapshot = snapshot
    looks.pass_seconds(700, 5.0)
    assert unusual(looks) == []


def shed(share: float | None) -> dict[str, Any]:
    return plant(totals={"worker_slots": 2, "workers_busy": 0, "shed_share": share})


def lagging(state: str, seconds: float | None) -> dict[str, Any]:
    return plant(pipeline={"state": state, "age_seconds": 0.5, "watermark_lag_seconds": seconds})


def restarted(state: str, waiting: int | None) -> dict[str, Any]:
    """A pipeline that has worked no batch yet."""
    applications = {} if waiting is None else {"flow": {"state": state, "waiting_events": waiting}}
    report = {"state": state, "age_seconds": 0.5, "waiting_events": waiting, "applications": applications}
    return plant(pipeline=report)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("condition", "threshold", "on", "unknown", "off"),
    [
        ("shedding", 1.0, shed(0.3), [shed(None)], shed(0.0)),
        ("rate_unexpected", 2.0, banded(90.0), [banded(None)], banded(25.0)),
        ("pipeline_lag", 60.0, lagging("running", 90.0), [lagging("offline", 3.0)], lagging("running", 3.0)),
        (  # until its first batch says otherwise
            "pipeline_lag",
            60.0,
            lagging("running", 900.0),
            [restarted("starting", None), restarted("running", 50_000)],
            restarted("running", 0),
        ),
        (
            "consumer_lag",
            60.0,
            attached(groups={"orders": {"lag_events": 900, "lag_seconds": 90.0}}),
            [attached("unseen", error="it does not answer")],
            attached(),
        ),
        (
            "sensor_silent",
            60.0,
            attached(sensors={"load": {"silent_seconds": 90.0}}),
            [attached("unseen", error="it does not answer")],
            attached(),
        ),
    ],
)
def test_what_is_not_known_any_more_stays_until_it_is_known_to_be_over(looks, condition, threshold, on, unknown, off):
    rule(condition, condition=condition, title="It is", threshold=threshold, clear_threshold=threshold)
    states = [(on, "firing"), *((each, "firing") for each in unknown), (off, "resolved")]
    for snapshot, state in states:
        looks.snapshot = snapshot
        looks.pass_seconds(60)
        assert the_alert().state == state


def test_alerts_of_a_plant_that_is_no_longer_registered_end(looks):
    rule("silent", condition="sensor_silent", title="It is", threshold=60, clear_threshold=30)
    looks.snapshot = attached("seen", sensors={"load": {"silent_seconds": 90.0}})
    looks.look()
    looks.snapshot = plant()
    looks.pass_seconds(60)
    assert the_alert().state == "resolved"


def test_a_loop_that_stops_without_a_measurement_has_none_still(looks):
    rule("blind", condition="loop_stale", title="Blind", threshold=30, clear_threshold=10)
    ticks = [LedgerTick(at, looks.now - 40 + 5 * at, False, None, STALE, "no action") for at in range(9)]
    loop = LoopFacts(1, "balance", "balance", {}, 5.0, 5.0, looks.now, ticks=ticks)
    looks.more = {"loops": [loop]}
    looks.pass_seconds(60)
    assert the_alert().state == "firing"
    seeing = LedgerTick(10, looks.now, False, 1.0, None, "no action")
    looks.more = {"loops": [replace(loop, ticked_at=looks.now, ticks=[*ticks, seeing])]}
    looks.pass_seconds(14)
    assert the_alert().state == "resolved"


def test_a_damaged_block_is_said_for_a_day_and_a_missing_one_until_it_is_accounted_for(looks):
    Receiver.objects.create(name="consoles", channel="browser")
    rules.define("block-damaged", FIRST_RULES["block-damaged"], looks.at)
    found = {"damaged_blocks": 2, "damage": "Block b1 on n1 is damaged.", "damaged_at": looks.now - 10}
    looks.snapshot = plant(nodes={"n1": {**node(), **found}, "n2": node()})
    looks.pass_seconds(4)
    said = "Node n1: 2 damaged blocks, 0 missing blocks. Block b1 on n1 is damaged."
    assert firing() == [("Node n1 has damaged or missing blocks", said)]
    looks.snapshot = plant(nodes={"n1": {**node(), **found, "damaged_at": looks.now - 90_000}, "n2": node()})
    looks.pass_seconds(60)
    assert the_alert().state == "resolved"
    lost = {"missing_blocks": 1, "dropped_blocks": 2, "dropped_at": looks.now}
    looks.snapshot = plant(nodes={"n1": {**node(), **lost}, "n2": node()})
    looks.pass_seconds(4)
    assert firing() == [("Node n1 has damaged or missing blocks", "Node n1: 0 damaged blocks, 3 missing blocks.")]
