"""Who overrode, paused or drained something for long is reminded before it ends."""

import pytest
from django.utils import timezone

from tests.workers.alerts.checks import Looks, plant, rule, the_alert
from workers.alerts.lifecycle.models import Alert, AlertRule
from workers.alerts.rules.rules import ensure_rules

pytestmark = pytest.mark.django_db


@pytest.fixture
def looks():
    return Looks()


def shipped(name: str) -> None:
    """Of the rules that a plant starts with, this alone."""
    ensure_rules(timezone.now())
    AlertRule.objects.exclude(name=name).update(enabled=False)


def test_nobody_is_warned_of_the_end_of_a_short_override(looks):
    shipped("override-ending")
    row = {"id": 3, "loop": "l", "name": "upper_limit", "owner": "anna", "expires_at": looks.now + 90}
    looks.snapshot = plant(overrides=[{**row, "created_at": looks.now - 13 * 60}])
    looks.look()
    assert not Alert.objects.exists()
    looks.snapshot = plant(overrides=[{**row, "created_at": looks.now - 14 * 60}])
    looks.look()
    assert the_alert().state == "firing"


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
