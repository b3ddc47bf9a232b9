"""Who is on call, by a calendar: an iCalendar text becomes shifts, and a shift names people.

Pure. A shift is an event of the calendar, recurring ones expanded by their rules, exceptions and time zones;
one that was cancelled is none. It names the people of its summary ("anna" or "anna, ben") and the e-mail
addresses of its attendees, but for those who declined. A time without a zone, and the midnight at which an
event of whole days begins and ends, are of the calendar's own zone (X-WR-TIMEZONE, by its IANA or its Windows
name), or UTC where it has none. One that nobody knows matters only where such a time is; so does the zone of
a time (TZID) that nobody knows: read as of another zone, it would call the wrong people.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from queues.errors import BadInput
from workers.alerts.delivery.channels.plain_text import one_line

BEHIND, AHEAD = timedelta(days=1), timedelta(days=14)  # so far shifts are known around now
MOST_EVENTS, MOST_SHIFTS, MOST_PEOPLE = 500, 5_000, 10
LONGEST_NAME = 120
# A rule that gives thousands of shifts a day is no rota.
_TOO_OFTEN = frozenset({"SECONDLY", "MINUTELY", "HOURLY"})
_UNKNOWN_ZONE = "X-WEIR-UNKNOWN-ZONE"  # what an event of the calendar has from then on
_WITHIN_A_DAY = ("BYSECOND", "BYMINUTE", "BYHOUR")


@dataclass(frozen=True)
class Shift:
    """From `since` until before `until` these people are on call: names, or e-mail addresses."""

    since: datetime
    until: datetime
    people: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "people": list(self.people),
        }


def shift_of(document: Mapping[str, Any]) -> Shift:
    """As it was kept."""
    since, until = (datetime.fromisoformat(document[name]) for name in ("since", "until"))
    return Shift(since, until, tuple(document["people"]))


def shifts(text: bytes, now: datetime) -> list[Shift]:
    """The shifts of a calendar around now, in order. Raises BadInput saying what the calendar must be."""
    import icalendar  # here: half a second that only who reads a feed should pay
    import recurring_ical_events

    try:
        calendar = icalendar.Calendar.from_ical(text)
        components = calendar.walk()
        if sum(each.name == "VEVENT" for each in components) > MOST_EVENTS:
            raise BadInput("calendar", f"has more than {MOST_EVENTS} events.")
        if any(map(_recurs_within_a_day, components)):
            raise BadInput("calendar", "has a rule that recurs within a day; a shift recurs daily at most.")
        zone = _own_zone(calendar)
        _mark_unknown_zones(components)
        events = recurring_ical_events.of(calendar).between(now - BEHIND, now + AHEAD)
        if len(events) > MOST_SHIFTS:
            raise BadInput("calendar", f"has more than {MOST_SHIFTS:,} shifts within two weeks.")
        found = [_shift(event, zone) for event in events if not _is(event.get("STATUS"), "CANCELLED")]
    except BadInput:
        raise
    except Exception as error:  # whatever is wrong with what comes from outside
        raise BadInput(
            "calendar", f"is no iCalendar that can be read: {one_line(str(error))[:120]}"
        ) from None
    return sorted((each for each in found if each.people), key=lambda each: (each.since, each.until))


def _recurs_within_a_day(component: Any) -> bool:
    rules = component.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        often = {str(each).upper() for each in rule.get("FREQ", [])} & _TOO_OFTEN
        if often or any(name in rule for name in _WITHIN_A_DAY):
            return True
    return False


def on_call(known: Iterable[Shift], now: datetime) -> list[str]:
    """Everybody whose shift is now, each once."""
    people = [name for each in known if each.since <= now < each.until for name in each.people]
    return list(dict.fromkeys(people))


def next_change(known: Sequence[Shift], now: datetime) -> datetime | None:
    """When the next shift begins or ends, as far as known."""
    return min((at for each in known for at in (each.since, each.until) if at > now), default=None)


def _own_zone(calendar: Any) -> tzinfo | str:
    """The zone, by its IANA name in the calendar from now on; or where one stands that nobody knows, which is
    taken out: the library that expands events reads it too.
    """
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON  # here: see `shifts`

    if (name := str(calendar.pop("X-WR-TIMEZONE", "")).strip()) == "":
        return UTC
    try:
        zone = ZoneInfo(WINDOWS_TO_OLSON.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"X-WR-TIMEZONE ({one_line(name)[:40]})"
    calendar["X-WR-TIMEZONE"] = zone.key
    return zone


def _mark_unknown_zones(components: Iterable[Any]) -> None:
    """A time in a zone that nobody knows is read as one without a zone, and what a rule makes of an event
    does not have it any more: so the event itself says it.
    """
    for event in components:
        for time_of_event in filter(None, map(event.get, ("DTSTART", "DTEND"))):
            at, name = time_of_event.dt, time_of_event.params.get("TZID")
            if name and isinstance(at, datetime) and at.tzinfo is None:
                event[_UNKNOWN_ZONE] = f"TZID ({one_line(str(name))[:40]})"


def _shift(event: Any, own_zone: tzinfo | str) -> Shift:
    zone = str(event[_UNKNOWN_ZONE]) if _UNKNOWN_ZONE in event else own_zone
    begin = _instant(event["DTSTART"].dt, zone)
    end = _instant(event["DTEND"].dt, zone) if "DTEND" in event else begin + _length(event)
    attendees = event.get("ATTENDEE", [])
    people = [
        str(each)[len("mailto:") :]
        for each in (attendees if isinstance(attendees, list) else [attendees])
        if str(each).lower().startswith("mailto:") and not _is(each.params.get("PARTSTAT"), "DECLINED")
    ]
    people += re.split(r"\s*[,;&]\s*", str(event.get("SUMMARY", "")).strip())
    named = dict.fromkeys(filter(None, (one_line(name)[:LONGEST_NAME] for name in people)))
    return Shift(begin, end, tuple(named)[:MOST_PEOPLE])


def _is(value: Any, word: str) -> bool:
    return str(value).strip().upper() == word


def _length(event: Any) -> timedelta:
    """Of an event without an end: its duration, else the whole day of a date, else nothing."""
    if "DURATION" in event:
        length: timedelta = event["DURATION"].dt
        return length
    return timedelta() if isinstance(event["DTSTART"].dt, datetime) else timedelta(days=1)


def _instant(at: date | datetime, zone: tzinfo | str) -> datetime:
    if not isinstance(at, datetime):
        at = datetime.combine(at, time())
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    if isinstance(zone, str):
        raise BadInput("calendar", f"names no known time zone in {zone}; write one as Europe/Berlin.")
    return at.replace(tzinfo=zone).astimezone(UTC)
