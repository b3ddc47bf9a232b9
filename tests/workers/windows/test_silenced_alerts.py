"""Expected alerts of a window are silenced and listed, and all others are delivered."""

from datetime import UTC, datetime

import pytest

from tests.workers.alerts.checks import Looks, kinds, lost, node, plant, queue, rule, the_alert
from tests.workers.windows.samples import plan_window
from workers.alerts.lifecycle.models import Alert, Delivery
from workers.alerts.lifecycle.open_alerts import build_alert_status, describe_situation
from workers.alerts.rules.expected_alerts import list_silenced
from workers.windows import definitions, occurrences
from workers.windows.models import PlannedWindow

pytestmark = pytest.mark.django_db
BEFORE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def looks(db):
    """The first check is on the Sunday on which the clocks in Berlin are set forward, five minutes after the start."""
    made = Looks()
    made.now = datetime(2026, 3, 29, 1, 5, tzinfo=UTC).timestamp()
    return made


def notified() -> list[str]:
    return [row.alert.title for row in Delivery.objects.select_related("alert").order_by("pk")]


def wait_rule():
    return rule("queue-behind", condition="queue_wait", title="{queue} behind", threshold=30, clear_threshold=15)


def test_over_a_clock_change_an_expected_alert_is_silenced_and_listed_and_another_is_delivered(looks):
    window = plan_window(BEFORE)
    rule()
    looks.snapshot = {**lost("n1"), "nodes": {"n1": node("OFFLINE", 14.0), "n2": node("OFFLINE", 14.0)}}
    looks.pass_seconds(10)
    assert notified() == ["Node n2 is lost"]
    assert [row.alert.title for row in list_silenced(window)] == ["Node n1 is lost"]
    status = build_alert_status(the_alert(labels__node="n1"))
    assert (status.quiet, status.quiet_until) == ("silenced", datetime(2026, 3, 29, 3, tzinfo=UTC).timestamp())
    assert describe_situation(the_alert(labels__node="n1")).format_sentence() == (
        "Silenced by the planned window Patches, which ends at 2026-03-29 03:00:00 UTC."
    )


def test_an_alert_that_still_fires_after_the_window_is_delivered_then(looks):
    plan_window(BEFORE)
    rule()
    looks.now = datetime(2026, 3, 29, 2, 59, 50, tzinfo=UTC).timestamp()
    looks.snapshot = lost()
    looks.pass_seconds(8)
    assert notified() == []
    looks.pass_seconds(6)
    assert notified() == ["Node n1 is lost"]
    assert kinds(the_alert()) == ["fired", "silenced", "silence ended"]


def test_an_alert_that_ends_within_the_window_notifies_nobody_but_stays_listed(looks):
    window = plan_window(BEFORE)
    rule()
    looks.snapshot = lost()
    looks.pass_seconds(10)
    looks.snapshot = plant()
    looks.pass_seconds(20)
    assert the_alert().state == "resolved" and notified() == []
    assert [row.alert.state for row in list_silenced(window)] == ["resolved"]


def test_an_alert_that_the_window_does_not_expect_is_delivered_even_if_an_expected_one_explains_it(looks):
    plan_window(BEFORE)
    rule()
    wait_rule()
    looks.snapshot = {**lost("n1"), "queues": {"alert": queue(99)}}
    looks.pass_seconds(10)
    assert notified() == ["alert behind"]


def test_matchers_narrow_the_expected_alerts_of_the_scope(looks):
    plan_window(BEFORE, [{"label": "rule", "is": "=", "value": "queue-behind"}], scope=["plant/main"])
    rule()
    wait_rule()
    looks.snapshot = {**lost("n2"), "queues": {"alert": queue(99)}}
    looks.pass_seconds(10)
    assert notified() == ["Node n2 is lost"]


def test_a_recurring_silence_needs_no_scope(looks):
    plan_window(BEFORE, [{"label": "node", "is": "~", "value": "n*"}], kind="silence", scope=[])
    rule()
    looks.snapshot = lost("n2")
    looks.pass_seconds(10)
    assert notified() == []


def test_a_change_freeze_silences_nothing(looks):
    plan_window(BEFORE, kind="freeze", scope=["plant/main"])
    rule()
    looks.snapshot = lost("n1")
    looks.pass_seconds(10)
    assert notified() == ["Node n1 is lost"]


def test_an_occurrence_that_a_person_ends_silences_nothing_from_then_on(looks):
    window = plan_window(BEFORE)
    rule()
    looks.snapshot = lost("n1")
    looks.pass_seconds(10)
    occurrence = occurrences.list_next(window, looks.at, 1)[0]
    definitions.end_occurrence(window, occurrence, looks.at)
    looks.pass_seconds(10)
    assert notified() == ["Node n1 is lost"]


def test_outside_of_its_occurrences_a_window_silences_nothing(looks):
    plan_window(BEFORE)
    rule()
    looks.now = datetime(2026, 3, 30, 1, tzinfo=UTC).timestamp()
    looks.snapshot = lost("n1")
    looks.pass_seconds(10)
    assert notified() == ["Node n1 is lost"] and Alert.objects.get().expected is None


def test_a_window_whose_time_zone_is_unknown_here_never_hides_the_others(looks):
    broken = plan_window(BEFORE, name="Elsewhere")
    PlannedWindow.objects.filter(pk=broken.pk).update(time_zone="Mars/Olympus")
    plan_window(BEFORE)
    rule()
    looks.snapshot = {**lost("n1"), "nodes": {"n1": node("OFFLINE", 14.0), "n2": node("OFFLINE", 14.0)}}
    looks.pass_seconds(10)
    assert notified() == ["Node n2 is lost"]
