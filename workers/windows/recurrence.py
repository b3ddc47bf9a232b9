"""Recurrence in local time, as RFC 5545 defines it: a window at 02:00 stays at 02:00 when the clocks change.

A local time that doesn't exist, because the clocks are set forward, is read with the offset before the change: 02:30
becomes 03:30. Of a local time that occurs twice, the first one counts. The duration is elapsed time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from itertools import takewhile
from zoneinfo import ZoneInfo, available_timezones

from dateutil.rrule import rrule, rrulestr

from common.checks import suggest
from common.errors import BadInput

MAX_RULE_LENGTH = 200
MAX_YEARS = 20
MAX_CACHED_DAYS = 60
FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_PARTS = frozenset(
    {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYSETPOS"}
    | {"BYWEEKNO", "BYYEARDAY"}
)
# A daily rule with further parts may never match, and the search for a match would take seconds.
_DAILY_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY"})
_RULE = re.compile(r"[A-Z]+=[A-Z0-9,+-]+(;[A-Z]+=[A-Z0-9,+-]+)*")
_UNTIL = re.compile(r"UNTIL=(\d{8})(?:T(\d{6})(Z?))?(?=;|$)")


@dataclass(frozen=True)
class Recurrence:
    """The starts of a window: once at `start` (local time, without a zone), or as often as its rule says."""

    start: datetime
    time_zone: str
    rule: str = ""

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    def list_starts(self, since: datetime, until: datetime) -> tuple[datetime, ...]:
        """Return the local starts in a range of instants, both included, and at most a day beyond."""
        first, last = (at.astimezone(self.zone).replace(tzinfo=None) for at in (since, until))
        # A check each second asks for the same days; the timeline asks once, for up to a year.
        list_days = _list_starts if (last - first).days <= MAX_CACHED_DAYS else _list_starts.__wrapped__
        return list_days(self, first.date(), last.date())

    def iterate_starts(self, after: datetime) -> Iterator[datetime]:
        """Return the local starts from an instant on, the earliest first."""
        first = after.astimezone(self.zone).replace(tzinfo=None)
        if not self.rule:
            return iter([self.start] if self.start >= first else [])
        return iter(_build_rule(self).xafter(first, inc=True))

    def find_last_start(self) -> datetime | None:
        """Return the last local start; None if it recurs without an end."""
        if not self.rule:
            return self.start
        if "UNTIL=" not in self.rule and "COUNT=" not in self.rule:
            return None
        return max(_build_rule(self), default=None)

    def convert_to_instant(self, local: datetime) -> datetime:
        """Return the instant of a local time."""
        return local.replace(tzinfo=self.zone, fold=0).astimezone(UTC)

    def explain_clock_change(self, local: datetime) -> str:
        """Return what a change of the clocks does to a local start, as a sentence; "" if nothing."""
        at = self.convert_to_instant(local).astimezone(self.zone)
        if at.replace(tzinfo=None, fold=0) != local:
            return f"{local:%H:%M} doesn't exist on this day, so the window starts at {at:%H:%M}."
        if local.replace(tzinfo=self.zone).utcoffset() != local.replace(tzinfo=self.zone, fold=1).utcoffset():
            return f"{local:%H:%M} occurs twice on this day. The window starts the first time."
        return ""


@lru_cache(maxsize=4_096)
def _list_starts(recurrence: Recurrence, first: date, last: date) -> tuple[datetime, ...]:
    """Return the starts on these days."""
    since, until = datetime.combine(first, time.min), datetime.combine(last, time.max)
    if not recurrence.rule:
        return (recurrence.start,) if since <= recurrence.start <= until else ()
    starts = takewhile(lambda start: start <= until, _build_rule(recurrence).xafter(since, inc=True))
    return tuple(starts)


@lru_cache(maxsize=1_024)
def _build_rule(recurrence: Recurrence) -> rrule:
    return rrulestr(recurrence.rule, dtstart=recurrence.start)


@cache
def list_time_zones() -> tuple[str, ...]:
    """Return the names of all time zones. Python reads 600 files for them."""
    return tuple(sorted(available_timezones()))


def read_time_zone(name: object) -> str:
    """Return the name of a time zone. Raises `BadInput` that names time_zone."""
    if not isinstance(name, str) or name not in list_time_zones():
        hint = suggest(name, list_time_zones()) if isinstance(name, str) else ""
        raise BadInput("time_zone", f"must be the name of a time zone, such as Europe/Berlin{hint}.")
    return name


def read_recurrence(start: datetime, time_zone: str, rule: object) -> Recurrence:
    """Return a recurrence with a checked rule. Raises `BadInput` that names rrule."""
    text = str(rule).strip().upper().removeprefix("RRULE:") if isinstance(rule, str) else None
    if text is None or len(text) > MAX_RULE_LENGTH:
        raise BadInput("rrule", f"must be text with at most {MAX_RULE_LENGTH} characters: FREQ=WEEKLY;BYDAY=SU.")
    if not text:
        return Recurrence(start, time_zone)
    if not _RULE.fullmatch(text):
        raise BadInput("rrule", "must be a recurrence rule such as FREQ=WEEKLY;BYDAY=SU.")
    _check_parts(dict(part.split("=", 1) for part in text.split(";")))
    recurrence = Recurrence(start, time_zone, _UNTIL.sub(lambda until: _convert_until(until, start, time_zone), text))
    try:
        first = next(iter(_build_rule(recurrence)), None)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise BadInput("rrule", f"can't be read: {str(error)[:80]}.") from None
    if first is None:
        raise BadInput("rrule", "never occurs after the start. Change the rule or the start.")
    return recurrence


def _check_parts(parts: dict[str, str]) -> None:
    """Raise `BadInput` that names rrule for parts that no window may have."""
    frequency = parts.get("FREQ", "")
    if frequency not in FREQUENCIES:
        raise BadInput("rrule", f"must have a FREQ of {', '.join(FREQUENCIES)}. A window occurs at most once a day.")
    allowed = _DAILY_PARTS if frequency == "DAILY" else _PARTS
    if unknown := sorted(parts.keys() - allowed):
        raise BadInput("rrule", f"can't have {unknown[0]} with FREQ={frequency}. Use {', '.join(sorted(allowed))}.")
    if "UNTIL" in parts and "COUNT" in parts:
        raise BadInput("rrule", "can't have both COUNT and UNTIL. Remove one of them.")
    for name in ("INTERVAL", "COUNT"):
        number = parts.get(name, "1")
        if not number.isdecimal() or not 1 <= int(number) <= 1_000:
            raise BadInput("rrule", f"must have a number from 1 to 1000 as {name}.")
    if "UNTIL" in parts and not _UNTIL.fullmatch(f"UNTIL={parts['UNTIL']}"):
        raise BadInput("rrule", "must have an UNTIL such as 20261231 or 20261231T010000Z.")


def _convert_until(until: re.Match[str], start: datetime, time_zone: str) -> str:
    """Return UNTIL in local time. A date includes its whole day. Raises `BadInput`."""
    day, clock, is_utc = until.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock or '235959'}")
    except ValueError:
        raise BadInput("rrule", f"has an UNTIL that is not a date: {day}. Write it as 20261231.") from None
    if is_utc:
        at = at.replace(tzinfo=UTC).astimezone(ZoneInfo(time_zone)).replace(tzinfo=None)
    if at.year > start.year + MAX_YEARS:
        raise BadInput("rrule", f"has an UNTIL more than {MAX_YEARS} years after the start. Leave UNTIL out.")
    return f"UNTIL={at:%Y%m%dT%H%M%S}"


def add_elapsed(start: datetime, duration: timedelta) -> datetime:
    """Return the end of an occurrence: elapsed time after an instant, whatever the clocks do."""
    return start.astimezone(UTC) + duration
