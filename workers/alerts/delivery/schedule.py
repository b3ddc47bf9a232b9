"""Who is on call, by a calendar: an iCalendar text becomes shifts, and a shift names people.

Pure. A shift is an event of the calendar, recurring ones expanded by their rules, exceptions and time zones;
one that was cancelled is none. It names the people of its summary ("anna" or "anna, ben") and its attendees,
by their e-mail addresses or else their names, but for those who declined (`schedule_people`). A time without
a zone, and the midnight at which an event of whole days begins and ends, are of the calendar's own zone
(X-WR-TIMEZONE, by its IANA or its Windows name), or UTC where it has none. One that nobody knows matters only
where such a time is; so does the zone of a time (TZID) that nobody knows: read as of another zone, it would
call the wrong people.

An event that can't be read is named, and the others count (`schedule_events`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from queues.errors import BadInput
from workers.alerts.delivery import schedule_events
from workers.alerts.delivery.channels.plain_text import one_line
from workers.alerts.delivery.schedule_events import BrokenEvent
from workers.alerts.delivery.schedule_people import people_of

BEHIND, AHEAD = timedelta(days=1), timedelta(days=14)  # so far shifts are known around now
MOST_EVENTS, MOST_SHIFTS = 500, 5_000
MAX_SHIFTS_OF_AN_EVENT = 500
MAX_BROKEN_NAMED = 20
_UNKNOWN_ZONE = "X-WEIR-UNKNOWN-ZONE"  # what an event of the calendar has from then on
_OWN_ZONE = "X-WR-TIMEZONE"


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


@dataclass(frozen=True)
class Rota:
    """The shifts of a calendar around now, in order; and a sentence for each event that can't be read."""

    shifts: list[Shift]
    broken: list[str]


def shifts(text: bytes, now: datetime) -> list[Shift]:
    """Return the shifts of a calendar around now, in order. Raises BadInput as `read_rota` does."""
    return read_rota(text, now).shifts


def read_rota(
    text: bytes,
    now: datetime,
    bounded: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Rota:
    """Read a calendar. Raises BadInput saying what the calendar must be, and when no event can be read.

    `bounded` is entered for the events of each UID: what it raises as BrokenEvent ends these alone.
    """
    import icalendar  # here: half a second that only who reads a feed should pay

    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = calendar.walk("VEVENT")
        zone = _own_zone(calendar)
    except Exception as error:  # whatever is wrong with what comes from outside
        raise BadInput(
            "calendar", f"is no iCalendar that can be read: {one_line(str(error))[:120]}"
        ) from None
    if len(events) > MOST_EVENTS:
        raise BadInput("calendar", f"has more than {MOST_EVENTS} events.")
    broken: list[str] = []
    series = defaultdict(list)
    for number, event in enumerate(events, 1):
        try:
            schedule_events.check(event)
        except BrokenEvent as error:
            broken.append(f"{schedule_events.title_of(event, number)} {error}")
        else:
            series[str(event.get("UID", f"event {number}"))].append((number, event))
    found: list[Shift] = []
    read = 0
    for members in series.values():
        for together in schedule_events.split_series(members):
            number, event = together[0]
            try:
                with bounded():
                    found += _shifts_of([each for _, each in together], calendar, zone, now)
                read += 1
            except BadInput:
                raise
            except Exception as error:
                why = str(error) if isinstance(error, BrokenEvent) else f"can't be read: {error}"
                broken.append(f"{schedule_events.title_of(event, number)} {one_line(why)[:200]}")
            if len(found) > MOST_SHIFTS:
                raise BadInput("calendar", f"has more than {MOST_SHIFTS:,} shifts within two weeks.")
    if broken and not read:
        raise BadInput("calendar", f"has no event that can be read: {broken[0]}")
    ordered = sorted((fromkey for fromkey in dict.fromkeys(found) if fromkey.people), key=_in_order)
    return Rota(ordered, broken[:MAX_BROKEN_NAMED])


def _in_order(shift: Shift) -> tuple[datetime, datetime]:
    return shift.since, shift.until


def _shifts_of(events: list[Any], calendar: Any, zone: tzinfo | str, now: datetime) -> list[Shift]:
    """Return the shifts around now of one event with its exceptions. Raises BrokenEvent."""
    import icalendar  # here: see `read_rota`
    import recurring_ical_events

    alone = icalendar.Calendar()
    if _OWN_ZONE in calendar:
        alone[_OWN_ZONE] = calendar[_OWN_ZONE]
    _mark_unknown_zones(events)
    for event in schedule_events.normalized(events, zone, _OWN_ZONE in calendar):
        alone.add_component(event)
    occurrences = recurring_ical_events.of(alone).between(now - BEHIND, now + AHEAD)
    if len(occurrences) > MAX_SHIFTS_OF_AN_EVENT:
        raise BrokenEvent(f"has more than {MAX_SHIFTS_OF_AN_EVENT} shifts within two weeks.")
    return [
        _shift(occurrence, zone)
        for occurrence in occurrences
        if not _is(occurrence.get("STATUS"), "CANCELLED")
    ]


def on_call(known: Iterable[Shift], now: datetime) -> list[str]:
    """Everybody whose shift is now, each once."""
    people = [name for shift in known if shift.since <= now < shift.until for name in shift.people]
    return list(dict.fromkeys(people))


def next_change(known: Sequence[Shift], now: datetime) -> datetime | None:
    """When the next shift begins or ends, as far as known."""
    return min((at for shift in known for at in (shift.since, shift.until) if at > now), default=None)


def _own_zone(calendar: Any) -> tzinfo | str:
    """The zone, by its IANA name in the calendar from now on; or where one stands that nobody knows, which is
    taken out: the library that expands events reads it too.
    """
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON  # here: see `shifts`

    if (name := str(calendar.pop(_OWN_ZONE, "")).strip()) == "":
        return UTC
    try:
        zone = ZoneInfo(WINDOWS_TO_OLSON.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"X-WR-TIMEZONE ({one_line(name)[:40]})"
    calendar[_OWN_ZONE] = zone.key
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
    return Shift(begin, end, people_of(event))


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
        raise BrokenEvent(f"names no known time zone in {zone}; write one as Europe/Berlin.")
    return at.replace(tzinfo=zone).astimezone(UTC)
