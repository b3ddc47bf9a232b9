"""Checks of values from outside: what each takes, in words, and how it is parsed.

A declaration (`common.parameter`, a job's or a handler's, an application's) describes a value by a check from this
module. All checks reject the same things: a Boolean as a number, NaN and infinities, values out of range, and text that
is too long. An error names the field with its path and says what it takes; it quotes a short form of the given value.
"""

import difflib
import math
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sized
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeGuard

from common.errors import BadInput, Forbidden
from common.parsing import parse_decimal_number, parse_whole_number

MAX_SHOWN = 80
MAX_KEY = 80
MAX_SUGGESTED = 80
# Names that people give: to tasks, alert rules, receivers, objectives.
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}\Z")
# Names of nodes and queues, and of applications, operators, and plants, which are part of URLs.
QUEUE_NAME = re.compile(r"\A[a-z][a-z0-9_-]{0,39}\Z")
PLANT_NAME = re.compile(r"\A[a-z][a-z0-9-]{0,39}\Z")
CAPABILITY = re.compile(r"\A[a-z0-9][a-z0-9._-]{0,39}\Z")
# PostgreSQL stores no NUL, and no database stores half of a surrogate pair.
UNSTORABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Check:
    """A check of one value.

    `takes` says what the check accepts, as it follows "must be". `read` returns the stored value or raises
    `ValueError`.
    """

    takes: str
    read: Callable[[Any], Any]

    def accepts(self, value: object) -> bool:
        try:
            self.read(value)
        except ValueError:
            return False
        return True

    def validate(self, value: object, field: str, kind: type[BadInput] = BadInput, end: str = "") -> Any:
        """Return the stored value. Raises `kind` that names the field; `end` is appended to its sentence."""
        try:
            return self.read(value)
        except BadInput:
            raise
        except ValueError:
            raise kind(field, f"must be {self.takes}, not {shorten_for_message(value)}{end}") from None


def shorten_for_message(value: object, most: int = MAX_SHOWN) -> str:
    """Return a form of the given value that is short enough for a sentence."""
    text = _SHORT.repr(value) if isinstance(value, list | tuple | dict | set) else _shorten_scalar(value, most)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _shorten_scalar(value: object, most: int) -> str:
    """Limit how much of a long text or number is written out."""
    if isinstance(value, str | bytes):
        return repr(value[:most])
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number with more than {most} digits"
    return repr(value)


class _Short(reprlib.Repr):
    def repr_int(self, value: int, level: int) -> str:
        """Return a short form: Python refuses to write out a number of thousands of digits."""
        return _shorten_scalar(value, MAX_SHOWN)


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = MAX_SHOWN
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 20


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the known name that resembles this one, in parentheses; "" if none does."""
    close = difflib.get_close_matches(name[:MAX_SUGGESTED], list(known), n=1, cutoff=0.7)
    return f" (did you mean {close[0]}?)" if close else ""


def is_number(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[float]:
    """Return whether the value is a finite number in [least, most], and not a Boolean.

    Whole numbers of any size are compared exactly.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value <= most and (isinstance(value, int) or math.isfinite(value))


def is_whole(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[int]:
    """Return whether the value is a number in [least, most] that is written as a whole one."""
    return isinstance(value, int) and is_number(value, least, most)


def _validate_value(good: bool, value: object) -> Any:
    if not good:
        raise ValueError
    return value


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return "" if least == -math.inf else f" of at least {least:g}"
    return f" of at most {most:g}" if least == -math.inf else f" from {least:g} to {most:g}"


def accept_number(least: float = -math.inf, most: float = math.inf, noun: str = "a number") -> Check:
    """Accept a finite number in [least, most], stored as it is."""
    return Check(f"{noun}{_range(least, most)}", lambda value: _validate_value(is_number(value, least, most), value))


def accept_greater_than(least: float, most: float = math.inf, noun: str = "a finite number") -> Check:
    """Accept a finite number greater than `least`."""
    end = "" if most == math.inf else f" and at most {most:g}"

    def read(value: object) -> float:
        try:
            return float(_validate_value(is_number(value, least, most) and value > least, value))
        except OverflowError:
            raise ValueError from None

    return Check(f"{noun} above {least:g}{end}", read)


def accept_whole_number(least: float = -math.inf, most: float = math.inf) -> Check:
    """Accept a whole number in [least, most] that is written as one."""
    known = math.isfinite(least) and math.isfinite(most)
    bounds = f" from {least} to {most}" if known else _range(least, most)
    return Check(f"a whole number{bounds}", lambda value: _validate_value(is_whole(value, least, most), value))


def from_text(check: Check, kind: Callable[[Any], Any]) -> Check:
    """Accept the same values, also as text, as forms and commands supply them."""

    def read(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        try:
            return check.read(kind(value))
        except OverflowError:
            raise ValueError from None

    return Check(check.takes, read)


def convert_to_integer(value: str | float) -> int:
    """Return a whole number from 5, 5.0, or "5". Raises ValueError."""
    if isinstance(value, str) and (whole := parse_whole_number(value)) is not None:
        return whole
    read = convert_to_float(value)
    if not read.is_integer():
        raise ValueError
    return int(read)


def convert_to_float(value: str | float) -> float:
    """Return a number, which may be given as text. Raises ValueError."""
    if not isinstance(value, str):
        return float(value)
    read = parse_decimal_number(value)
    if read is None:
        raise ValueError
    return read


def make_storable(value: object) -> Any:
    """Return a text, or JSON with texts in it, as every database can store it.

    U+FFFD replaces each character that one of them can't store.
    """
    if isinstance(value, str):
        return value if value.isascii() and "\0" not in value else UNSTORABLE_CHARACTER.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {make_storable(key): make_storable(item) for key, item in value.items()}
    return [make_storable(item) for item in value] if isinstance(value, list | tuple) else value


def accept_text(noun: str = "a string", blank: bool = True) -> Check:
    """Accept text. blank: it may be empty. `refuse_longer` limits its length."""
    return Check(noun, lambda value: _validate_value(isinstance(value, str) and (blank or value.strip() != ""), value))


def accept_non_empty_text(most: int) -> Check:
    """Accept a text of 1 to `most` characters, stored without surrounding blanks."""

    def read(value: object) -> str:
        kept = value.strip() if isinstance(value, str) else ""
        return str(_validate_value(0 < len(kept) <= most, kept))

    return Check(f"a string of 1 to {most} characters", read)


def accept_name(most: int = 60) -> Check:
    """Accept a name that a person chooses, of at most `most` characters."""

    def read(value: object) -> str:
        good = isinstance(value, str) and NAME.match(value) is not None and len(value) <= most
        return str(_validate_value(good, value))

    return Check(f"a name of letters, digits, dots, -, and _ (at most {most} characters)", read)


def accept_matching_text(form: re.Pattern[str], noun: str) -> Check:
    return Check(noun, lambda value: _validate_value(isinstance(value, str) and form.match(value) is not None, value))


CAPABILITIES_FORM = "a name of lowercase letters, digits, -, _, or ., such as zone-a"


def check_capabilities(names: object, field: str, error: type[BadInput] = BadInput) -> tuple[str, ...]:
    """Return names of capabilities without duplicates. Raises the error that names the first invalid one."""
    if not isinstance(names, list | tuple):
        raise error(field, f'must be a list of names such as ["zone-a"], not {shorten_for_message(names)}.')
    check = accept_matching_text(CAPABILITY, CAPABILITIES_FORM)
    return tuple(dict.fromkeys(str(check.validate(name, field, error, ".")) for name in names))


def accept_choice(choices: Collection[str], noun: str = "") -> Check:
    words = noun or f"one of {', '.join(choices)}"
    return Check(words, lambda value: _validate_value(isinstance(value, str) and value in choices, value))


FLAG = Check("true or false", lambda value: _validate_value(isinstance(value, bool), value))


def _parse_day(value: object) -> str:
    return date.fromisoformat(_validate_value(isinstance(value, str), value)).isoformat()


def parse_timestamp(text: str) -> datetime:
    """Parse the text of an instant as an aware datetime; without a zone it is UTC. Raises `ValueError`."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _timestamp(value: object) -> str:
    try:
        return parse_timestamp(_validate_value(isinstance(value, str), value)).astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError from None


DAY = Check("a date such as 2026-11-20", _parse_day)
TIMESTAMP = Check("a time such as 2026-11-20T06:00:00Z", _timestamp)


def allow_null(check: Check) -> Check:
    """Accept the same values, or null for unknown or unset."""
    return Check(f"{check.takes}, or null", lambda value: None if value is None else check.read(value))


def accept_mapping(check: Check, noun: str = "") -> Check:
    """Accept an object of names and values that all match the same check."""

    def read(value: object) -> dict[str, Any]:
        good = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
        return {name: check.read(item) for name, item in _validate_value(good, value).items()}

    return Check(noun or f"an object in which each value is {check.takes}", read)


def record(**checks: Check) -> Check:
    """Accept an object of exactly these values."""

    def read(value: object) -> dict[str, Any]:
        good = isinstance(value, Mapping) and set(value) == set(checks)
        return {name: checks[name].read(item) for name, item in _validate_value(good, value).items()}

    return Check(f"an object with the fields {', '.join(checks)}", read)


def accept_boolean() -> Check:
    """Accept true or false, written as such."""
    return Check("true or false", lambda value: _validate_value(isinstance(value, bool), value))


def accept_either(first: Check, second: Check) -> Check:
    """Accept what one of two checks takes."""

    def read(value: object) -> object:
        return (first if first.accepts(value) else second).read(value)

    return Check(f"{first.takes}, or {second.takes}", read)


def list_of(check: Check, noun: str) -> Check:
    """Accept a list of values that all match the same check."""
    return Check(noun, lambda value: [check.read(item) for item in _validate_value(isinstance(value, list), value)])


def join_path(where: str, name: object) -> str:
    """Return the path of a field. A name that a document chooses itself is cut to a maximum length."""
    return f"{where}.{str(name)[:MAX_KEY]}" if where else str(name)[:MAX_KEY]


def refuse_unknown(
    names: Iterable[object],
    known: Collection[str],
    where: str,
    kind: type[BadInput] = BadInput,
    message: str = "is unknown; known names: {known}",
) -> None:
    """Raise `kind` that names the first unknown name, and lists the known ones."""
    for name in names:
        if name not in known:
            raise kind(join_path(where, name), message.format(known=", ".join(known) or "none"))


def refuse_longer(value: Sized, most: int, where: str, noun: str = "") -> None:
    """Raise `Forbidden` for a list or a text that is longer than `most`. Processing it would be too expensive."""
    if len(value) > most:
        raise Forbidden(where, f"must have at most {most}{noun or ' items'}, not {len(value)}")
