"""The people that a calendar event names: those of its summary, and its attendees who did not decline."""

import re
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from time import process_time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from common.documents import decode_text
from common.errors import BadInput
from workers.alerts.delivery.message_text import format_one_line
from workers.host import bounded_process
from workers.host.bounded_process import ProcessFailed

if TYPE_CHECKING:
    from icalendar import Component, vRecur

MAX_PEOPLE = 10
MAX_NAME_LENGTH = 120
_MAILTO = re.compile(r"mailto:", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|/", re.IGNORECASE)  # of a URI, or of a path


def list_people(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names and e-mail addresses, each once: attendees first, then the people of the summary."""
    attendees = event.get("ATTENDEE", [])
    people = [
        name
        for attendee in (attendees if isinstance(attendees, list) else [attendees])
        if _get_parameter(attendee, "PARTSTAT").upper() != "DECLINED"
        for name in _list_names(attendee)
    ]
    people += re.split(r"\s*[,;&]\s*", str(event.get("SUMMARY", "")).strip())
    named = dict.fromkeys(filter(None, (format_one_line(name)[:MAX_NAME_LENGTH] for name in people)))
    return tuple(named)[:MAX_PEOPLE]


def _list_names(attendee: object) -> list[str]:
    """Return the attendee's addresses, with or without `mailto:`, else EMAIL, a plain name or CN."""
    value = str(attendee).strip().strip("\"'")
    if addresses := _extract_addresses(unquote(value)):
        return addresses
    if addresses := _extract_addresses(_get_parameter(attendee, "EMAIL")):
        return addresses
    named = _get_parameter(attendee, "CN")
    if named or _SCHEME.match(value):
        return [named]
    return [value]


def _extract_addresses(text: str) -> list[str]:
    """Return `a@x.example` and `b@x.example` of `mailto:a@x.example?subject=s, "B" <b@x.example>`."""
    words = (_MAILTO.sub("", word).strip("<>\"'").partition("?")[0] for word in re.split(r"[\s,;]+", text))
    return [word for word in words if "@" in word and not _SCHEME.match(word)]


def _get_parameter(attendee: object, name: str) -> str:
    value = getattr(attendee, "params", {}).get(name, "")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value).strip().strip("\"'")


# A rule that gives thousands of shifts a day is no rota.
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
            raise BrokenEvent("has a rule that recurs more than once a day; use FREQ=DAILY or longer.")
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
            check_event(event)
        except BrokenEvent as error:
            broken.append(f"{format_event_title(event, number)} {error}")
        else:
            series[str(event.get("UID", f"event {number}"))].append((number, event))
    read_shifts: list[Shift] = []
    read = 0
    for members in series.values():
        for together in split_series(members):
            number, event = together[0]
            try:
                with bounded():
                    read_shifts += _list_event_shifts([member for _, member in together], calendar, zone, now)
                read += 1
            except BadInput:
                raise
            except Exception as error:
                why = str(error) if isinstance(error, BrokenEvent) else f"can't be read: {error}"
                broken.append(f"{format_event_title(event, number)} {format_one_line(why)[:200]}")
            if len(read_shifts) > MAX_SHIFTS:
                raise BadInput("calendar", f"has more than {MAX_SHIFTS:,} shifts within two weeks.")
    if broken and not read:
        raise BadInput("calendar", f"has no readable event: {broken[0]}")
    ordered = sorted((fromkey for fromkey in dict.fromkeys(read_shifts) if fromkey.people), key=_in_order)
    return Rota(ordered, broken[:MAX_BROKEN_NAMED])


def _in_order(shift: Shift) -> tuple[datetime, datetime]:
    return shift.since, shift.until


def _list_event_shifts(
    events: list[Any], calendar: MutableMapping[str, Any], zone: tzinfo | str, now: datetime
) -> list[Shift]:
    """Return the shifts around now of one event with its exceptions. Raises `BrokenEvent`."""
    import icalendar  # Imported here: see `read_rota`.
    import recurring_ical_events

    alone = icalendar.Calendar()
    if _OWN_ZONE in calendar:
        alone[_OWN_ZONE] = calendar[_OWN_ZONE]
    _mark_unknown_zones(events)
    for event in normalize_events(events, zone, _OWN_ZONE in calendar):
        alone.add_component(event)
    occurrences = recurring_ical_events.of(alone).between(now - BEHIND, now + AHEAD)
    if len(occurrences) > MAX_SHIFTS_OF_AN_EVENT:
        raise BrokenEvent(f"has more than {MAX_SHIFTS_OF_AN_EVENT} shifts within two weeks.")
    return [
        _shift(occurrence, zone)
        for occurrence in occurrences
        if str(occurrence.get("STATUS")).strip().upper() != "CANCELLED"
    ]


def on_call(known: Iterable[Shift], now: datetime) -> list[str]:
    """Return everybody whose shift is now, each once."""
    people = [name for shift in known if shift.since <= now < shift.until for name in shift.people]
    return list(dict.fromkeys(people))


def find_next_change(known: Sequence[Shift], now: datetime) -> datetime | None:
    """Return when the next shift starts or ends, as far as known."""
    return min((at for shift in known for at in (shift.since, shift.until) if at > now), default=None)


def _own_zone(calendar: MutableMapping[str, Any]) -> tzinfo | str:
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


def _shift(event: Mapping[str, Any], own_zone: tzinfo | str) -> Shift:
    zone = str(event[_UNKNOWN_ZONE]) if _UNKNOWN_ZONE in event else own_zone
    begin = _convert_to_instant(event["DTSTART"].dt, zone)
    end = _convert_to_instant(event["DTEND"].dt, zone) if "DTEND" in event else begin + _compute_length(event)
    return Shift(begin, end, list_people(event))


def _compute_length(event: Mapping[str, Any]) -> timedelta:
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


MODULE = "workers.alerts.delivery.schedule"
MAX_MEMORY_BYTES = 1 << 29
MAX_CORE_SECONDS = 10
PROCESS_SECONDS = 60.0
MAX_EVENT_CORE_SECONDS = 1.5
MAX_EVENTS_CORE_SECONDS = 7.0


def read_bounded_rota(text: bytes, now: datetime) -> Rota:
    """Return `read_rota`, bounded. Raises `BadInput` as it does."""
    order = {"calendar": decode_text(text, "replace"), "now": now.isoformat()}
    try:
        answer = bounded_process.answer_of(MODULE, order, PROCESS_SECONDS)
    except ProcessFailed as error:
        raise BadInput("calendar", f"can't be read: the process that reads it {error}.") from None
    if answer["error"]:
        raise BadInput("calendar", answer["error"])
    return Rota([shift_of(shift) for shift in answer["shifts"]], answer["broken"])


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    now = datetime.fromisoformat(order["now"])
    try:
        rota = read_rota(order["calendar"].encode(), now, _build_core_time_bounds())
    except BadInput as error:
        return {"shifts": [], "broken": [], "error": error.message}
    return {"shifts": [shift.document() for shift in rota.shifts], "broken": rota.broken, "error": ""}


def _build_core_time_bounds() -> Callable[[], AbstractContextManager[None]]:
    """Return the bounds on the core time of one event, and of all of them. This process has one thread."""
    begun = process_time()

    def interrupt(*_: object) -> None:
        raise BrokenEvent("takes too long to read: its rule rarely or never recurs; add UNTIL to the rule.")

    @contextmanager
    def limit_core_time() -> Iterator[None]:
        if process_time() - begun > MAX_EVENTS_CORE_SECONDS:
            raise BadInput(
                "calendar", "takes too long to read: many of its rules rarely or never recur; add UNTIL to them."
            )
        signal.setitimer(signal.ITIMER_PROF, MAX_EVENT_CORE_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    signal.signal(signal.SIGPROF, interrupt)
    return limit_core_time


if __name__ == "__main__":
    bounded_process.serve(_answer, MAX_MEMORY_BYTES, MAX_CORE_SECONDS)
