"""Why nobody was notified: a pure function over alert, receivers and deliveries."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.alerts.checks import Looks, lost, plant, rule, the_alert
from workers.alerts.delivery import outbox
from workers.alerts.delivery.notification import AlertFacts, DeliveryFacts, build_notification, load_notification
from workers.alerts.lifecycle.models import Message
from workers.alerts.lifecycle.open_alerts import AlertSituation, describe_situation

AT = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
STEPS = ({"after_minutes": 0, "receivers": ["desk"]}, {"after_minutes": 10, "receivers": ["chief"]})
BOTH = {"desk": "email", "chief": "apprise"}


def facts(**more) -> AlertFacts:
    return AlertFacts(
        **{
            "rule": "node-lost",
            "fired_at": AT,
            "now": AT + timedelta(minutes=30),
            "steps": STEPS,
            "next_step": 1,
            "counted_from": AT,
            **more,
        }
    )


def owed(message: str = "", receiver: str = "desk", state: str = "bundled", **more) -> DeliveryFacts:
    return DeliveryFacts(receiver, more.pop("kind", "firing"), state, AT, message, **more)


@pytest.mark.django_db
def test_an_alert_whose_steps_are_over_names_whom_it_reached_and_not_whom_it_named():
    rule()
    looks = Looks()
    looks.snapshot = lost()
    looks.look()
    looks.pass_seconds(60)
    assert describe_situation(the_alert()).words == "Not acknowledged. No receiver has been notified yet."
    (message,) = outbox.bundle(looks.at)
    outbox.mark_delivered(message, looks.at)
    assert describe_situation(the_alert()).words == "Not acknowledged; all escalation steps are done. Notified: desk."


def test_a_situation_as_a_sentence_ends_with_the_instant():
    found = AlertSituation("Acknowledged by ada; fires again in", AT)
    assert found.format_sentence() == "Acknowledged by ada; fires again at 2026-01-05 03:00:00 UTC."
    assert AlertSituation("Notifies nobody.").format_sentence() == "Notifies nobody."


def said(found) -> str:
    return " ".join(found.reasons)


def test_the_end_that_is_named_is_the_one_after_its_last_beginning():
    rows = [
        owed("sent", kind=kind, sent_at=AT + timedelta(seconds=seconds), tries=1)
        for kind, seconds in (("firing", 4), ("resolved", 60), ("firing", 90), ("resolved", 120))
    ]
    ended, back, ended_again = (build_notification(facts(), BOTH, {}, rows[:count]).notices[0] for count in (2, 3, 4))
    assert ended.words.endswith("Notified of the resolution at 03:01:00 UTC.")
    assert back.words == "Notified 2 times, first at 03:00:04 UTC."
    assert ended_again.words.endswith("Notified of the resolution at 03:02:00 UTC.")


def test_who_was_notified_and_who_is_next():
    sent = owed("sent", sent_at=AT + timedelta(seconds=4), tries=1)
    found = build_notification(facts(), BOTH, {}, [sent])
    assert not found.nobody
    assert [(each.receiver, each.state) for each in found.notices] == [
        ("desk", "notified"), ("chief", "not yet"),
    ]  # fmt: skip
    assert found.notices[0].words == "Notified at 03:00:04 UTC."
    assert found.notices[1].at == AT + timedelta(minutes=10)


@pytest.mark.parametrize(
    ("suppression", "words"),
    [
        ("silenced", "Silenced by anna until 04:00:00 UTC: a drill"),
        ("snoozed", "Snoozed by anna until 04:00:00 UTC: a drill"),
        ("acknowledged", "Acknowledged by anna until 04:00:00 UTC, before any receiver was notified: a drill"),
        ("explained", "Explained by another alert: a drill"),
        ("paused", "Maintenance: a drill"),
    ],
)
def test_what_suppresses_it_is_said_with_who_and_until_when(suppression, words):
    alert = facts(suppression=suppression, who="anna", until=AT + timedelta(hours=1), said="a drill", next_step=0)
    found = build_notification(alert, BOTH, {}, [])
    assert found.reasons == [words] and {each.state for each in found.notices} == {"not yet"}


@pytest.mark.parametrize(
    ("suppression", "words"),
    [
        ("snoozed", "The delay starts when the alert notifies again."),
        (None, "The delay starts when the alerter next evaluates the alert."),
    ],
)
def test_a_step_whose_delay_has_not_begun_says_what_begins_it(suppression, words):
    alert = facts(suppression=suppression, who="anna", counted_from=None, next_step=0)
    assert {each.words for each in build_notification(alert, BOTH, {}, []).notices} == {words}


def test_a_delivery_that_failed_says_its_error_and_when_it_is_tried_again():
    given_up = owed("failed", tries=10, error="answered 503")
    waits = owed("waiting", receiver="chief", tries=2, error="hung", due_at=AT + timedelta(seconds=9))
    found = build_notification(facts(next_step=2), BOTH, {}, [given_up, waits])
    assert found.reasons == [
        "desk: Not delivered, stopped after 10 attempts: answered 503",
        "chief: Not delivered after 2 attempts, next attempt at 03:00:09 UTC: hung",
    ]


def test_receivers_that_are_switched_off_gone_or_the_subject_itself_are_named():
    steps = ({"after_minutes": 0, "receivers": ["desk", "gone", "chief"]},)
    alert = facts(steps=steps, about_receiver="chief")
    found = build_notification(alert, {"chief": "apprise"}, {"desk": "email"}, [])
    assert found.reasons == [
        "desk: The receiver is disabled.",
        "gone: This receiver no longer exists.",
        "chief: The alert is about messages to this receiver.",
    ]


def test_an_alert_that_ended_first_says_so():
    ended = facts(resolved_at=AT + timedelta(seconds=1))
    found = build_notification(ended, BOTH, {}, [owed(state="dropped")])
    assert found.reasons == [
        "desk: The alert was resolved before the message was sent.",
        "chief: The alert was resolved before the step was due (10 min).",
    ]


def test_an_alert_that_came_back_is_not_said_to_have_ended_before_its_message():
    flapping = facts(next_step=0, counted_from=AT + timedelta(minutes=35))
    found = build_notification(flapping, BOTH, {}, [owed(state="dropped")])
    assert found.reasons == ["desk: To be notified at 03:35:00 UTC unless the alert is acknowledged."]
    off = build_notification(facts(), {}, BOTH, [owed(state="dropped")])
    assert off.reasons == ["desk: The receiver is disabled.", "chief: The receiver is disabled."]


def test_who_was_notified_of_the_end_is_not_said_to_know_that_the_alert_came_back():
    again = {"tries": 3, "due_at": AT + timedelta(minutes=31), "error": "No route."}
    rows = [
        owed("sent", sent_at=AT, tries=1),
        owed("sent", kind="resolved", sent_at=AT + timedelta(minutes=1), tries=1),
        owed("waiting", **again),
    ]
    steps = STEPS[:1]
    found = build_notification(facts(steps=steps), BOTH, {}, rows)
    assert found.reasons == [
        "desk: Not delivered after 3 attempts, next attempt at 03:31:00 UTC: No route."
        " Notified of the resolution at 03:01:00 UTC."
    ]
    over = build_notification(facts(steps=steps, resolved_at=AT + timedelta(minutes=2)), BOTH, {}, rows)
    assert over.notices[0].state == "notified"


@pytest.mark.django_db
def test_a_situation_names_nobody_who_was_notified_of_the_end_before_the_alert_came_back():
    rule(keep_seconds=0)
    looks = Looks()
    for snapshot in (lost(), plant()):
        looks.snapshot = snapshot
        looks.pass_seconds(8)
        (message,) = outbox.bundle(looks.at)
        outbox.mark_delivered(message, looks.at)
    looks.snapshot = lost()
    looks.pass_seconds(8)
    assert describe_situation(the_alert()).words.endswith("No receiver has been notified yet.")
    (message,) = outbox.bundle(looks.at)
    outbox.mark_delivered(message, looks.at)
    assert describe_situation(the_alert()).words.endswith("Notified: desk.")


@given(
    suppression=st.sampled_from([None, "silenced", "snoozed", "acknowledged", "explained", "paused"]),
    resolved=st.booleans(),
    next_step=st.integers(0, 2),
    counted=st.booleans(),
    steps=st.sampled_from([(), STEPS[:1], STEPS]),
    on=st.sets(st.sampled_from(["desk", "chief"])),
    states=st.lists(
        st.tuples(
            st.sampled_from(["desk", "chief", "else"]),
            st.sampled_from(["", "waiting", "sent", "failed"]),
            st.sampled_from(["firing", "resolved"]),
        )
    ),
)
def test_there_is_a_reason_exactly_where_nobody_was_notified(
    suppression, resolved, next_step, counted, steps, on, states
):
    alert = facts(
        suppression=suppression,
        resolved_at=AT if resolved else None,
        next_step=next_step,
        counted_from=AT if counted else None,
        steps=steps,
    )
    deliveries = [
        owed(state, receiver, kind=kind, sent_at=AT if state == "sent" else None, due_at=AT)
        for receiver, state, kind in states
    ]
    off = {name: BOTH[name] for name in BOTH if name not in on}
    found = build_notification(alert, {name: BOTH[name] for name in on}, off, deliveries)
    last = {receiver: kind for receiver, state, kind in states if state == "sent"}
    begun = {receiver for receiver, state, kind in states if state == "sent" and kind == "firing"}
    assert found.nobody is not any(resolved or last[each] == "firing" for each in begun)
    assert all(each.endswith(".") or ": " in each for each in found.reasons)
    assert len(found.notices) == len({each.receiver for each in found.notices})


@pytest.mark.django_db
def test_it_follows_what_really_happens_to_an_alert():
    looks = Looks()
    rule(escalation=[{"after_minutes": 0, "receivers": ["desk"]}])
    looks.snapshot = lost()
    looks.look()
    assert "queued" in said(load_notification(the_alert()))
    looks.now += 6
    (message,) = outbox.bundle(looks.at)
    outbox.mark_failed(message, "answered 503", looks.at)
    assert "Not delivered after 1 attempt" in said(load_notification(the_alert()))
    outbox.mark_delivered(Message.objects.get(), looks.at)
    assert not load_notification(the_alert()).nobody
