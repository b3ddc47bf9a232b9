"""The weekly report: composed of what is kept, sent once a week to who asks for it."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadInput
from tests.workers.alerts.receiving import mail_server
from tests.workers.reports.weeks import MONDAY, eventful_week
from tests.workers.snapshots import snapshot_of
from workers import reports
from workers.alerts.delivery import dispatcher, receivers
from workers.alerts.lifecycle.models import Message, Receiver
from workers.models import LedgerEntry, Loop, Override
from workers.objectives.book import ObjectiveBook
from workers.objectives.models import Objective, ObjectiveMinute
from workers.reports import LENGTH, build_week_report


@given(
    now=st.integers(0, 2 * 365 * 86_400).map(lambda seconds: MONDAY + timedelta(seconds=seconds)),
    weekday=st.integers(1, 7),
    hour=st.integers(0, 23),
)
def test_the_time_of_a_report_is_the_last_one_of_its_hour_and_weekday(now, weekday, hour):
    due = reports.compute_due_time(now, weekday, hour)
    assert now - LENGTH < due <= now
    assert (due.isoweekday(), due.hour, due.minute, due.second) == (weekday, hour, 0, 0)


@pytest.fixture
def happened(db):
    eventful_week(User.objects.create_user("operator"))


def test_a_report_says_what_was_kept_what_happened_who_overrode_what_and_what_is_proposed(happened):
    found = build_week_report(MONDAY)
    (promise,) = found.promises
    assert promise.good_share == pytest.approx(0.98) and promise.missed
    assert promise.burnt == pytest.approx(2 / (0.01 * 100 * 28 * 1_440)), "of four weeks like this minute"
    said = reports.render_report(found)
    for part in (
        "- orders: MISSED, 98.000 % good, target 99.000 %; 0 % of the error budget used.",
        "Node n1 is lost (critical), 10 min, not acknowledged.",
        "upper_limit of",
        "the sale begins at nine",
        "Plan: Drain n2 (proposed)",
        "/reports/?until=2026-01-05T07:00:00Z",
    ):
        assert part in said, part
    assert "None." in reports.render_report(build_week_report(MONDAY - LENGTH)), "the week before was calm"


def counted(days: int, bad_day: int, window_days: int) -> None:
    """An objective counted for so many days up to MONDAY, an hour each, all of it bad on one of them."""
    wait = {"kind": "queue", "condition": "wait_seconds <= 1", "target": 0.9, "window_days": window_days}
    made, last = Objective.objects.create(name="o", **wait), int(MONDAY.timestamp() // 60)
    ObjectiveMinute.objects.bulk_create(
        ObjectiveMinute(objective=made, minute=last - 1_440 * day + at, bad=60 * (day == bad_day), total=60)
        for day in range(1, days + 1)
        for at in range(0, 60, 6)
    )


@pytest.mark.django_db
def test_a_week_of_which_not_all_is_kept_says_from_when_it_is_known():
    counted(days=20, bad_day=14, window_days=10)
    book = ObjectiveBook()
    book.step(snapshot_of({"at": MONDAY.timestamp() // 3_600 * 3_600, "queues": {}}))
    book.keep()
    assert build_week_report(MONDAY).promises[0].known_from is None
    (promise,) = build_week_report(MONDAY - LENGTH).promises
    assert promise.known_from == MONDAY - timedelta(days=10, minutes=-6)
    assert "Data only since Fri 2025-12-26 07:06." in reports.render_report(build_week_report(MONDAY - LENGTH))
    (older,) = build_week_report(MONDAY - 2 * LENGTH).promises
    assert older.good_share is None and older.known_from == promise.known_from


@pytest.mark.django_db
def test_of_a_week_in_which_more_was_lost_than_was_counted_as_offered_nothing_was_kept():
    wait = {"kind": "queue", "condition": "wait_seconds <= 1", "target": 0.9}
    made, minute = Objective.objects.create(name="o", **wait), int(MONDAY.timestamp() // 60) - 9
    ObjectiveMinute.objects.create(objective=made, minute=minute, bad=3_000, total=1_000)
    assert build_week_report(MONDAY).promises[0].good_share == 0.0


def test_it_is_sent_once_a_week_to_who_asks_for_it(happened, settings):
    with mail_server() as mails:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", mails.port
        receivers.define("boss", "email", {"addresses": ["boss@x.example"]}, gets_reports=True)
        Receiver.objects.update(created_at=MONDAY - timedelta(days=30))
        assert reports.send_due(MONDAY - timedelta(seconds=1)) == 0, "the one before is a week old"
        assert reports.send_due(MONDAY) == 1 and reports.send_due(MONDAY + timedelta(minutes=1)) == 0
        dispatcher.deliver(lambda: MONDAY + timedelta(minutes=1), lambda: True)
        (mail,) = [each for each in mails.mails if each["To"] == "boss@x.example"]
        assert "Weir weekly report, 2025-12-29 to 2026-01-05: " in mail["Subject"]
        assert "the sale begins at nine" in mail.get_payload()
    assert Message.objects.filter(content__kind="report").count() == 1


def test_a_clock_that_was_away_for_longer_than_a_day_sends_nothing_late(happened):
    receivers.define("boss", "email", {"addresses": ["boss@x.example"]}, gets_reports=True)
    Receiver.objects.update(created_at=MONDAY - timedelta(days=30))
    assert reports.send_due(MONDAY + timedelta(hours=25)) == 0
    assert reports.send_due(MONDAY + timedelta(hours=23)) == 1


def test_only_who_can_read_it_may_ask_for_it(db):
    with pytest.raises(BadInput, match="gets_reports"):
        receivers.define("am", "alertmanager", {"url": "http://am:9093"}, gets_reports=True)


def test_no_reason_makes_lines_of_its_own_in_a_report(happened):
    Override.objects.update(reason="busy\n\nIncidents\nNone.\nMore: https://elsewhere.example")
    lines = reports.render_report(build_week_report(MONDAY)).splitlines()
    assert lines.count("Incidents") == 1 and not any(line.startswith("More: ") for line in lines)
    assert any("busy Incidents None. More: https://elsewhere.example" in line for line in lines)


def test_what_became_of_a_loops_actions_adds_up(db):
    loop = Loop.objects.create(name="balance", law="balance", target={})
    verdicts = ["effective", "ineffective", "harmful", "no action", "checking", "checking"]
    for verdict in verdicts:
        given = {"mode": "auto", "parameters": {}, "reason": "", "action": {"x": 1}, "verdict": verdict}
        LedgerEntry.objects.create(loop=loop, at=MONDAY - timedelta(hours=1), **given)
    report = build_week_report(MONDAY)
    [row] = report.loops
    assert (row.actions, row.effective + row.ineffective + row.harmful + row.unjudged) == (6, 6)
    assert "6 actions, 1 effective, 1 without effect, 1 harmful, 3 not evaluated." in reports.render_report(report)
