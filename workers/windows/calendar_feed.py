"""All planned windows as an iCalendar feed, which calendar programs subscribe to."""

from collections.abc import Collection
from datetime import UTC, date, datetime

from workers.windows import occurrences
from workers.windows.models import PlannedWindow
from workers.windows.scope import format_scope

KNOWN_YEARS = 5  # of changes of the clocks after now
CONTENT_TYPE = "text/calendar; charset=utf-8"
PRODUCT = "-//Weir//Planned windows//EN"


def build_current_feed(now: datetime) -> bytes:
    """Return the windows that have an occurrence now or later."""
    return build_feed(list(occurrences.list_current_windows(now)), now)


def build_feed(windows: Collection[PlannedWindow], now: datetime) -> bytes:
    """Return the windows as a calendar with their time zones, recurrence rules, and exceptions."""
    import icalendar  # Imported here: it takes half a second.

    calendar = icalendar.Calendar()
    calendar.add("prodid", PRODUCT)
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "Weir planned windows")
    for window in windows:
        recurrence = occurrences.get_recurrence(window)
        event = icalendar.Event()
        event.add("uid", f"planned-window-{window.pk}@weir")
        event.add("dtstamp", window.created_at.astimezone(UTC))
        event.add("summary", f"{window.get_kind_display()}: {window.name}")
        event.add("description", f"{window.reason}\nScope: {format_scope(window.scope)}")
        event.add("categories", [str(window.get_kind_display())])
        event.add("dtstart", recurrence.start.replace(tzinfo=recurrence.zone))
        event.add("duration", window.duration)
        if window.rule:
            rule = icalendar.vRecur.from_ical(window.rule)
            if "UNTIL" in rule:  # in UTC, as RFC 5545 requires for a start with a time zone
                rule["UNTIL"] = [recurrence.convert_to_instant(until) for until in rule["UNTIL"]]
            event.add("rrule", rule)
        for local_start, end in window.exceptions.items():
            start = datetime.fromisoformat(local_start).replace(tzinfo=recurrence.zone)
            if end is None:
                event.add("exdate", start)
                continue
            moved = icalendar.Event()
            for name in ("uid", "dtstamp", "summary", "description", "categories"):
                moved[name] = event[name]
            moved.add("recurrence-id", start)
            moved.add("dtstart", start)
            moved.add("duration", datetime.fromisoformat(end) - start.astimezone(UTC))
            calendar.add_component(moved)
        calendar.add_component(event)
    first = min((occurrences.get_recurrence(window).start.year for window in windows), default=now.year)
    calendar.add_missing_timezones(date(first, 1, 1), date(now.year + KNOWN_YEARS, 1, 1))
    return bytes(calendar.to_ical())
