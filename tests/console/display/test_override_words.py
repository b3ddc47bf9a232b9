"""Messages about manual changes name loops as pages do, in full sentences."""

from datetime import timedelta

import pytest
from django.utils import timezone

from console.display.override_words import describe_ended, describe_mode, describe_overrides
from queues.models import Node
from tests.console.rows import held
from workers.models import Loop

pytestmark = pytest.mark.django_db


@pytest.fixture
def loop():
    return Loop.objects.create(name="concurrency/jobs@vm", law="concurrency", target={"host": "jobs@vm"})


def end_of(override):
    return f"until {override.expires_at:%H:%M:%S} UTC"


def set_today(owner, name, value, **scope):
    """An override that ends on the day on which it was set."""
    made = held(owner, name, value, **scope)
    made.created_at = made.expires_at - timedelta(seconds=1)
    return made


def test_a_mode_says_who_controls_the_loop_and_until_when(loop, people):
    mode, value = (set_today(people["operator"], *named, loop=loop) for named in (("mode", "manual"), ("threads", 3)))
    assert describe_mode(loop, "manual", [mode]) == (
        f"You control concurrency of the pool jobs on vm manually {end_of(mode)}."
    )
    assert describe_mode(loop, "manual", [mode, value]).endswith("UTC, with the value 3.")
    assert describe_mode(loop, "hold", [mode]) == (
        f"Concurrency of the pool jobs on vm is on hold {end_of(mode)}: the loop takes no action."
    )
    assert describe_mode(loop, "auto", []) == (
        "Concurrency of the pool jobs on vm is in auto mode: the loop applies its decisions."
    )


def test_each_override_is_a_sentence_and_so_is_its_end(loop, people):
    by = people["operator"]
    node = Node.objects.create(name="n1", url="redis://n1")
    pause = set_today(by, "consumption", "paused", queue="slow")
    Loop.objects.create(name="worker_rate/slow/n1", law="worker_rate", target={"queue": "slow", "node": "n1"})
    hold = set_today(by, "mode", "hold", law="worker_rate")
    busy = set_today(by, "busy_threshold", 0.5, node=node)
    assert describe_overrides([pause]) == f"Consumption of slow is paused {end_of(pause)}."
    assert describe_overrides([hold]) == f"Worker rate, all loops is on hold {end_of(hold)}."
    assert describe_overrides([busy]) == f"Busy threshold of n1 is 50 % {end_of(busy)}."
    assert describe_overrides([busy] * 4) == f"4 values of node n1 are set {end_of(busy)}."
    pause.instead_of, hold.instead_of, busy.instead_of = None, "auto", 0.7
    assert describe_ended(pause) == "Consumption of slow continues."
    assert describe_ended(hold) == "Worker rate, all loops is no longer on hold and is in auto mode again."
    assert describe_ended(busy) == "Busy threshold of n1 is no longer 50 % and is 70 % again."
    assert timezone.now() < busy.expires_at
