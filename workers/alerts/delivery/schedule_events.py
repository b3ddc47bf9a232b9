"""Events of a calendar before they are expanded.

The module finds the events that can be read and those that belong together. It gives their rules the one form that the
expanding library reads correctly.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, tzinfo
from typing import Any

from workers.alerts.delivery.channels.plain_text import format_one_line

# A rule that gives thousands of shifts a day is no rota.
_TOO_OFTEN = frozenset({"SECONDLY", "MINUTELY", "HOURLY"})
_WITHIN_A_DAY = ("BYSECOND", "BYMINUTE", "BYHOUR")
_TIMES = ("DTSTART", "DTEND", "DURATION", "RECURRENCE-ID")
_RELEVANT = frozenset({*_TIMES, "RRULE", "RDATE", "EXDATE"})
_LAST_SECOND = time(23, 59, 59)


class BrokenEvent(Exception):  # noqa: N818
    """An event that can't be read; the message says why, as the end of a sentence about it."""


def format_event_title(event: Any, number: int) -> str:
    """Return a title by which people find the event in their calendar."""
    summary, uid = (format_one_line(str(event.get(name, "")))[:60] for name in ("SUMMARY", "UID"))
    title = f'Event {number} "{summary}"' if summary else f"Event {number}"
    return f"{title} (UID {uid})" if uid else title


def check(event: Any) -> None:
    """Raise `BrokenEvent` for an event whose times or rules can't be read."""
    for name, why in event.errors:
        if name in _RELEVANT:
            value = event.get(name)
            shown = format_one_line(value.to_ical().decode(errors="replace").replace("\\", ""))[:60] if value else ""
            raise BrokenEvent(f"has {name} {shown}, which can't be read: {format_one_line(str(why))[:100]}.")
        if name is None and _names_relevant(str(why)):
            raise BrokenEvent(f"has a line that can't be read: {format_one_line(str(why))[:120]}.")
    if "DTSTART" not in event:
        raise BrokenEvent("has no DTSTART.")
    for name in _TIMES:
        if isinstance(event.get(name), list):
            raise BrokenEvent(f"has {name} more than once.")
    _check_rules(event)
    _check_length(event)


def _names_relevant(why: str) -> bool:
    """Return whether a line that could not be parsed starts with the name of a relevant property."""
    line = why.partition("'")[2].upper()
    return any(line.startswith(name) for name in _RELEVANT)


def list_recurrence_rules(event: Any) -> list[Any]:
    """Return all RRULEs of an event."""
    rules = event.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _check_rules(event: Any) -> None:
    for rule in list_recurrence_rules(event):
        if not rule.get("FREQ"):
            raise BrokenEvent("has an RRULE without FREQ.")
        often = {str(frequency).upper() for frequency in rule["FREQ"]} & _TOO_OFTEN
        if often or any(name in rule for name in _WITHIN_A_DAY):
            raise BrokenEvent("has a rule that recurs more than once a day; use FREQ=DAILY or longer.")
        if any(interval < 1 for interval in rule.get("INTERVAL", [])):
            raise BrokenEvent("has an RRULE with an INTERVAL below 1.")


def _check_length(event: Any) -> None:
    start = event["DTSTART"].dt
    if not isinstance(start, date):
        raise BrokenEvent("has a DTSTART that is neither a date nor a date-time.")
    if "DTEND" in event:
        end = event["DTEND"].dt
        if not isinstance(end, date):
            raise BrokenEvent("has a DTEND that is neither a date nor a date-time.")
        if _make_comparable(end, start) < _make_comparable(start, end):
            raise BrokenEvent("ends before it starts.")
    elif "DURATION" in event and event["DURATION"].dt.total_seconds() < 0:
        raise BrokenEvent("ends before it starts.")


def _make_comparable(at: date, other: date) -> datetime:
    """Return the time for a comparison with the other one: without zones if one of them has none."""
    if not isinstance(at, datetime):
        return datetime.combine(at, time())
    if at.tzinfo is not None and isinstance(other, datetime) and other.tzinfo is not None:
        return at.astimezone(UTC).replace(tzinfo=None)
    return at.replace(tzinfo=None)


def split_series(members: Sequence[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
    """Return each event with its exceptions, of events of the same UID.

    The highest SEQUENCE replaces the others. Several events with the same UID and SEQUENCE are separate events: merged
    calendars contain them.
    """
    exceptions = [member for member in members if "RECURRENCE-ID" in member[1]]
    events = [member for member in members if "RECURRENCE-ID" not in member[1]]
    newest = max((_sequence(event) for _, event in events), default=-1)
    current = [series_event for series_event in events if _sequence(series_event[1]) == newest]
    return [[series_event, *exceptions] for series_event in current] or [exceptions]


def _sequence(event: Any) -> int:
    value = event.get("SEQUENCE", -1)
    return value if isinstance(value, int) else -1


def normalize_events(events: Sequence[Any], zone: tzinfo | str, has_zone: bool) -> list[Any]:
    """Return copies of the events with each UNTIL and RECURRENCE-ID in the form of the event's start.

    `zone` is the calendar's own. It applies to times without a zone and, if `has_zone`, to times in UTC.
    """
    copies = []
    for event in events:
        copy = event.copy()
        copy.subcomponents = list(event.subcomponents)
        own = zone if isinstance(zone, tzinfo) else UTC
        rules = [
            _set_inclusive_until(rule, event["DTSTART"].dt, own, has_zone) for rule in list_recurrence_rules(event)
        ]
        if rules:
            copy["RRULE"] = rules if len(rules) > 1 else rules[0]
        if "RECURRENCE-ID" in event:
            _align_recurrence_id(copy, events[0]["DTSTART"].dt, own)
        copies.append(copy)
    return copies


def _set_inclusive_until(rule: Any, start: date, own: tzinfo, has_zone: bool) -> Any:
    """Return the rule with UNTIL as the library reads it.

    A date includes its whole day, as in the event's zone.
    """
    until = next(iter(rule.get("UNTIL", [])), None)
    if not isinstance(until, date):
        return rule
    copy = type(rule)(rule)
    copy["UNTIL"] = [_convert_until(until, start, own, has_zone)]
    return copy


def _convert_until(until: date, start: date, own: tzinfo, has_zone: bool) -> date:
    if not isinstance(start, datetime):
        if not isinstance(until, datetime):
            return until
        return (until.astimezone(own) if until.tzinfo else until).date()
    zone = start.tzinfo or own
    if has_zone and start.tzname() == "UTC":
        zone = own
    if not isinstance(until, datetime):
        until = datetime.combine(until, _LAST_SECOND)
    at = until if until.tzinfo else until.replace(tzinfo=zone)
    if start.tzinfo is None and not has_zone:
        return at.astimezone(zone).replace(tzinfo=None)
    return at.astimezone(UTC)


def _align_recurrence_id(event: Any, start: date, own: tzinfo) -> None:
    """Give RECURRENCE-ID the type of the start of the event that it is an exception of."""
    from icalendar import vDDDTypes  # Imported here: see `workers.alerts.delivery.schedule`.

    named = event["RECURRENCE-ID"].dt
    if isinstance(named, datetime) == isinstance(start, datetime):
        return
    if isinstance(named, datetime):
        aligned: date = (named.astimezone(own) if named.tzinfo else named).date()
    else:
        assert isinstance(start, datetime)
        aligned = datetime.combine(named, start.timetz())
    params = event["RECURRENCE-ID"].params
    event["RECURRENCE-ID"] = vDDDTypes(aligned)
    event["RECURRENCE-ID"].params.update({key: value for key, value in params.items() if key != "VALUE"})
