"""Events of a calendar, each read by itself, so that one broken event never hides the rest.

A calendar comes from outside. Processes that read one are bounded (`workers.host.bounded_process`).
"""

import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from time import process_time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from common.errors import BadInput
from common.parsing import format_one_line

if TYPE_CHECKING:
    from icalendar import Component, vRecur

MAX_EVENTS = 500
MAX_BROKEN_NAMED = 20
MAX_EVENT_CORE_SECONDS = 1.5
MAX_EVENTS_CORE_SECONDS = 7.0
UNKNOWN_ZONE = "X-WEIR-UNKNOWN-ZONE"  # what an event of the calendar has from then on
OWN_ZONE = "X-WR-TIMEZONE"
Bounds = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class CalendarFile:
    """A calendar, and its own time zone, or the place of an unknown one."""

    calendar: MutableMapping[str, Any]
    zone: tzinfo | str

    @property
    def has_zone(self) -> bool:
        return OWN_ZONE in self.calendar


def read_calendar(
    text: bytes, read_series: Callable[[list[Any], CalendarFile], None], bounded: Bounds = nullcontext
) -> list[str]:
    """Read each event with its exceptions; return a sentence for each event that can't be read.

    Raises `BadInput` saying what the calendar must be, and if no event can be read. `bounded` is entered for each
    event: if it, or `read_series`, raises `BrokenEvent`, only this event is skipped.
    """
    # Imported here: it takes half a second, which only a process that reads a calendar should pay.
    import icalendar

    try:
        calendar = icalendar.Calendar.from_ical(text)
        events = calendar.walk("VEVENT")
        file = CalendarFile(calendar, find_own_zone(calendar))
    except Exception as error:  # any error of data from outside
        raise BadInput("calendar", f"is not a valid iCalendar file: {format_one_line(str(error))[:120]}") from None
    if len(events) > MAX_EVENTS:
        raise BadInput("calendar", f"has more than {MAX_EVENTS} events.")
    broken: list[str] = []
    series = defaultdict(list)
    for number, event in enumerate(events, 1):
        try:
            check_event(event)
        except BrokenEvent as error:
            broken.append(f"{format_event_title(event, number)} {error}")
        else:
            series[str(event.get("UID", f"event {number}"))].append((number, event))
    read = 0
    for members in series.values():
        for together in split_series(members):
            number, event = together[0]
            try:
                with bounded():
                    read_series([member for _, member in together], file)
                read += 1
            except BadInput:
                raise
            except Exception as error:
                why = str(error) if isinstance(error, BrokenEvent) else f"can't be read: {error}"
                broken.append(f"{format_event_title(event, number)} {format_one_line(why)[:200]}")
    if broken and not read:
        raise BadInput("calendar", f"has no readable event: {broken[0]}")
    return broken[:MAX_BROKEN_NAMED]


# A rule that recurs within a day gives thousands of occurrences.
_TOO_OFTEN = frozenset({"SECONDLY", "MINUTELY", "HOURLY"})
_WITHIN_A_DAY = ("BYSECOND", "BYMINUTE", "BYHOUR")
_TIMES = ("DTSTART", "DTEND", "DURATION", "RECURRENCE-ID")
_RELEVANT = frozenset({*_TIMES, "RRULE", "RDATE", "EXDATE"})
_LAST_SECOND = time(23, 59, 59)


class BrokenEvent(Exception):  # noqa: N818
    """An event that can't be read; the message says why, as the end of a sentence about it."""


def format_event_title(event: Mapping[str, Any], number: int) -> str:
    """Return a title by which people find the event in their calendar."""
    summary, uid = (format_one_line(str(event.get(name, "")))[:60] for name in ("SUMMARY", "UID"))
    title = f'Event {number} "{summary}"' if summary else f"Event {number}"
    return f"{title} (UID {uid})" if uid else title


def check_event(component: "Component") -> None:
    """Raise `BrokenEvent` for an event whose times or rules can't be read."""
    event: Mapping[str, Any] = component
    for name, why in component.errors:
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


def _names_relevant(why: str) -> bool:
    """Return whether a line that could not be parsed starts with the name of a relevant property."""
    line = why.partition("'")[2].upper()
    return any(line.startswith(name) for name in _RELEVANT)


def list_recurrence_rules(event: Mapping[str, Any]) -> list["vRecur"]:
    """Return all RRULEs of an event."""
    rules = event.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _check_rules(event: Mapping[str, Any]) -> None:
    for rule in list_recurrence_rules(event):
        if not rule.get("FREQ"):
            raise BrokenEvent("has an RRULE without FREQ.")
        often = {str(frequency).upper() for frequency in rule["FREQ"]} & _TOO_OFTEN
        if often or any(name in rule for name in _WITHIN_A_DAY):
            raise BrokenEvent("has a rule that recurs more than once a day. Use FREQ=DAILY or longer.")
        if any(interval < 1 for interval in rule.get("INTERVAL", [])):
            raise BrokenEvent("has an RRULE with an INTERVAL below 1.")


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


def _sequence(event: Mapping[str, Any]) -> int:
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


def _set_inclusive_until(rule: "vRecur", start: date, own: tzinfo, has_zone: bool) -> "vRecur":
    """Return the rule with UNTIL as the library reads it. A date includes its whole day, as in the event's zone."""
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


def _align_recurrence_id(event: MutableMapping[str, Any], start: date, own: tzinfo) -> None:
    """Give RECURRENCE-ID the type of the start of the event that it is an exception of."""
    from icalendar import vDDDTypes  # Imported here: see `read_calendar`.

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


def find_own_zone(calendar: MutableMapping[str, Any]) -> tzinfo | str:
    """Return the calendar's own zone, from now on by its IANA name in the calendar; or the location of an unknown one.

    An unknown one is taken out: the library that expands events reads it, too.
    """
    from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON  # Imported here: see `read_calendar`.

    if (name := str(calendar.pop(OWN_ZONE, "")).strip()) == "":
        return UTC
    try:
        zone = ZoneInfo(WINDOWS_TO_OLSON.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"X-WR-TIMEZONE ({format_one_line(name)[:40]})"
    calendar[OWN_ZONE] = zone.key
    return zone


def mark_unknown_zones(components: Iterable[Any]) -> None:
    """Mark events whose zone is unknown.

    A time in an unknown zone is read as one without a zone, and the events that a rule generates don't have the zone
    any more, so the event itself is marked.
    """
    for event in components:
        for time_of_event in filter(None, map(event.get, ("DTSTART", "DTEND"))):
            at, name = time_of_event.dt, time_of_event.params.get("TZID")
            if name and isinstance(at, datetime) and at.tzinfo is None:
                event[UNKNOWN_ZONE] = f"TZID ({format_one_line(str(name))[:40]})"


def find_zone(event: Mapping[str, Any], file: CalendarFile) -> tzinfo | str:
    """Return the zone of an event's local times, or the place of an unknown one (after `mark_unknown_zones`)."""
    return str(event[UNKNOWN_ZONE]) if UNKNOWN_ZONE in event else file.zone


def find_times(event: Mapping[str, Any], file: CalendarFile) -> tuple[datetime, datetime]:
    """Return the instants of an event's start and end. Raises `BrokenEvent`."""
    zone = find_zone(event, file)
    begin = convert_to_instant(event["DTSTART"].dt, zone)
    return begin, convert_to_instant(event["DTEND"].dt, zone) if "DTEND" in event else begin + compute_length(event)


def compute_length(event: Mapping[str, Any]) -> timedelta:
    """Return the length of an event without an end: its duration, else the whole day of a date, else zero."""
    if "DURATION" in event:
        length: timedelta = event["DURATION"].dt
        return length
    return timedelta() if isinstance(event["DTSTART"].dt, datetime) else timedelta(days=1)


def convert_to_instant(at: date | datetime, zone: tzinfo | str) -> datetime:
    if not isinstance(at, datetime):
        at = datetime.combine(at, time())
    if at.tzinfo is not None:
        return at.astimezone(UTC)
    if isinstance(zone, str):
        raise BrokenEvent(f"names an unknown time zone in {zone}. Use a name such as Europe/Berlin.")
    return at.replace(tzinfo=zone).astimezone(UTC)


def build_core_time_bounds() -> Callable[[], AbstractContextManager[None]]:
    """Return the bounds on the core time of one event, and of all of them. This process has one thread."""
    begun = process_time()

    def interrupt(*_: object) -> None:
        raise BrokenEvent("takes too long to read: its rule rarely or never recurs. Add UNTIL to the rule.")

    @contextmanager
    def limit_core_time() -> Iterator[None]:
        if process_time() - begun > MAX_EVENTS_CORE_SECONDS:
            raise BadInput(
                "calendar", "takes too long to read: many of its rules rarely or never recur. Add UNTIL to them."
            )
        signal.setitimer(signal.ITIMER_PROF, MAX_EVENT_CORE_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, interrupt)
    return limit_core_time
