"""A week in which something happened, for the report's own tests and those of its page."""

from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User

from tests.workers.alerts.checks import Looks, lost, plant, rule, the_alert
from workers.models import Loop, Override, Plan
from workers.objectives.models import Objective

MONDAY = datetime(2026, 1, 5, 7, 0, tzinfo=UTC)


def eventful_week(owner: User) -> None:
    """Up to MONDAY: an incident, a missed objective, an override of this person, and a proposal."""
    looks = Looks()  # at 03:00 of that Monday
    rule()
    looks.snapshot = lost()
    looks.look()
    looks.now += 600
    looks.snapshot = plant()
    looks.pass_seconds(14)
    assert the_alert().resolved_at is not None
    objective = Objective.objects.create(name="orders", condition="wait_seconds <= 30", target=0.99, window_days=28)
    minute = int((MONDAY - timedelta(hours=1)).timestamp() // 60)
    objective.minutes.create(minute=minute, bad=2.0, total=100.0)
    objective.minutes.create(minute=minute - 8 * 24 * 60, bad=50.0, total=50.0)  # of another week
    loop = Loop.objects.create(name="worker_rate/alert/n1", law="worker_rate", target={"queue": "alert"})
    Override.objects.create(
        loop=loop,
        name="upper_limit",
        value=8,
        owner=owner,
        reason="the sale begins at nine",
        created_at=MONDAY - timedelta(hours=2),
        expires_at=MONDAY - timedelta(hours=1),
    )
    Plan.objects.create(
        title="Drain n2", kind="drain", moves=[], base={}, base_revision=1, expires_at=MONDAY,
        created_at=MONDAY - timedelta(days=1),
    )  # fmt: skip
