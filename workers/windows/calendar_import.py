"""Import of planned windows from a calendar: its events as values of windows, read in a bounded process."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from common.documents import decode_text
from common.errors import BadInput
from common.parsing import format_one_line
from workers.calendars.events import (
    Bounds,
    BrokenEvent,
    CalendarFile,
    build_core_time_bounds,
    compute_length,
    convert_to_instant,
    find_times,
    find_zone,
    list_recurrence_rules,
    mark_unknown_zones,
    normalize_events,
    read_calendar,
)
from workers.host import bounded_process
from workers.host.bounded_process import ProcessFailed
from workers.windows.recurrence import list_time_zones

MODULE = "workers.windows.calendar_import"
MAX_MEMORY_BYTES = 1 << 29
MAX_CORE_SECONDS = 10
PROCESS_SECONDS = 60.0
UNTITLED = "Calendar event"
MAX_UID, MAX_TITLE = 255, 200


@dataclass(frozen=True)
class CalendarWindow:
    """An event of a calendar as values of a window. exceptions: local starts that don't occur."""

    uid: str
    name: str
    start: str
    time_zone: str
    minutes: int
    rrule: str = ""
    exceptions: Sequence[str] = ()


@dataclass(frozen=True)
class CalendarContent:
    """The windows of a calendar, and a sentence for each event that can't be read."""

    windows: list[CalendarWindow]
    broken: list[str]


def read_bounded_content(text: bytes) -> CalendarContent:
    """Read a calendar in a bounded process. Raises `BadInput` that names calendar, and if no event can be read."""
    try:
        answer = bounded_process.answer_of(MODULE, {"calendar": decode_text(text, "replace")}, PROCESS_SECONDS)
    except ProcessFailed as error:
        raise BadInput("calendar", f"can't be read: the process that reads it {error}.") from None
    if answer["error"]:
        raise BadInput("calendar", answer["error"])
    return CalendarContent([CalendarWindow(**row) for row in answer["windows"]], answer["broken"])


def read_content(text: bytes, bounded: Bounds | None = None) -> CalendarContent:
    """Read a calendar. Raises `BadInput` as `read_bounded_content` does."""
    windows: list[CalendarWindow] = []

    def read_series(events: list[Any], file: CalendarFile) -> None:
        windows.extend(_list_windows(events, file))

    broken = read_calendar(text, read_series, *([] if bounded is None else [bounded]))
    return CalendarContent(windows, broken)


def _list_windows(events: list[Any], file: CalendarFile) -> list[CalendarWindow]:
    """Return the window of an event, and one for each of its moved occurrences. Raises `BrokenEvent`."""
    mark_unknown_zones(events)
    read = normalize_events(events, file.zone, file.has_zone)
    if "RECURRENCE-ID" in read[0]:  # exceptions without their event
        return [_build_window(event, file) for event in read if not _is_canceled(event)]
    first, moved = read[0], read[1:]
    if _is_canceled(first):
        return []
    windows = [_build_window(event, file) for event in moved if not _is_canceled(event)]
    rules: list[Any] = list_recurrence_rules(first)
    if len(rules) > 1 or "RDATE" in first:
        raise BrokenEvent("has more than one RRULE, or an RDATE. Split it into several events.")
    zone = _get_zone(first, file)
    excluded = [event["RECURRENCE-ID"].dt for event in moved]
    for dates in _as_list(first.get("EXDATE", [])):
        excluded += [value.dt for value in dates.dts]
    whole = _build_window(
        first,
        file,
        rrule=rules[0].to_ical().decode() if rules else "",
        exceptions=[_format_local(at, zone, first["DTSTART"].dt) for at in excluded],
    )
    return [whole, *windows]


def _build_window(event: Any, file: CalendarFile, rrule: str = "", exceptions: Sequence[str] = ()) -> CalendarWindow:
    begin, end = find_times(event, file)
    length = end - begin if isinstance(event["DTSTART"].dt, datetime) else _get_days(event)
    minutes = round(length / timedelta(minutes=1))
    if minutes < 1 or timedelta(minutes=minutes) != length:
        raise BrokenEvent("must last a whole number of minutes, at least one.")
    zone = _get_zone(event, file)
    return CalendarWindow(
        uid=format_one_line(str(event.get("UID", "")))[:MAX_UID],
        name=format_one_line(str(event.get("SUMMARY", "")))[:MAX_TITLE] or UNTITLED,
        start=_format_local(event["DTSTART"].dt, zone, event["DTSTART"].dt),
        time_zone=zone.key,
        minutes=minutes,
        rrule=rrule,
        exceptions=exceptions,
    )


def _get_days(event: Any) -> timedelta:
    """Return the length of an event of whole days. A day of a clock change counts as 24 h, too."""
    length: timedelta = event["DTEND"].dt - event["DTSTART"].dt if "DTEND" in event else compute_length(event)
    return length


def _get_zone(event: Any, file: CalendarFile) -> ZoneInfo:
    """Return the time zone in which an event recurs. Raises `BrokenEvent` for one without an IANA name."""
    start = event["DTSTART"].dt
    zone: tzinfo | str | None = start.tzinfo if isinstance(start, datetime) else None
    if zone is None or (file.has_zone and start.tzname() == "UTC"):
        zone = find_zone(event, file)
    if isinstance(zone, str):
        convert_to_instant(start, zone)  # raises
    name = getattr(zone, "key", None) or ("UTC" if str(zone) == "UTC" else str(zone))
    if name not in list_time_zones():
        raise BrokenEvent(f"has the time zone {format_one_line(name)[:40]}. Use a name such as Europe/Berlin.")
    return ZoneInfo(name)


def _format_local(at: Any, zone: ZoneInfo, start: Any) -> str:
    """Return a time of an event as local time. A date has the time of the event's start."""
    if not isinstance(at, datetime):
        clock = start.timetz() if isinstance(start, datetime) else datetime.min.time()
        at = datetime.combine(at, clock)
    if at.tzinfo is not None:
        at = at.astimezone(zone).replace(tzinfo=None)
    return str(at.replace(microsecond=0, fold=0).isoformat())


def _is_canceled(event: Any) -> bool:
    return str(event.get("STATUS", "")).strip().upper() == "CANCELLED"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    try:
        content = read_content(order["calendar"].encode(), build_core_time_bounds())
    except BadInput as error:
        return {"windows": [], "broken": [], "error": error.message}
    return {"windows": [asdict(window) for window in content.windows], "broken": content.broken, "error": ""}


if __name__ == "__main__":
    bounded_process.serve(_answer, MAX_MEMORY_BYTES, MAX_CORE_SECONDS)
