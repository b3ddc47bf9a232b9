"""What is not measured any more is not over: its alert stays until somebody measures that it is."""

from dataclasses import replace
from typing import Any

import pytest

from tests.workers.alerts.checks import Looks, plant, rule, the_alert
from workers.alerts.conditions.evidence import STALE, LedgerTick, LoopFacts

pytestmark = pytest.mark.django_db


def shed(share: float | None) -> dict[str, Any]:
    return plant(totals={"worker_slots": 2, "workers_busy": 0, "shed_share": share})


def banded(minute: float | None) -> dict[str, Any]:
    band = {"low": 20.0, "high": 30.0, "days": 3.0, "minute": minute}
    return plant(bands={"queues": {"alert": {"in_per_second": band}}})


def lagging(state: str, seconds: float | None) -> dict[str, Any]:
    return plant(pipeline={"state": state, "age_seconds": 0.5, "watermark_lag_seconds": seconds})


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("condition", "threshold", "on", "unknown", "off"),
    [
        ("shedding", 1.0, shed(0.3), shed(None), shed(0.0)),
        ("rate_unexpected", 2.0, banded(90.0), banded(None), banded(25.0)),
        ("pipeline_lag", 60.0, lagging("running", 90.0), lagging("offline", 3.0), lagging("running", 3.0)),
    ],
)
def test_what_is_not_known_any_more_stays_until_it_is_known_to_be_over(condition, threshold, on, unknown, off):
    looks = Looks()
    rule(condition, condition=condition, title="It is", threshold=threshold, clear_threshold=threshold)
    for snapshot, state in ((on, "firing"), (unknown, "firing"), (off, "resolved")):
        looks.snapshot = snapshot
        looks.pass_seconds(60)
        assert the_alert().state == state


def restarted(state: str, waiting: int | None) -> dict[str, Any]:
    """A pipeline that has worked no batch yet."""
    applications = {} if waiting is None else {"flow": {"state": state, "waiting_events": waiting}}
    report = {"state": state, "age_seconds": 0.5, "waiting_events": waiting, "applications": applications}
    return plant(pipeline=report)


def test_a_pipeline_that_lags_and_is_restarted_lags_until_its_first_batch_says_otherwise():
    looks = Looks()
    rule("lag", condition="pipeline_lag", title="It lags", threshold=60, clear_threshold=30)
    for snapshot, state in (
        (lagging("running", 900.0), "firing"),
        (restarted("starting", None), "firing"),
        (restarted("running", 50_000), "firing"),
        (restarted("running", 0), "resolved"),
    ):
        looks.snapshot = snapshot
        looks.pass_seconds(60)
        assert the_alert().state == state


def attached(state: str, **shown: Any) -> dict[str, Any]:
    return plant(plants={"shop": {"kind": "declared", "state": state, **shown}})


@pytest.mark.parametrize(
    ("condition", "on"),
    [
        ("consumer_lag", {"groups": {"orders": {"lag_events": 900, "lag_seconds": 90.0}}}),
        ("sensor_silent", {"sensors": {"load": {"silent_seconds": 90.0}}}),
    ],
)
def test_alerts_of_a_plant_that_a_new_observer_has_not_reached_yet_stay_until_it_has(condition, on):
    looks = Looks()
    rule(condition, condition=condition, title="It is", threshold=60, clear_threshold=30)
    for snapshot, state in (
        (attached("seen", **on), "firing"),
        (attached("unseen", error="it does not answer"), "firing"),
        (attached("seen"), "resolved"),
    ):
        looks.snapshot = snapshot
        looks.pass_seconds(60)
        assert the_alert().state == state


def test_alerts_of_a_plant_that_is_no_longer_registered_end():
    looks = Looks()
    rule("silent", condition="sensor_silent", title="It is", threshold=60, clear_threshold=30)
    looks.snapshot = attached("seen", sensors={"load": {"silent_seconds": 90.0}})
    looks.look()
    looks.snapshot = plant()
    looks.pass_seconds(60)
    assert the_alert().state == "resolved"


def test_a_loop_that_stops_without_a_measurement_has_none_still():
    looks = Looks()
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
