"""On-call schedules: the shifts of a calendar, and the people that its events name.

The people of an event are those of its summary, and its attendees who did not decline.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from common.documents import decode_text
from common.errors import BadInput
from common.parsing import format_one_line
from workers.calendars.events import (
    OWN_ZONE,
    Bounds,
    BrokenEvent,
    CalendarFile,
    build_core_time_bounds,
    find_times,
    mark_unknown_zones,
    normalize_events,
    read_calendar,
)
from workers.host import bounded_process
from workers.host.bounded_process import ProcessFailed

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


BEHIND, AHEAD = timedelta(days=1), timedelta(days=14)  # Shifts are known this far around now.
MAX_SHIFTS = 5_000
MAX_SHIFTS_OF_AN_EVENT = 500


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


def read_rota(text: bytes, now: datetime, bounded: Bounds = nullcontext) -> Rota:
    """Read a calendar. Raises `BadInput` as `read_calendar` does."""
    shifts: list[Shift] = []

    def read_series(events: list[Any], file: CalendarFile) -> None:
        shifts.extend(_list_event_shifts(events, file, now))
        if len(shifts) > MAX_SHIFTS:
            raise BadInput("calendar", f"has more than {MAX_SHIFTS:,} shifts within two weeks.")

    broken = read_calendar(text, read_series, bounded)
    return Rota(sorted((shift for shift in dict.fromkeys(shifts) if shift.people), key=_in_order), broken)


def _in_order(shift: Shift) -> tuple[datetime, datetime]:
    return shift.since, shift.until


def _list_event_shifts(events: list[Any], file: CalendarFile, now: datetime) -> list[Shift]:
    """Return the shifts around now of one event with its exceptions. Raises `BrokenEvent`."""
    import icalendar  # Imported here: see `read_calendar`.
    import recurring_ical_events

    alone = icalendar.Calendar()
    if file.has_zone:
        alone[OWN_ZONE] = file.calendar[OWN_ZONE]
    mark_unknown_zones(events)
    for event in normalize_events(events, file.zone, file.has_zone):
        alone.add_component(event)
    occurrences = recurring_ical_events.of(alone).between(now - BEHIND, now + AHEAD)
    if len(occurrences) > MAX_SHIFTS_OF_AN_EVENT:
        raise BrokenEvent(f"has more than {MAX_SHIFTS_OF_AN_EVENT} shifts within two weeks.")
    return [
        _shift(occurrence, file)
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


def _shift(event: Mapping[str, Any], file: CalendarFile) -> Shift:
    begin, end = find_times(event, file)
    return Shift(begin, end, list_people(event))


MODULE = "workers.alerts.delivery.schedule"
MAX_MEMORY_BYTES = 1 << 29
MAX_CORE_SECONDS = 10
PROCESS_SECONDS = 60.0


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
        rota = read_rota(order["calendar"].encode(), now, build_core_time_bounds())
    except BadInput as error:
        return {"shifts": [], "broken": [], "error": error.message}
    return {"shifts": [shift.document() for shift in rota.shifts], "broken": rota.broken, "error": ""}


if __name__ == "__main__":
    bounded_process.serve(_answer, MAX_MEMORY_BYTES, MAX_CORE_SECONDS)
