"""What a rule would have done, from stored metrics and the ledger, as the live evaluator would have."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queues import keys
from workers.alerts.evaluation import preview as previews
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules import rules
from workers.models import LedgerEntry, Loop

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)


def rule(condition: str, threshold: float, **fields: Any) -> AlertRule:
    given = {"condition": condition, "title": "t", "threshold": threshold, "clear_threshold": threshold, **fields}
    return AlertRule(name="mine", **rules.validate_fields(given))


def store(control, series: str, values: list[float | None], step_seconds: float = 10.0) -> None:
    """Rows of the metrics' stream, one a step, the last of them now."""
    for at, value in enumerate(values):
        moment = NOW.timestamp() - step_seconds * (len(values) - 1 - at)
        fields = {"totals.in_per_second": "1", **({} if value is None else {series: f"{value:g}"})}
        control.xadd(keys.METRICS, fields, id=f"{round(moment * 1000)}-0")


def preview(wanted: AlertRule, control, tmp_path) -> previews.Preview:
    return previews.preview(wanted, control, tmp_path, NOW)


def test_each_time_it_would_have_fired_is_counted_with_its_subject(control, plant_topology, tmp_path):
    calm, behind = [1.0] * 120, [99.0] * 30
    store(control, "queues.alert.wait_seconds", calm + behind + calm + behind + calm)
    found = preview(rule("queue_wait", 30, for_seconds=60, keep_seconds=30), control, tmp_path)
    assert [each.labels for each in found.fired] == [{"queue": "alert"}] * 2
    assert found.format_sentence() == "Would have fired 2 times in the last 1.2 h."
    assert all(each.until is not None for each in found.fired)


def test_what_comes_back_soon_counts_once_as_it_does_live(control, plant_topology, tmp_path):
    store(control, "queues.alert.wait_seconds", ([99.0] * 6 + [1.0] * 12) * 5)
    found = preview(rule("queue_wait", 30, keep_seconds=10), control, tmp_path)
    assert found.format_sentence().startswith("Would have fired once")


def test_what_is_still_on_has_no_end(control, plant_topology, tmp_path):
    store(control, "nodes.n1.utilisation", [0.2] * 30 + [0.95] * 30)
    (fired,) = preview(rule("node_toobusy", 90, clear_threshold=80), control, tmp_path).fired
    assert (fired.labels, fired.until) == ({"node": "n1"}, None)


def test_without_anything_stored_it_says_so(control, plant_topology, tmp_path):
    assert "No data is stored" in preview(rule("queue_wait", 30), control, tmp_path).format_sentence()
    assert "from now on" in preview(rule("throttled", 1), control, tmp_path).format_sentence()


def test_a_condition_of_the_ledger_is_judged_by_its_entries(control, plant_topology, tmp_path):
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert"})
    for minute in range(120):
        verdict = "harmful" if 30 <= minute < 33 else "effective"
        at = NOW - timedelta(minutes=120 - minute)
        fields = {"mode": "auto", "parameters": {}, "reason": "", "action": {"start": 1}}
        LedgerEntry.objects.create(loop=loop, at=at, verdict=verdict, **fields)
    found = preview(rule("loop_harmful", 2, window_seconds=600), control, tmp_path)
    (fired,) = found.fired
    assert fired.labels == {"loop": "worker_rate/alert/n1", "queue": "alert"}
    assert timedelta(minutes=80) < NOW - datetime.fromtimestamp(fired.at, UTC) < timedelta(minutes=95)
