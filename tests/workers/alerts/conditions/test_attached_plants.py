"""Attached plants that are not seen, whose workers are gone or whose queues nobody takes from: one alert for
each cause, and its end.
"""

from typing import Any

import pytest

from tests.workers.alerts.checks import Looks, plant, the_alert
from workers.alerts.lifecycle.inhibition import Party, find_causes
from workers.alerts.lifecycle.models import Alert, Receiver
from workers.alerts.rules import rules
from workers.alerts.rules.rules import FIRST_RULES

pytestmark = pytest.mark.django_db


@pytest.fixture
def looks():
    looks = Looks()
    Receiver.objects.create(name="consoles", channel="browser")
    for name in ("plant-silent", "workers-missed", "queue-unserved"):
        rules.define(name, FIRST_RULES[name], looks.at)
    return looks


def attached(state: str = "seen", **shown: Any) -> dict[str, Any]:
    return plant(plants={"shop": {"kind": "celery", "state": state, **shown}})


def firing() -> list[tuple[str, str]]:
    alerts = Alert.objects.filter(state="firing").order_by("title")
    return [(each.title, each.sentence) for each in alerts]


def test_a_plant_that_answers_no_more_is_said_with_why_and_ends_once_it_is_seen(looks):
    gone = {"age_seconds": 61.0, "silent_seconds": 61.0, "error": "shop does not answer: refused."}
    looks.snapshot = attached("stale", **gone)
    looks.pass_seconds(4)
    said = "Plant shop has not been observed for 61 s. shop does not answer: refused."
    assert firing() == [("Plant shop is not observed", said)]
    looks.snapshot = attached(silent_seconds=0.5)
    looks.pass_seconds(40)
    assert the_alert().state == "resolved"


def test_a_new_observer_gives_a_plant_a_minute_and_ends_no_alert_meanwhile(looks):
    looks.snapshot = attached("stale", silent_seconds=90.0)
    looks.pass_seconds(4)
    looks.snapshot = attached("unseen", silent_seconds=5.0)
    looks.pass_seconds(40)
    assert the_alert().state == "firing"


def test_workers_that_are_gone_together_are_one_alert_and_name_the_last_first(looks):
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


def test_a_queue_from_which_nobody_takes_is_said_until_somebody_does(looks):
    looks.snapshot = attached(unserved_queues={"mail": {"waiting": 1, "seconds": 61.0}})
    looks.pass_seconds(4)
    said = "No worker has consumed from mail of shop for 61 s; 1 task waits."
    assert firing() == [("Queue mail of shop has no consumers", said)]
    looks.snapshot = attached()
    looks.pass_seconds(60)
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
