"""Windows are imported from calendars, and fed to them."""

from datetime import UTC, date, datetime

import icalendar
import pytest
import recurring_ical_events

from common.errors import BadInput
from tests.workers.windows.samples import plan_window
from workers.windows import calendar_feed, definitions, occurrences
from workers.windows.calendar_import import CalendarWindow, read_bounded_content, read_content
from workers.windows.models import PlannedWindow

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EVENT = """BEGIN:VEVENT
UID:a@x.example
DTSTART;TZID=Europe/Berlin:20260322T020000
DTEND;TZID=Europe/Berlin:20260322T040000
RRULE:FREQ=WEEKLY;BYDAY=SU;UNTIL=20260426T235959Z
EXDATE;TZID=Europe/Berlin:20260412T020000
SUMMARY:Security patches
END:VEVENT"""
MOVED = """BEGIN:VEVENT
UID:a@x.example
RECURRENCE-ID;TZID=Europe/Berlin:20260405T020000
DTSTART;TZID=Europe/Berlin:20260406T030000
DTEND;TZID=Europe/Berlin:20260406T050000
SUMMARY:Security patches after Easter
END:VEVENT"""


def calendar(*events: str) -> bytes:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//x//x//EN", *events, "END:VCALENDAR", ""]
    return "\r\n".join("\n".join(lines).split("\n")).encode()


def test_an_event_becomes_a_window_with_its_rule_and_exceptions():
    content = read_content(calendar(EVENT))
    assert content.windows == [
        CalendarWindow(
            uid="a@x.example",
            name="Security patches",
            start="2026-03-22T02:00:00",
            time_zone="Europe/Berlin",
            minutes=120,
            rrule="FREQ=WEEKLY;UNTIL=20260426T235959Z;BYDAY=SU",
            exceptions=["2026-04-12T02:00:00"],
        )
    ]


def test_a_moved_occurrence_becomes_a_window_of_its_own():
    whole, moved = read_content(calendar(EVENT, MOVED)).windows
    assert whole.exceptions == ["2026-04-05T02:00:00", "2026-04-12T02:00:00"]
    assert (moved.start, moved.rrule, moved.name) == ("2026-04-06T03:00:00", "", "Security patches after Easter")


def test_one_broken_event_never_hides_the_rest():
    broken = EVENT.replace("UID:a", "UID:b").replace("DTSTART;TZID=Europe/Berlin:20260322T020000\n", "")
    unknown = EVENT.replace("UID:a", "UID:c").replace("Europe/Berlin", "Mars/Olympus")
    often = EVENT.replace("UID:a", "UID:d").replace("FREQ=WEEKLY;BYDAY=SU", "FREQ=HOURLY")
    content = read_content(calendar(broken, unknown, EVENT, often))
    assert [window.name for window in content.windows] == ["Security patches"]
    assert [sentence.partition(") ")[2].split(";")[0].split(".")[0] for sentence in content.broken] == [
        "has no DTSTART",
        "has a rule that recurs more than once a day",
        "names an unknown time zone in TZID (Mars/Olympus)",
    ]


def test_an_event_of_whole_days_lasts_as_many_days():
    event = "BEGIN:VEVENT\nUID:f\nDTSTART;VALUE=DATE:20260329\nDTEND;VALUE=DATE:20260331\nSUMMARY:Freeze\nEND:VEVENT"
    window = read_content(calendar("X-WR-TIMEZONE:Europe/Berlin", event)).windows[0]
    assert (window.start, window.time_zone, window.minutes) == ("2026-03-29T00:00:00", "Europe/Berlin", 2 * 24 * 60)


def test_canceled_events_are_left_out():
    canceled = EVENT.replace("SUMMARY", "STATUS:CANCELLED\nSUMMARY")
    assert read_content(calendar(canceled)).windows == []


def test_a_file_that_is_no_calendar_is_rejected_in_a_bounded_process():
    with pytest.raises(BadInput, match="iCalendar") as refused:
        read_bounded_content(b"<html>login</html>")
    assert refused.value.field == "calendar"


def test_a_calendar_is_read_in_a_bounded_process():
    assert [window.name for window in read_bounded_content(calendar(EVENT)).windows] == ["Security patches"]


@pytest.mark.django_db
def test_the_feed_has_the_occurrences_that_weir_has():
    window = plan_window(NOW, start="2026-03-01T02:00", rrule="FREQ=WEEKLY;BYDAY=SU;COUNT=8")
    once = plan_window(NOW, name="Upgrade", start="2026-04-01T22:00", rrule="", time_zone="America/New_York")
    first, second = occurrences.list_next(window, NOW, 2)
    definitions.end_occurrence(window, first, NOW)
    definitions.extend_occurrence(window, second, second.ends_at.replace(hour=5))
    feed = icalendar.Calendar.from_ical(calendar_feed.build_feed([window, once], NOW))
    fed = recurring_ical_events.of(feed).between(NOW, datetime(2026, 6, 1, tzinfo=UTC))
    found = sorted((event["DTSTART"].dt.astimezone(UTC), event.end.astimezone(UTC)) for event in fed)
    ours = [row for each in PlannedWindow.objects.all() for row in occurrences.list_next(each, NOW, 20)]
    # The library adds hours in local time, which differs from elapsed time on the day of a clock change.
    kept = {start: end for start, end in found if start.date() != date(2026, 3, 29)}
    assert [start for start, _ in found] == sorted(row.starts_at for row in ours)
    assert kept.items() <= {(row.starts_at, row.ends_at) for row in ours} and len(kept) == 7
    assert {str(event["SUMMARY"]) for event in fed} == {"Maintenance: Patches", "Maintenance: Upgrade"}


@pytest.mark.django_db
def test_what_is_imported_and_fed_again_stays_the_same():
    window = read_content(calendar(EVENT)).windows[0]
    fields = {"name": window.name, "start": window.start, "rrule": window.rrule, "minutes": window.minutes}
    made = plan_window(NOW, **fields, time_zone=window.time_zone)
    again = read_content(calendar_feed.build_feed([made], NOW)).windows[0]
    assert (again.start, again.time_zone, again.minutes) == (window.start, window.time_zone, window.minutes)
    assert made.rule == "FREQ=WEEKLY;UNTIL=20260427T015959;BYDAY=SU"
    assert again.rrule == window.rrule
