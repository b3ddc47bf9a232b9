"""The alert of a rate that leaves the band in which it is expected."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.workers.alerts.checks import START, Looks, plant
from workers.alerts.lifecycle.models import Alert
from workers.alerts.rules.rules import ensure_rules

pytestmark = pytest.mark.django_db
NOW = datetime.fromtimestamp(START, UTC)


def banded(minute: float | None, days: float = 3.0) -> dict[str, Any]:
    band = {"low": 20.0, "high": 30.0, "days": days, "minute": minute}
    return plant(bands={"queues": {"alert": {"in_per_second": band}}})


def unusual(looks: Looks) -> list[str]:
    rows = Alert.objects.filter(rule_name="rate-unexpected", state="firing")
    return [each.sentence for each in rows]


@pytest.mark.thorough
def test_it_fires_after_ten_minutes_well_outside_and_ends_with_the_rate():
    ensure_rules(NOW)
    looks = Looks()
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
@pytest.mark.parametrize("snapshot", [banded(33.0), banded(90.0, days=0.9), banded(None), plant()])
def test_a_little_outside_a_young_band_and_a_minute_that_is_not_known_say_nothing(snapshot):
    ensure_rules(NOW)
    looks = Looks()
    looks.snapshot = snapshot
    looks.pass_seconds(700, 5.0)
    assert unusual(looks) == []
