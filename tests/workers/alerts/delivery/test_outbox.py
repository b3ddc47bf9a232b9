"""What is owed of an alert's beginning and its end: each is told once, and to whom it belongs."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.workers.alerts.checks import Looks, kinds, lost, node, plant, queue, rule, the_alert
from workers.alerts.conditions.evidence import FailingReceiver
from workers.alerts.conditions.gatherer import list_failing_receivers
from workers.alerts.delivery import outbox, receivers, schedule
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.models import Delivery, Message, OnCallFeed, Receiver
from workers.alerts.rules import silences

pytestmark = pytest.mark.django_db
OF_N1 = [{"label": "node", "is": "=", "value": "n1"}]


def heard(looks: Looks) -> list[str]:
    """The kinds of the messages that go out now, and arrive."""
    messages = outbox.bundle(looks.at)
    for message in messages:
        outbox.mark_delivered(message, looks.at)
    return [message.content["kind"] for message in messages]


def fires(looks: Looks, seconds: float = 10) -> list[str]:
    looks.snapshot = lost()
    looks.pass_seconds(seconds)
    return heard(looks)


def ends(looks: Looks, seconds: float = 20) -> list[str]:
    looks.snapshot = plant()
    looks.pass_seconds(seconds)
    return heard(looks)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("how", ["flap", "silence"])
def test_the_end_of_what_came_back_unheard_is_not_notified_and_the_next_one_is(looks, how, django_user_model):
    rule(keep_seconds=4)
    assert fires(looks) == ["firing"] and ends(looks) == ["resolved"]
    if how == "silence":
        silences.add(OF_N1, "a test", 1, django_user_model.objects.create_user("desk-2"), looks.at)
    for _ in range(2 if how == "flap" else 0):  # it comes back and is told; the third time it waits for a calm time
        fires(looks)
        ends(looks)
    assert fires(looks) == [] and ends(looks, 60) == []
    told = fires(looks, automaton.CALM_SECONDS + 10)
    assert told == ["firing"] and ends(looks) == ["resolved"]


def test_what_comes_back_after_a_notified_end_notifies_again_though_it_had_been_acknowledged(looks):
    rule(keep_seconds=4)
    fires(looks)
    alert = the_alert()
    alert.state, alert.acknowledged_until = "acknowledged", looks.at + timedelta(hours=1)
    alert.save()
    assert ends(looks) == ["resolved"]
    assert fires(looks) == ["firing"] and ends(looks) == ["resolved"]


def test_an_end_is_not_notified_again_after_a_beginning_that_was_dropped(looks):
    rule(keep_seconds=0)
    assert fires(looks) == ["firing"] and ends(looks) == ["resolved"]
    looks.snapshot = lost()
    looks.look()
    assert ends(looks) == []
    assert list(Delivery.objects.filter(round=2).values_list("kind", "state")) == [
        ("firing", "dropped"),
        ("resolved", "dropped"),
    ]


def test_an_end_that_waits_is_not_sent_once_the_alert_fires_again(looks):
    rule(keep_seconds=0)
    looks.snapshot = lost()
    looks.pass_seconds(8)
    (first,) = outbox.bundle(looks.at)
    outbox.mark_failed(first, "no route", looks.at)
    assert ends(looks, 8) == [], "its beginning is on its way still"
    assert fires(looks) == ["firing"]
    first.refresh_from_db()
    outbox.mark_delivered(first, looks.at)
    assert heard(looks) == [] and the_alert().state == "firing"
    assert ends(looks, 8) == ["resolved"]


def test_what_fires_again_before_its_end_was_sent_notifies_nobody_again(looks):
    rule(keep_seconds=0)
    assert fires(looks) == ["firing"]
    looks.snapshot = plant()
    looks.pass_seconds(8)
    assert the_alert().resolved_at is not None, "its end waits"
    assert fires(looks) == []
    assert ends(looks, 8) == ["resolved"]


def put_off(looks: Looks, tries: int = 1) -> Message:
    """An end that did not arrive, and waits for its next try."""
    looks.snapshot = plant()
    looks.pass_seconds(8)
    (end,) = outbox.bundle(looks.at)
    outbox.mark_failed(end, "no route", looks.at)
    Message.objects.filter(pk=end.pk).update(due_at=looks.at + timedelta(minutes=4), tries=tries)
    return end


@pytest.mark.parametrize(("tries", "error"), [(1, Message.FIRES_AGAIN), (2, "no route")])
def test_an_end_that_is_tried_again_is_not_sent_after_a_new_beginning(looks, tries, error):
    rule(keep_seconds=0)
    assert fires(looks) == ["firing"]
    end = put_off(looks, tries)
    assert fires(looks) == ["firing"]
    assert outbox.list_due_messages(looks.at + timedelta(minutes=5)) == [], "what goes on is not resolved"
    end.refresh_from_db()
    assert (end.state, end.error) == ("failed", error)
    since = looks.at - timedelta(days=1)
    assert [each.given_up for each in list_failing_receivers(since)] == ([] if tries == 1 else [1])
    assert ends(looks, 8) == ["resolved"]


def test_the_other_end_of_a_message_that_is_taken_back_is_still_notified(looks):
    rule(keep_seconds=0, group_by=["rule"])
    looks.snapshot = plant(nodes={name: node("OFFLINE", 14.0) for name in ("n1", "n2")})
    looks.pass_seconds(8)
    assert heard(looks) == ["firing"]
    assert len(put_off(looks).content["alerts"]) == 2
    looks.snapshot = lost("n1")
    looks.pass_seconds(8)
    contents = [each.content for each in outbox.bundle(looks.at)]
    said = [(each["kind"], [alert["labels"]["node"] for alert in each["alerts"]]) for each in contents]
    assert said == [("firing", ["n1"]), ("resolved", ["n2"])]


def test_that_messages_to_who_is_on_call_fail_notifies_somebody_else(looks):
    for name in ("anna", "boss"):
        receivers.define(name, "email", {"addresses": [f"{name}@x.example"]})
    named = {"secret_environment": "WEIR_SECRET_ROTA", "otherwise": "boss"}
    rota = receivers.define("rota", "schedule", named)
    shift = schedule.Shift(looks.at - timedelta(days=1), looks.at + timedelta(days=1), ("anna",))
    OnCallFeed.objects.create(receiver=rota, read_at=looks.at, shifts=[shift.document()])
    rule(
        "delivery-failing",
        condition="delivery_failing",
        title="Delivery to {receiver} fails",
        threshold=3,
        clear_threshold=1,
        escalation=[{"after_minutes": 0, "receivers": ["rota"]}],
    )
    looks.more = {"failing": [FailingReceiver("anna", 4, 0, "no route")]}
    looks.look()
    assert [each.receiver.name for each in Delivery.objects.all()] == ["boss"]


def switch(receiver: Receiver, on: bool) -> None:
    receivers.define(receiver.name, "email", {"addresses": ["a@b.example"]}, enabled=on)


def test_a_receiver_that_is_switched_off_gets_nothing_old_and_calls_for_nobody(looks):
    rule()
    looks.snapshot = lost()
    looks.pass_seconds(8)
    (first,) = outbox.bundle(looks.at)
    for _ in range(3):
        first.refresh_from_db()
        outbox.mark_failed(first, "no route", looks.at)
    desk = Receiver.objects.get(name="desk")
    switch(desk, on=False)
    assert list_failing_receivers(looks.at - timedelta(hours=2)) == []
    looks.snapshot = plant()
    looks.pass_seconds(20)
    switch(desk, on=True)
    assert outbox.bundle(looks.at) == [] and outbox.list_due_messages(looks.at + timedelta(days=3)) == []
    first.refresh_from_db()
    assert (first.state, first.error) == ("failed", Message.SWITCHED_OFF)
    assert list_failing_receivers(looks.at - timedelta(hours=2)) == []


def tried(looks, times):
    """A message that was tried so often, 1,000 s apart, and did not arrive."""
    (message,) = Message.objects.all()
    for _ in range(times):
        looks.now += 1_000
        (due,) = outbox.list_due_messages(looks.at)
        outbox.mark_failed(due, "no route", looks.at)
    message.refresh_from_db()
    return message


def test_a_message_that_never_arrives_is_given_up_and_says_so_once_its_alert_is_over(looks):
    rule(keep_seconds=0)
    looks.snapshot = lost()
    looks.look()
    looks.look(6.0)
    outbox.bundle(looks.at)
    message = tried(looks, outbox.MAX_TRIES - 1)
    looks.snapshot = plant()
    looks.look()
    message = tried(looks, 1)
    assert (message.state, message.tries, message.error) == ("failed", outbox.MAX_TRIES, "no route")
    assert outbox.list_due_messages(looks.at + timedelta(days=1)) == []


def test_what_goes_on_is_sent_until_it_arrives_however_long_nobody_could_be_reached(looks):
    rule()
    looks.snapshot = lost()
    looks.look()
    looks.look(6.0)
    outbox.bundle(looks.at)
    message = tried(looks, 3 * outbox.MAX_TRIES)
    assert (message.state, message.tries) == ("waiting", 3 * outbox.MAX_TRIES)
    looks.now += 1_000
    (due,) = outbox.list_due_messages(looks.at)
    outbox.mark_delivered(due, looks.at)
    assert kinds(the_alert()).count("told") == 1


def given_up(looks: Looks, receiver: Receiver, error: str = "answered 404") -> None:
    outbox.mark_failed(outbox.test_message(receiver, "chief", looks.at), error, looks.at, for_good=True)


def test_messages_to_a_receiver_fail_no_more_once_one_arrives(looks):
    desk, other = (receivers.define(name, "email", {"addresses": [f"{name}@b.example"]}) for name in ("desk", "other"))
    since = looks.at - timedelta(hours=1)
    given_up(looks, desk)
    looks.now += 60
    outbox.mark_delivered(outbox.test_message(other, "chief", looks.at), looks.at)
    assert [each.receiver for each in list_failing_receivers(since)] == ["desk"]
    outbox.mark_delivered(outbox.test_message(desk, "chief", looks.at), looks.at)
    assert list_failing_receivers(since) == []
    looks.now += 60
    given_up(looks, desk, "answered 410")
    assert list_failing_receivers(since) == [FailingReceiver("desk", 0, 1, "answered 410")]


def test_of_thousands_that_wait_only_what_can_be_sent_now_is_read(looks):
    desk, other = (receivers.define(name, "email", {"addresses": [f"{name}@b.example"]}) for name in ("desk", "other"))
    first, second, *_ = [outbox.test_message(desk, "chief", looks.at) for _ in range(3)]
    third = outbox.test_message(other, "chief", looks.at)
    assert outbox.list_due_messages(looks.at) == [first, third]
    assert outbox.list_due_messages(looks.at, {desk.pk}) == [third]
    outbox.mark_failed(first, "no route", looks.at)
    assert outbox.list_due_messages(looks.at) == [second, third], "the next goes out while one waits for its next try"
    with CaptureQueriesContext(connection) as asked:
        assert [each.receiver for each in list_failing_receivers(looks.at)] == ["desk"]
    assert not any("content" in each["sql"] for each in asked.captured_queries)


def late(seconds: float, **parts: Any) -> dict[str, Any]:
    return plant(queues={**plant()["queues"], "alert": queue(wait_seconds=seconds)}, **parts)


def test_the_alerts_of_an_incident_end_in_one_message_when_the_last_of_them_ends(looks):
    rule(keep_seconds=4)
    rule("queue-behind", condition="queue_wait", title="Queue {queue}", threshold=30, clear_threshold=15,
         severity="warning", keep_seconds=4)  # fmt: skip
    looks.snapshot = late(40)
    looks.pass_seconds(10)
    assert heard(looks) == ["firing"]
    looks.snapshot = late(40, nodes=lost()["nodes"])
    looks.pass_seconds(10)
    assert heard(looks) == ["firing"]
    assert the_alert(condition="queue_wait").under == the_alert(condition="node_lost")
    looks.snapshot = lost()
    looks.pass_seconds(20)
    assert the_alert(condition="queue_wait").resolved_at is not None
    assert heard(looks) == [], "the node is still lost"
    looks.snapshot = plant()
    looks.pass_seconds(20)
    assert heard(looks) == ["resolved"]
    ended = Message.objects.latest("pk").content["alerts"]
    assert [row["rule"] for row in ended] == ["node-lost", "queue-behind"]


def test_a_later_alert_of_a_group_waits_until_it_may_be_explained_and_then_notifies_nobody(looks):
    rule(keep_seconds=4)
    assert fires(looks) == ["firing"]
    both = {**lost()["nodes"], "n2": node("OFFLINE", 14.0)}
    looks.snapshot = plant(nodes=both)
    looks.pass_seconds(6)
    assert heard(looks) == []
    second = the_alert(labels__node="n2")
    second.under = the_alert(labels__node="n1")
    second.save()
    looks.now += outbox.REGROUP_SECONDS
    assert heard(looks) == []
    second.under = None
    second.save()
    assert heard(looks) == ["firing"], "nothing explains it any more"


def test_a_later_alert_of_a_group_that_nothing_explains_notifies_after_a_short_wait(looks):
    rule(keep_seconds=4)
    assert fires(looks) == ["firing"]
    looks.snapshot = plant(nodes={**lost()["nodes"], "n2": node("OFFLINE", 14.0)})
    looks.pass_seconds(6)
    assert heard(looks) == []
    looks.pass_seconds(outbox.REGROUP_SECONDS)
    assert heard(looks) == ["firing"]
