"""Who is on call by a calendar's feed: read over HTTP, kept while it fails, and notified as a receiver."""

from datetime import UTC, datetime, timedelta

import pytest

from common.errors import BadInput
from tests.workers.alerts.checks import START, Looks, lost, rule, the_alert
from workers.alerts.delivery import receivers, schedule
from workers.alerts.delivery.notification import load_notification
from workers.alerts.delivery.schedule_feed import VALID_FOR, FeedReader, list_people_on_call, resolve_recipients
from workers.alerts.lifecycle.models import Delivery, OnCallFeed, Receiver

NOW = datetime.fromtimestamp(START, UTC)  # Monday, 5 January 2026, 03:00
NAME = "WEIR_SECRET_ROTA"


def read_shifts(text, now):
    return schedule.read_rota(text, now).shifts


def calendar(*events: str) -> bytes:
    body = "".join(f"BEGIN:VEVENT\r\nUID:{at}\r\n{each}END:VEVENT\r\n" for at, each in enumerate(events))
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//rota//\r\n{body}END:VCALENDAR\r\n".encode()


def event(summary: str, begin: str, end: str, *more: str) -> str:
    return "".join(f"{line}\r\n" for line in (f"SUMMARY:{summary}", f"DTSTART{begin}", f"DTEND{end}", *more))


WEEKLY = calendar(
    event("anna", ":20251201T080000Z", ":20251208T080000Z", "RRULE:FREQ=WEEKLY;INTERVAL=2"),
    event("ben", ":20251208T080000Z", ":20251215T080000Z", "RRULE:FREQ=WEEKLY;INTERVAL=2"),
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("when", "people"),
    [
        ("2026-01-05T07:59:59", ["anna"]),
        ("2026-01-05T08:00:00", ["ben"]),
        ("2026-01-12T07:59:59", ["ben"]),
        ("2026-01-12T08:00:00", ["anna"]),
    ],
)
def test_a_rota_by_weeks_changes_to_the_second(when, people):
    assert schedule.on_call(read_shifts(WEEKLY, NOW), at(when)) == people


def test_zones_summer_time_exceptions_and_whole_days_are_as_in_the_calendar():
    berlin = ";TZID=Europe/Berlin"
    text = calendar(
        event("carl", f"{berlin}:20260324T200000", f"{berlin}:20260325T080000", "RRULE:FREQ=DAILY",
              f"EXDATE{berlin}:20260330T200000"),
        event("dora", ";VALUE=DATE:20260330", ";VALUE=DATE:20260331"),
    )  # fmt: skip
    found = read_shifts(text, at("2026-03-27T00:00:00"))
    assert schedule.on_call(found, at("2026-03-28T19:30:00")) == ["carl"], "winter: 20:30 there"
    assert schedule.on_call(found, at("2026-03-28T18:30:00")) == [], "19:30 there"
    assert schedule.on_call(found, at("2026-03-29T18:30:00")) == ["carl"], "summer: 20:30 there"
    assert schedule.on_call(found, at("2026-03-30T18:30:00")) == ["dora"], "carl is excepted that night"


@pytest.mark.parametrize(
    ("zone", "changes"),
    [
        ("Europe/Berlin", "2026-07-05T22:00:00"),
        ("America/New_York", "2026-07-06T04:00:00"),
        ("W. Europe Standard Time", "2026-07-05T22:00:00"),
        (None, "2026-07-06T00:00:00"),
    ],
)
def test_whole_days_and_times_without_a_zone_are_of_the_calendars_own_zone(zone, changes):
    text = calendar(
        event("eva", ";VALUE=DATE:20260706", ";VALUE=DATE:20260707"),
        event("finn", ":20260706T000000", ":20260707T000000"),
    )
    if zone is not None:
        text = text.replace(b"VERSION:2.0\r\n", f"VERSION:2.0\r\nX-WR-TIMEZONE:{zone}\r\n".encode())
    found = read_shifts(text, at("2026-07-05T12:00:00"))
    assert schedule.on_call(found, at(changes) - timedelta(seconds=1)) == []
    assert schedule.on_call(found, at(changes)) == ["eva", "finn"]


@pytest.mark.parametrize("zone", ["The Moon", "../../etc/passwd", "/etc/passwd", "Europe", "\U0001f319"])
def test_an_own_zone_that_nobody_knows_matters_only_to_a_time_without_a_zone(zone):
    def of(text):
        return text.replace(b"VERSION:2.0\r\n", f"VERSION:2.0\r\nX-WR-TIMEZONE:{zone}\r\n".encode())

    assert read_shifts(of(WEEKLY), NOW) == read_shifts(WEEKLY, NOW) != []
    with pytest.raises(BadInput, match="names an unknown time zone in X-WR-TIMEZONE"):
        read_shifts(of(calendar(event("eva", ";VALUE=DATE:20260105", ";VALUE=DATE:20260106"))), NOW)


def test_a_time_in_a_zone_that_nobody_knows_is_refused_and_not_taken_for_one_of_another():
    moon = ";TZID=The Moon"
    old = event("dora", f"{moon}:20250101T080000", f"{moon}:20250101T200000")
    known = event("carl", ":20260105T080000Z", ":20260105T200000Z")
    assert read_shifts(calendar(old, known), NOW) == read_shifts(calendar(known), NOW) != []
    rota = event("eva", f"{moon}:20260101T080000", f"{moon}:20260101T200000", "RRULE:FREQ=DAILY")
    with pytest.raises(BadInput, match=r"names an unknown time zone in TZID \(The Moon\)"):
        read_shifts(calendar(rota), NOW)
    days = event("eva", f"{moon};VALUE=DATE:20260105", f"{moon};VALUE=DATE:20260106")
    assert [each.people for each in read_shifts(calendar(days), NOW)] == [("eva",)]


def test_people_are_those_of_the_summary_and_the_attendees():
    text = calendar(
        event("anna, ben", ":20260105T000000Z", ":20260106T000000Z", "ATTENDEE;CN=Carl:mailto:carl@x.example")
    )
    assert schedule.on_call(read_shifts(text, NOW), NOW) == ["carl@x.example", "anna", "ben"]


def test_a_shift_that_was_cancelled_and_who_declined_it_are_not_on_call():
    day = (":20260105T000000Z", ":20260106T000000Z")
    daily = event("anna", ":20260101T000000Z", ":20260101T120000Z", "RRULE:FREQ=DAILY")
    cancelled = event("anna", ":20260105T000000Z", ":20260105T120000Z", "STATUS:CANCELLED",
                      "RECURRENCE-ID:20260105T000000Z")  # fmt: skip
    rota = calendar(daily, cancelled).replace(b"UID:1", b"UID:0")
    found = read_shifts(rota, NOW)
    assert schedule.on_call(found, NOW) == []
    assert schedule.on_call(found, NOW + timedelta(days=1)) == ["anna"], "that day alone"
    assert read_shifts(calendar(event("ben", *day, "STATUS:Cancelled")), NOW) == []
    asked = event("rota", *day, "ATTENDEE;PARTSTAT=DECLINED:mailto:ed@x.example",
                  "ATTENDEE;PARTSTAT=ACCEPTED:mailto:flo@x.example")  # fmt: skip
    assert schedule.on_call(read_shifts(calendar(asked), NOW), NOW) == ["flo@x.example", "rota"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"<html>login</html>", "not a valid iCalendar file"),
        (b"", "not a valid iCalendar file"),
        (calendar(event("a", ":20260105T000000Z", ":20260105T000001Z", "RRULE:FREQ=SECONDLY")), "more than once a day"),
        (
            calendar(event("a", ":20260105T000000Z", ":20260105T000001Z", "RRULE:FREQ=DAILY;BYMIN\r\n UTE=1")),
            "more than once a day",
        ),
        (
            calendar(
                event("a", ":20260105T000000Z", ":20260105T000001Z", "RRULE;X-A=1:FREQ=hourly", "RRULE:FREQ=DAILY")
            ),
            "more than once a day",
        ),
        (calendar(*[event("a", ":20260101T000000Z", ":20260201T000000Z", "RRULE:FREQ=DAILY")] * 400), "5,000 shifts"),
        (calendar(*[event("a", ":20200105T000000Z", ":20200106T000000Z")] * 501), "more than 500 events"),
        (
            b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART:never\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
            "has no readable event: Event 1 has DTSTART never",
        ),
    ],
)
def test_what_is_no_rota_is_refused_with_what_it_must_be(text, why):
    with pytest.raises(BadInput, match=why):
        read_shifts(text, NOW)


def test_a_name_of_the_calendar_holds_no_line_breaks_or_other_control_characters():
    text = calendar(event("an\x1b[31mna\\nben\u202e", ":20260105T000000Z", ":20260106T000000Z"))
    assert schedule.on_call(read_shifts(text, NOW), NOW) == ["an [31mna ben"]


@pytest.fixture
def feed(posts):
    posts.body = WEEKLY
    return posts


@pytest.fixture
def rota(db, feed):
    for name in ("anna", "ben"):
        receivers.define(name, "email", {"addresses": [f"{name}@x.example"]})
    receivers.define("desk", "email", {"addresses": ["desk@x.example"]})
    return receivers.define("rota", "schedule", {"secret_environment": NAME, "otherwise": "desk"})


def reader(feed, read=schedule.read_rota) -> FeedReader:
    """In this process; `test_a_calendar_is_read_by_a_process_of_its_own` takes the real one."""
    return FeedReader({NAME: f"http://127.0.0.1:{feed.port}/basic.ics"}, read)


def enabled() -> dict[str, Receiver]:
    return {each.name: each for each in Receiver.objects.filter(enabled=True)}


def test_whoever_is_on_call_is_notified_and_the_alert_says_so(rota, feed):
    assert reader(feed).step(NOW) == 1 and feed.paths == ["/basic.ics"]
    rule(escalation=[{"after_minutes": 0, "receivers": ["rota"]}])
    looks = Looks()
    looks.snapshot = lost()
    looks.look()
    assert [each.receiver.name for each in Delivery.objects.all()] == ["anna"]
    notices = {each.receiver: each.words for each in load_notification(the_alert()).notices}
    assert "to the user on call" in notices["rota"] and "queued" in notices["anna"]


def test_a_feed_that_fails_keeps_what_was_read_and_says_so_and_then_the_other_receiver_is_notified(rota, feed):
    read = reader(feed)
    read.step(NOW)
    assert read.step(NOW + timedelta(seconds=60)) == 0 and len(feed.paths) == 1, "every five minutes"
    feed.answers = [503]
    assert read.step(NOW + timedelta(seconds=301)) == 0
    kept = OnCallFeed.objects.get()
    assert kept.error == f"{NAME} returned HTTP 503." and kept.read_at == NOW
    assert list_people_on_call(kept, NOW + timedelta(hours=1)) == ["anna"]
    late = NOW + VALID_FOR + timedelta(seconds=1)
    assert list_people_on_call(kept, late) == []
    assert [each.name for each in resolve_recipients(rota, enabled(), late)] == ["desk"]


def with_another_calendar() -> Receiver:
    return receivers.define("rota", "schedule", {"secret_environment": f"{NAME}_2", "otherwise": "desk"})


def test_a_schedule_that_names_another_calendar_calls_nobody_by_the_one_before(rota, feed):
    reader(feed).step(NOW)
    assert [each.name for each in resolve_recipients(rota, enabled(), NOW)] == ["anna"]
    receivers.define("rota", "schedule", rota.settings, tells_resolved=False)
    assert [each.name for each in resolve_recipients(rota, enabled(), NOW)] == ["anna"], "its calendar is the same"
    changed = with_another_calendar()
    assert [each.name for each in resolve_recipients(changed, enabled(), NOW)] == ["desk"]
    assert reader(feed).step(NOW + timedelta(seconds=15)) == 0, "at once, and not after five minutes"
    assert "is not set" in OnCallFeed.objects.get().error
    assert [each.name for each in resolve_recipients(changed, enabled(), NOW)] == ["desk"]


def test_what_was_being_read_while_a_schedule_got_another_calendar_is_not_kept(rota, feed):
    def slowly(text, now):
        with_another_calendar()
        return schedule.read_rota(text, now)

    reader(feed, slowly).step(NOW)
    assert [each.name for each in resolve_recipients(rota, enabled(), NOW)] == ["desk"]


def test_a_calendar_is_read_by_a_process_of_its_own(rota, feed):
    feed.body = b"\xef\xbb\xbf" + WEEKLY
    read = FeedReader({NAME: f"http://127.0.0.1:{feed.port}/basic.ics"})
    assert read.step(NOW) == 1, OnCallFeed.objects.get().error
    kept = OnCallFeed.objects.get()
    assert kept.shifts == [each.document() for each in read_shifts(WEEKLY, NOW)]
    with pytest.raises(BadInput, match="not a valid iCalendar file"):
        schedule.read_bounded_rota(b"<html>login</html>", NOW)


# It never is: each event makes the library look for the 30th of February until the year 9999.
COSTLY = calendar(
    *[event("a", ":20200101T000000Z", ":20200101T010000Z", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30")] * 20
)


def test_a_feed_whose_rules_take_too_long_is_ended_and_what_was_read_before_is_kept(rota, feed, monkeypatch):
    reader(feed).step(NOW)
    monkeypatch.setattr(schedule, "PROCESS_SECONDS", 2.0)
    feed.body = COSTLY
    assert reader(feed, schedule.read_bounded_rota).step(NOW + timedelta(hours=1)) == 0
    kept = OnCallFeed.objects.get()
    assert kept.error.startswith("calendar can't be read") and "did not finish within 2 s" in kept.error
    assert kept.read_at == NOW and list_people_on_call(kept, NOW + timedelta(hours=1)) == ["anna"]


def test_an_unreadable_event_is_named_until_it_is_fixed(rota, feed):
    feed.body = calendar(
        event("anna", ":20260105T000000Z", ":20260106T000000Z"), event("old", ":20260105T000000Z", ":20260104T000000Z")
    )
    reader(feed).step(NOW)
    assert [each.name for each in resolve_recipients(rota, enabled(), NOW)] == ["anna"]
    assert OnCallFeed.objects.get().broken == ['Event 2 "old" (UID 1) ends before it starts.']
    feed.body = WEEKLY
    reader(feed).step(NOW + timedelta(hours=1))
    assert OnCallFeed.objects.get().broken == []


def test_who_is_no_receiver_leaves_it_to_the_other_one(rota, feed):
    Receiver.objects.filter(name="anna").update(enabled=False)
    reader(feed).step(NOW)
    assert [each.name for each in resolve_recipients(rota, enabled(), NOW)] == ["desk"]
    assert [each.name for each in resolve_recipients(rota, enabled(), NOW + timedelta(days=1))] == ["ben"]


def test_a_feed_that_is_too_long_or_leads_where_it_may_not_is_refused(rota, feed, settings):
    feed.body = b"X" * 2_000_001
    assert reader(feed).step(NOW) == 0
    assert "more than 2,000,000 bytes" in OnCallFeed.objects.get().error
    settings.WEIR_EGRESS_ALLOW = ""
    assert reader(feed).step(NOW + timedelta(hours=1)) == 0
    assert "loopback" in OnCallFeed.objects.get().error


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("rota", {"secret_environment": NAME}, "otherwise"),
        ("rota", {"secret_environment": NAME, "otherwise": "nobody"}, "otherwise"),
        ("rota", {"secret_environment": NAME, "otherwise": "rota"}, "otherwise"),
        ("anna", {"secret_environment": NAME, "otherwise": "anna"}, "otherwise"),
        ("rota", {"secret_environment": "HOME", "otherwise": "desk"}, "secret_environment"),
    ],
)
def test_a_schedule_names_its_feed_and_who_else_is_notified_otherwise(rota, name, given, field):
    with pytest.raises(BadInput) as caught:
        receivers.define(name, "schedule", given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("channel", "given", "enabled", "field"),
    [
        ("email", {"addresses": ["desk@x.example"]}, False, "enabled"),
        ("schedule", {"secret_environment": NAME, "otherwise": "anna"}, True, "channel"),
    ],
)
def test_a_receiver_that_a_schedule_falls_back_on_stays_switched_on_and_no_schedule(
    rota, channel, given, enabled, field
):
    with pytest.raises(BadInput, match="the fallback of rota") as caught:
        receivers.define("desk", channel, given, enabled=enabled)
    assert caught.value.field == field
    receivers.define("rota", "schedule", rota.settings, enabled=False)
    receivers.define("desk", channel, given, enabled=enabled)
    with pytest.raises(BadInput) as caught:
        receivers.define("rota", "schedule", rota.settings)
    assert caught.value.field == "otherwise"


def test_where_nobody_was_on_call_and_the_other_receiver_was_off_the_alert_says_so(rota):
    Receiver.objects.filter(name="desk").update(enabled=False)
    rule(escalation=[{"after_minutes": 0, "receivers": ["rota"]}])
    looks = Looks()
    looks.snapshot = lost()
    looks.look()
    assert not Delivery.objects.exists()
    assert load_notification(the_alert()).reasons == [
        "rota: When the step was due, no user was on call, and the fallback receiver was disabled."
    ]
