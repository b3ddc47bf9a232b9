"""The dead man's switch: an address is called while observer, alerter and delivery work, not otherwise."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from queues import keys
from workers.alerts.alerter import DeadMansSwitch, WatchFacts, describe_failure, find_undelivered_error
from workers.alerts.delivery import outbox, receivers
from workers.alerts.lifecycle.models import AlertWatch, Message, Receiver

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (WatchFacts(0.4, 1.0, 2.0), ""),
        (WatchFacts(16.0, 1.0, 2.0), "The observer has not published a snapshot for 16 s."),
        (WatchFacts(None, 1.0, 2.0), "The observer has not published a snapshot since it was started."),
        (WatchFacts(0.4, 31.0, 2.0), "The alerter has not evaluated any rules for 31 s."),
        (WatchFacts(0.4, 1.0, 91.0), "The delivery has not run for 91 s."),
        (WatchFacts(-60.0, 1.0, 2.0), "The observer has not published a snapshot for -60 s."),
        (WatchFacts(0.4, 1.0, 2.0, "answered 503"), "Messages are not delivered: answered 503"),
    ],
)
def test_what_does_not_work_is_said(facts, said):
    assert describe_failure(facts) == said


@pytest.fixture
def working(db, control):
    """Everything works at NOW."""
    AlertWatch.objects.update_or_create(pk=1, defaults={"looked_at": NOW, "delivered_at": NOW})
    control.set(keys.SNAPSHOT, orjson.dumps({"at": NOW.timestamp(), "seq": 1, "nodes": {}}))


def switch(control, posts, path: str = "/ping/5f2c") -> DeadMansSwitch:
    environment = {"WEIR_ALIVE_URL": f"http://127.0.0.1:{posts.port}{path}", "WEIR_ALIVE_SECONDS": "30"}
    return DeadMansSwitch(control, environment)


def test_it_is_called_while_everything_works_and_stops_when_the_observer_is_silent(working, control, posts):
    made = switch(control, posts)
    assert made.step(NOW) and posts.paths == ["/ping/5f2c"]
    assert not made.step(NOW + timedelta(seconds=20)), "the snapshot is 20 s old"
    watch = AlertWatch.objects.get()
    assert len(posts.paths) == 1 and watch.alive_at == NOW and "observer" in watch.alive_error


def test_it_stops_when_no_message_reaches_anybody_and_goes_on_when_one_does(working, control, posts):
    desk = receivers.define("desk", "email", {"addresses": ["a@b.example"]})
    message = outbox.test_message(desk, "operator", NOW)
    for _ in range(2):
        outbox.mark_failed(Message.objects.get(), "answered 503", NOW)
    made = switch(control, posts)
    assert not made.step(NOW) and find_undelivered_error() == "answered 503"
    outbox.mark_delivered(Message.objects.get(pk=message.pk), NOW)
    assert made.step(NOW)


def fails(receiver: Receiver, at: datetime, error: str, times: int = 2, for_good: bool = False) -> None:
    message = outbox.test_message(receiver, "operator", at)
    for _ in range(times):
        outbox.mark_failed(Message.objects.get(pk=message.pk), error, at, for_good)


@pytest.fixture
def receiver_of(db):
    return lambda name: receivers.define(name, "email", {"addresses": [f"{name}@b.example"]})


def test_a_receiver_that_never_works_does_not_hide_that_the_others_stopped(receiver_of):
    broken, desk = receiver_of("broken"), receiver_of("desk")
    fails(broken, NOW, "refused", outbox.MAX_TRIES)
    assert find_undelivered_error() == "refused"
    outbox.mark_delivered(outbox.test_message(desk, "operator", NOW), NOW + timedelta(seconds=30))
    assert find_undelivered_error() == ""
    fails(desk, NOW + timedelta(minutes=5), "no route")
    assert find_undelivered_error() == "no route"


def test_one_failed_try_a_receiver_that_is_off_and_the_test_of_a_schedule_say_nothing(receiver_of):
    off, desk = receiver_of("off"), receiver_of("desk")
    rota = receivers.define("rota", "schedule", {"secret_environment": "WEIR_SECRET_R", "otherwise": "desk"})
    fails(desk, NOW, "no route", times=1)
    fails(off, NOW, "no route")
    fails(rota, NOW, "receives no messages", times=1, for_good=True)
    Receiver.objects.filter(pk=off.pk).update(enabled=False)
    assert find_undelivered_error() == ""


def test_of_two_alerters_one_calls(working, control, posts):
    first, second = switch(control, posts), switch(control, posts)
    assert first.step(NOW) and not second.step(NOW) and len(posts.paths) == 1


def test_an_address_that_refuses_is_noted_without_the_address(working, control, posts):
    posts.answers = [500]
    assert not switch(control, posts, "/ping/hush").step(NOW)
    error = AlertWatch.objects.get().alive_error
    assert error == "WEIR_ALIVE_URL returned HTTP 500."


def test_the_egress_policy_holds_for_it(working, control, posts, settings):
    settings.WEIR_EGRESS_ALLOW = ""
    assert not switch(control, posts).step(NOW) and posts.paths == []
    assert "loopback" in AlertWatch.objects.get().alive_error
