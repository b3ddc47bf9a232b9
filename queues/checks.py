"""The one way to check a value from outside: what it takes, in words, and how it is read.

A declaration (`controllers.framework.parameter`, a job's or a handler's, an application's) says what a value
is by a check made here. All are alike in what they refuse: a truth value as a number, NaN and infinities,
what is out of range, text that is too long. A refusal names the field with its path and says what it takes;
what was given is quoted in short.
"""

import math
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeGuard

from queues.errors import BadInput, Forbidden
from queues.text.numbers import decimal_number, whole_number

MOST_SHOWN = 80
MOST_KEY = 80
# Names that people give: to tasks, alert rules, receivers, objectives.
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,79}\Z")
# Names of nodes and queues; and of applications, operators and plants, which stand in addresses.
QUEUE_NAME = re.compile(r"\A[a-z][a-z0-9_-]{0,39}\Z")
PLANT_NAME = re.compile(r"\A[a-z][a-z0-9-]{0,39}\Z")
# PostgreSQL stores no NUL, and no database half of a surrogate pair.
UNSTORABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Check:
    """takes: what is taken, as it follows "takes". read: the value as it is kept; else ValueError."""

    takes: str
    read: Callable[[Any], Any]

    def accepts(self, value: Any) -> bool:
        """Whether the value is one of these."""
        try:
            self.read(value)
        except ValueError:
            return False
        return True

    def validate(self, value: Any, field: str, kind: type[BadInput] = BadInput, end: str = "") -> Any:
        """The value as it is kept. Raises `kind` naming the field; `end` ends its sentence."""
        try:
            return self.read(value)
        except BadInput:
            raise
        except ValueError:
            raise kind(field, f"takes {self.takes}, not {shorten_for_message(value)}{end}") from None


def shorten_for_message(value: Any, most: int = MOST_SHOWN) -> str:
    """What was given, short enough for a sentence."""
    text = _SHORT.repr(value) if isinstance(value, list | tuple | dict | set) else _scalar(value, most)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _scalar(value: Any, most: int) -> str:
    """Only so much of a long text or number is ever written out."""
    if isinstance(value, str | bytes):
        return repr(value[:most])
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a number of more than {most} digits"
    return repr(value)


class _Short(reprlib.Repr):
    def repr_int(self, value: int, level: int) -> str:
        """Python refuses to write out a number of thousands of digits."""
        return _scalar(value, MOST_SHOWN)


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = MOST_SHOWN
_SHORT.maxlist = _SHORT.maxdict = _SHORT.maxtuple = 20


def is_number(value: Any, least: float = -math.inf, most: float = math.inf) -> TypeGuard[float]:
    """A finite number in [least, most]; a truth value is none. However large: a whole number is compared
    exactly.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return least <= value <= most and (isinstance(value, int) or math.isfinite(value))


def is_whole(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """A number that is written as a whole one, in [least, most]."""
    return isinstance(value, int) and is_number(value, least, most)


def _validate_value(good: bool, value: Any) -> Any:
    if not good:
        raise ValueError
    return value


def _range(least: float, most: float) -> str:
    low = "" if least == -math.inf else f" from {least:g}"
    return low if most == math.inf else f"{low} to {most:g}"


def number(least: float = -math.inf, most: float = math.inf, noun: str = "a number") -> Check:
    """A finite number in [least, most], kept as it is."""
    return Check(
        f"{noun}{_range(least, most)}", lambda value: _validate_value(is_number(value, least, most), value)
    )


def greater_than(least: float, most: float = math.inf, noun: str = "a finite number") -> Check:
    """A finite number greater than `least`."""
    end = "" if most == math.inf else f" up to {most:g}"

    def read(value: Any) -> float:
        try:
            return float(_validate_value(is_number(value, least, most) and value > least, value))
        except OverflowError:
            raise ValueError from None

    return Check(f"{noun} above {least:g}{end}", read)


def whole(least: float = -math.inf, most: float = math.inf) -> Check:
    """A whole number in [least, most] that is written as one."""
    known = math.isfinite(least) and math.isfinite(most)
    bounds = f" from {least} to {most}" if known else _range(least, most)
    return Check(
        f"a whole number{bounds}",
        lambda value: _validate_value(is_whole(value, least, most), value),
    )


def from_text(check: Check, kind: Callable[[Any], Any]) -> Check:
    """The same, which may also be given as text, as forms and commands do."""

    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        try:
            return check.read(kind(value))
        except OverflowError:
            raise ValueError from None

    return Check(check.takes, read)


def integral(value: Any) -> int:
    """A whole number, however it is written: 5, 5.0 or "5". Raises ValueError."""
    if isinstance(value, str) and (whole := whole_number(value)) is not None:
        return whole
    read = real(value)
    if not read.is_integer():
        raise ValueError
    return int(read)


def real(value: Any) -> float:
    """A number, also where it is given as text. Raises ValueError."""
    if not isinstance(value, str):
        return float(value)
    read = decimal_number(value)
    if read is None:
        raise ValueError
    return read


def storable(value: Any) -> Any:
    """What others say (a text, or JSON with texts in it) as every database stores it: U+FFFD stands for each
    character that one of them can't hold.
    """
    if isinstance(value, str):
        return UNSTORABLE_CHARACTER.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {storable(key): storable(each) for key, each in value.items()}
    return [storable(item) for item in value] if isinstance(value, list | tuple) else value


def text(noun: str = "a text", blank: bool = True) -> Check:
    """Text; `blank`: it may be empty. `refuse_longer` says how long."""
    return Check(
        noun, lambda value: _validate_value(isinstance(value, str) and (blank or value.strip() != ""), value)
    )


def non_empty_text(most: int) -> Check:
    """A text of 1 to `most` characters, kept without the blanks around it."""

    def read(value: Any) -> str:
        kept = value.strip() if isinstance(value, str) else ""
        return str(_validate_value(0 < len(kept) <= most, kept))

    return Check(f"1 to {most} characters", read)


def name(most: int = 60) -> Check:
    """A name that a person gives, of at most so many characters."""

    def read(value: Any) -> str:
        good = isinstance(value, str) and NAME.match(value) is not None and len(value) <= most
        return str(_validate_value(good, value))

    return Check(f"letters, digits, dot, - and _ ({most} at most)", read)


def matching_text(form: re.Pattern[str], noun: str) -> Check:
    """A text of a form."""
    return Check(
        noun, lambda value: _validate_value(isinstance(value, str) and form.match(value) is not None, value)
    )


def choice(choices: Collection[str], noun: str = "") -> Check:
    """One of these words."""
    words = noun or f"one of {', '.join(choices)}"
    return Check(words, lambda value: _validate_value(isinstance(value, str) and value in choices, value))


FLAG = Check("true or false", lambda value: _validate_value(isinstance(value, bool), value))


def _day(value: Any) -> str:
    return date.fromisoformat(_validate_value(isinstance(value, str), value)).isoformat()


def timestamp(text: str) -> datetime:
    """The text of an instant as an aware datetime; without a zone it is UTC. Raises ValueError."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _timestamp(value: Any) -> str:
    try:
        return timestamp(_validate_value(isinstance(value, str), value)).astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError from None


DAY = Check("a day as 2026-11-20", _day)
TIMESTAMP = Check("a time as 2026-11-20T06:00:00Z", _timestamp)


def or_null(check: Check) -> Check:
    """The same, or null: nothing is known, or set."""
    return Check(f"{check.takes}, or null", lambda value: None if value is None else check.read(value))


def mapping_of(check: Check, noun: str = "") -> Check:
    """An object of names and values that are all alike."""

    def read(value: Any) -> dict[str, Any]:
        good = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
        return {name: check.read(each) for name, each in _validate_value(good, value).items()}

    return Check(noun or f"an object of name: {check.takes}", read)


def record(**checks: Check) -> Check:
    """An object of exactly these values."""

    def read(value: Any) -> dict[str, Any]:
        good = isinstance(value, Mapping) and set(value) == set(checks)
        return {name: checks[name].read(each) for name, each in _validate_value(good, value).items()}

    return Check(f"an object of {', '.join(checks)}", read)


def truth() -> Check:
    """True or false, written as such."""
    return Check("true or false", lambda value: _validate_value(isinstance(value, bool), value))


def either(first: Check, second: Check) -> Check:
    """What one of two checks takes."""

    def read(value: Any) -> Any:
        return (first if first.accepts(value) else second).read(value)

    return Check(f"{first.takes}, or {second.takes}", read)


def list_of(check: Check, noun: str) -> Check:
    """A list of values that are all alike."""
    return Check(
        noun, lambda value: [check.read(each) for each in _validate_value(isinstance(value, list), value)]
    )


def join_path(where: str, name: object) -> str:
    """The path of a field; of what a document may name itself, only so much."""
    return f"{where}.{str(name)[:MOST_KEY]}" if where else str(name)[:MOST_KEY]


def refuse_unknown(
    names: Iterable[object],
    known: Collection[str],
    where: str,
    kind: type[BadInput] = BadInput,
    message: str = "is not known; known: {known}",
) -> None:
    """Raises `kind` naming the first name that isn't known, and those that are."""
    for name in names:
        if name not in known:
            raise kind(join_path(where, name), message.format(known=", ".join(known) or "none"))


def refuse_longer(value: Any, most: int, where: str, noun: str = "") -> None:
    """Raises `Forbidden` for a list or a text that is longer than `most`: it costs whoever reads it."""
    if len(value) > most:
        raise Forbidden(where, f"takes at most {most}{noun}, not {len(value)}")
