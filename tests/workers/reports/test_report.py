"""The weekly report: composed of what is kept, sent once a week to who asks for it."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from queues.errors import BadInput
from tests.workers.alerts.receiving import mail_server
from tests.workers.reports.weeks import MONDAY, eventful_week
from workers.alerts.delivery import dispatcher, receivers
from workers.alerts.lifecycle.models import Message, Receiver
from workers.reports import sending, text
from workers.reports.week import LENGTH, week


@given(
    now=st.integers(0, 2 * 365 * 86_400).map(lambda seconds: MONDAY + timedelta(seconds=seconds)),
    weekday=st.integers(1, 7),
    hour=st.integers(0, 23),
)
def test_the_time_of_a_report_is_the_last_one_of_its_hour_and_weekday(now, weekday, hour):
    due = sending.due_at(now, weekday, hour)
    assert now - LENGTH < due <= now
    assert (due.isoweekday(), due.hour, due.minute, due.second) == (weekday, hour, 0, 0)


@pytest.fixture
def happened(db) -> None:
    eventful_week(User.objects.create_user("operator"))


def test_a_report_says_what_was_kept_what_happened_who_overrode_what_and_what_is_proposed(happened):
    found = week(MONDAY)
    (promise,) = found.promises
    assert promise.good_share == pytest.approx(0.98) and promise.missed
    assert promise.burnt == pytest.approx(2 / (0.01 * 100 * 28 * 1_440)), "of four weeks like this minute"
    said = text.text(found)
    for part in (
        "- orders: MISSED, 98.000% of 99.000%; 0% of the error budget.",
        "Node n1 is lost (critical), 10 min, acknowledged by nobody.",
        "upper_limit of",
        "the sale begins at nine",
        "worker_rate/alert/n1: events_per_worker = 4000 (proposed): 12% less cost",
        "/reports/?until=2026-01-05T07:00:00Z",
    ):
        assert part in said, part
    assert "None." in text.text(week(MONDAY - LENGTH)), "the week before was calm"


def test_it_is_sent_once_a_week_to_who_asks_for_it(happened, settings):
    with mail_server() as mails:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mails.port
        receivers.define("boss", "email", {"addresses": ["boss@x.example"]}, gets_reports=True)
        Receiver.objects.update(created_at=MONDAY - timedelta(days=30))
        assert sending.send_due(MONDAY - timedelta(seconds=1)) == 0, "the one before is a week old"
        assert sending.send_due(MONDAY) == 1 and sending.send_due(MONDAY + timedelta(minutes=1)) == 0
        dispatcher.deliver(lambda: MONDAY + timedelta(minutes=1), lambda: True)
        (mail,) = [each for each in mails.mails if each["To"] == "boss@x.example"]
        assert "week up to 2026-01-05" in mail["Subject"]
        assert "the sale begins at nine" in mail.get_payload()
    assert Message.objects.filter(content__kind="report").count() == 1


def test_a_clock_that_was_away_for_longer_than_a_day_sends_nothing_late(happened):
    receivers.define("boss", "email", {"addresses": ["boss@x.example"]}, gets_reports=True)
    Receiver.objects.update(created_at=MONDAY - timedelta(days=30))
    assert sending.send_due(MONDAY + timedelta(hours=25)) == 0
    assert sending.send_due(MONDAY + timedelta(hours=23)) == 1


def test_only_who_can_read_it_may_ask_for_it(db):
    with pytest.raises(BadInput, match="gets_reports"):
        receivers.define("am", "alertmanager", {"url": "http://am:9093"}, gets_reports=True)
