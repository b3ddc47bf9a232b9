"""What is owed of an alert's beginning and its end: each is told once, and to whom it belongs."""

from datetime import timedelta

import pytest

from tests.workers.alerts.checks import Looks, lost, plant, rule, the_alert
from workers.alerts.delivery import outbox
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.models import Delivery
from workers.alerts.rules import silences

pytestmark = pytest.mark.django_db
OF_N1 = [{"label": "node", "is": "=", "value": "n1"}]


@pytest.fixture
def looks(db) -> Looks:
    return Looks()


def heard(looks: Looks) -> list[str]:
    """The kinds of the messages that go out now, and arrive."""
    messages = outbox.bundle(looks.at)
    for message in messages:
        outbox.sent(message, looks.at)
    return [message.content["kind"] for message in messages]


def fires(looks: Looks, seconds: float = 10) -> list[str]:
    looks.snapshot = lost()
    looks.pass_seconds(seconds)
    return heard(looks)


def ends(looks: Looks, seconds: float = 20) -> list[str]:
    looks.snapshot = plant()
    looks.pass_seconds(seconds)
    return heard(looks)


def quiet_by_flapping(looks: Looks) -> None:
    """It comes back twice and is told; the third time it waits for a calm time."""
    for _ in range(2):
        fires(looks)
        ends(looks)


def quiet_by_silence(looks: Looks, person) -> None:
    silences.add(OF_N1, "a test", 1, person, looks.at)


@pytest.mark.parametrize("how", ["flap", "silence"])
def test_the_end_of_what_came_back_unheard_is_not_told_and_the_next_one_is(looks, how, django_user_model):
    rule(keep_seconds=4)
    assert fires(looks) == ["firing"] and ends(looks) == ["resolved"]
    if how == "flap":
        quiet_by_flapping(looks)
    else:
        quiet_by_silence(looks, django_user_model.objects.create_user("desk-2"))
    assert fires(looks) == [] and ends(looks, 60) == []
    told = fires(looks, automaton.CALM_SECONDS + 10)
    assert told == ["firing"] and ends(looks) == ["resolved"]


def test_the_end_of_what_came_back_acknowledged_is_not_told(looks):
    rule(keep_seconds=4)
    fires(looks)
    alert = the_alert()
    alert.state, alert.acknowledged_until = "acknowledged", looks.at + timedelta(hours=1)
    alert.save()
    assert ends(looks) == ["resolved"]
    assert fires(looks) == [] and ends(looks) == []


def test_an_end_is_not_told_again_after_a_beginning_that_was_dropped(looks):
    rule(keep_seconds=0)
    assert fires(looks) == ["firing"] and ends(looks) == ["resolved"]
    looks.snapshot = lost()
    looks.look()
    assert ends(looks) == []
    assert list(Delivery.objects.filter(round=2).values_list("kind", "state")) == [
        ("firing", "dropped"),
        ("resolved", "dropped"),
    ]


def test_what_waits_of_an_earlier_end_is_told_once(looks):
    rule(keep_seconds=0)
    fires(looks)
    for snapshot in (plant(), lost(), plant()):
        looks.snapshot = snapshot
        looks.look()
    looks.look(6.0)
    assert heard(looks) == ["resolved"]
    assert heard(looks) == []


def test_an_end_that_waits_is_not_told_once_the_alert_fires_again(looks):
    rule(keep_seconds=0)
    looks.snapshot = lost()
    looks.pass_seconds(8)
    (first,) = outbox.bundle(looks.at)
    outbox.failed(first, "no route", looks.at)
    assert ends(looks, 8) == [], "its beginning is on its way still"
    assert fires(looks) == ["firing"]
    first.refresh_from_db()
    outbox.sent(first, looks.at)
    assert heard(looks) == [] and the_alert().state == "firing"
    assert ends(looks, 8) == ["resolved"]
