"""Who is on call, by a calendar: an iCalendar text becomes shifts, and a shift names people.

Pure. A shift is an event of the calendar. Recurring events are expanded by their rules, exceptions, and time zones; a
canceled event is no shift. A shift names the people of its summary ("anna" or "anna, ben") and its attendees, by their
e-mail addresses or else their names, except those who declined (`schedule_people`).

A time without a zone, and the midnight at which an all-day event starts and ends, are in the calendar's own zone
(X-WR-TIMEZONE, by its IANA or its Windows name), or UTC if it has none. An unknown calendar zone matters only if there
is such a time. So does an unknown zone of a time (TZID): read in another zone, it would call the wrong people.

An event that can't be read is reported, and the others count (`schedule_events`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from common.errors import BadInput
from workers.alerts.delivery import schedule_events
from workers.alerts.delivery.channels.plain_text import format_one_line
from workers.alerts.delivery.schedule_events import BrokenEvent
from workers.alerts.delivery.schedule_people import list_people

BEHIND, AHEAD = timedelta(days=1), timedelta(days=14)  # Shifts are known this far around now.
MAX_EVENTS, MAX_SHIFTS = 500, 5_000
MAX_SHIFTS_OF_AN_EVENT = 500
MAX_BROKEN_NAMED = 20
_UNKNOWN_ZONE = "X-WEIR-UNKNOWN-ZONE"  # what an event of the calendar has from then on
_OWN_ZONE = "X-WR-TIMEZONE"


@dataclass(frozen=True)
class Shift:
    """A shift: these people (names or e-mail addresses) are on call from `since` until before `until`."""

    since: datetime
    until: datetime
    people: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the shift as it is stored."""
        return {"since": self.since.isoformat(), "until": self.until.isoformat(), "people": list(self.people)}


def shift_of(document: Mapping[str, Any]) -> Shift:
    """Return the shift of a stored document."""
    since, until = (datetime.fromisoformat(document[name]) for name in ("since", "until"))
    return Shift(since, until, tuple(document["people"]))


@dataclass(frozen=True)
class Rota:
    """The shifts of a calendar around now, in order, and a sentence for each event that can't be read."""

    shifts: list[Shift]
    broken: list[str]


def read_calendar_shifts(text: bytes, now: datetime) -> list[Shift]:
    """Return the shifts of a calendar around now, in order. Raises `BadInput` as `read_rota` does."""
    return read_rota(text, now).shifts


def read_rota(text: bytes, now: datetime, bounded: Callable[[], AbstractContextManager[None]] = nullcontext) -> Rota:
    """Read a calendar.

    Raises `BadInput` saying what the calendar must be, and if no event can be read. `bounded` is entered for the events
    of each UID: if it raises `BrokenEvent`, only these events are skipped.
    """
    # Imported here: it takes half a second, which only a process that reads a feed should pay.
    import icalendar

    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = calendar.walk("VEVENT")
        zone = _own_zone(calendar)
    except Exception as error:  # any error of data from outside
        raise BadInput("calendar", f"is not a valid iCalendar file: {format_one_line(str(error))[:120]}") from None
    if len(events) > MAX_EVENTS:
        raise BadInput("calendar", f"has more than {MAX_EVENTS} events.")
    broken: list[str] = []
    series = defaultdict(list)
    for number, event in enumerate(events, 1):
        try:
            schedule_events.check(event)
        except BrokenEvent as error:
            broken.append(f"{schedule_events.format_event_title(event, number)} {error}")
        else:
            series[str(event.get("UID", f"event {number}"))].append((number, event))
    read_shifts: list[Shift] = []
    read = 0
    for members in series.values():
        for together in schedule_events.split_series(members):
            number, event = together[0]
            try:
                with bounded():
                    read_shifts += _list_event_shifts([each for _, each in together], calendar, zone, now)
                read += 1
            except BadInput:
                raise
            except Exception as error:
                why = str(error) if isinstance(error, BrokenEvent) else f"can't be read: {error}"
                broken.append(f"{schedule_events.format_event_title(event, number)} {format_one_line(why)[:200]}")
            if len(read_shifts) > MAX_SHIFTS:
                raise BadInput("calendar", f"has more than {MAX_SHIFTS:,} shifts within two weeks.")
    if broken and not read:
        raise BadInput("calendar", f"has no readable event: {broken[0]}")
    ordered = sorted((fromkey for fromkey in dict.fromkeys(read_shifts) if fromkey.people), key=_in_order)
    return Rota(ordered, broken[:MAX_BROKEN_NAMED])


def _in_order(shift: Shift) -> tuple[datetime, datetime]:
    return shift.since, shift.until


def _list_event_shifts(events: list[Any], calendar: Any, zone: tzinfo | str, now: datetime) -> list[Shift]:
    """Return the shifts around now of one event with its exceptions. Raises `BrokenEvent`."""
    import icalendar  # Imported here: see `read_rota`.
    import recurring_ical_events

    alone = icalendar.Calendar()
    if _OWN_ZONE in calendar:
        alone[_OWN_ZONE] = calendar[_OWN_ZONE]
    _mark_unknown_zones(events)
    for event in schedule_events.normalize_events(events, zone, _OWN_ZONE in calendar):
        alone.add_component(event)
    occurrences = recurring_ical_events.of(alone).between(now - BEHIND, now + AHEAD)
    if len(occurrences) > MAX_SHIFTS_OF_AN_EVENT:
        raise BrokenEvent(f"has more than {MAX_SHIFTS_OF_AN_EVENT} shifts within two weeks.")
    return [_shift(occurrence, zone) for occurrence in occurrences if not _is(occurrence.get("STATUS"), "CANCELLED")]


def on_call(known: Iterable[Shift], now: datetime) -> list[str]:
    """Return everybody whose shift is now, each once."""
    people = [name for shift in known if shift.since <= now < shift.until for name in shift.people]
    return list(dict.fromkeys(people))


def find_next_change(known: Sequence[Shift], now: datetime) -> datetime | None:
    """Return when the next shift starts or ends, as far as known."""
    return min((at for shift in known for at in (shift.since, shift.until) if at > now), default=None)


def _own_zone(calendar: Any) -> tzinfo | str:
    """Return the zone, from now on by its IANA name in the calendar; or the location of an unknown one.

    An unknown one is taken out: the library that expands events reads it, too.
    """
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON  # Imported here: see `shifts`.

    if (name := str(calendar.pop(_OWN_ZONE, "")).strip()) == "":
        return UTC
    try:
        zone = ZoneInfo(WINDOWS_TO_OLSON.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"X-WR-TIMEZONE ({format_one_line(name)[:40]})"
    calendar[_OWN_ZONE] = zone.key
    return zone


def _mark_unknown_zones(components: Iterable[Any]) -> None:
    """Mark events whose zone is unknown.

    A time in an unknown zone is read as one without a zone, and the events that a rule generates don't have the zone
    any more, so the event itself is marked.
    """
    for event in components:
        for time_of_event in filter(None, map(event.get, ("DTSTART", "DTEND"))):
            at, name = time_of_event.dt, time_of_event.params.get("TZID")
            if name and isinstance(at, datetime) and at.tzinfo is None:
                event[_UNKNOWN_ZONE] = f"TZID ({format_one_line(str(name))[:40]})"


def _shift(event: Any, own_zone: tzinfo | str) -> Shift:
    zone = str(event[_UNKNOWN_ZONE]) if _UNKNOWN_ZONE in event else own_zone
    begin = _convert_to_instant(event["DTSTART"].dt, zone)
    end = _convert_to_instant(event["DTEND"].dt, zone) if "DTEND" in event else begin + _compute_length(event)
    return Shift(begin, end, list_people(event))


def _is(value: Any, word: str) -> bool:
    return str(value).strip().upper() == word


def _compute_length(event: Any) -> timedelta:
    """Return the length of an event without an end: its duration, else the whole day of a date, else zero."""
    if "DURATION" in event:
        length: timedelta = event["DURATION"].dt
        return length
    return timedelta() if isinstance(event["DTSTART"].dt, datetime) else timedelta(days=1)


def _convert_to_instant(at: date | datetime, zone: tzinfo | str) -> datetime:
    if not isinstance(at, datetime):
        at = datetime.combine(at, time())
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    if isinstance(zone, str):
        raise BrokenEvent(f"names an unknown time zone in {zone}; use a name such as Europe/Berlin.")
    return at.replace(tzinfo=zone).astimezone(UTC)
