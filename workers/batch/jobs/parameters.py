"""The parameters of batch jobs: declared once with kind, default and help; read from text or JSON alike."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from queues.errors import BadInput
from workers.steering.names import NAME


@dataclass(frozen=True)
class JobParameter:
    """kind: integer, number, name, names (separated by commas), text, choice, day (2026-11-20), `moment`
    (ISO 8601; without a zone: UTC). Values are kept as JSON: a day and an instant as text.

    Without a default a parameter is required; None as default means: may be left out.
    """

    name: str
    kind: str
    help: str
    default: Any = ...
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """The value, checked. Raises BadInput naming the parameter and saying what it takes."""
        if value is None or value == "":
            if self.default is ...:
                raise BadInput(self.name, f"is missing: {self.help}.")
            return self.default
        try:
            return _READERS[self.kind](self, value)
        except (ValueError, TypeError, OverflowError):
            raise BadInput(self.name, f"takes {self.takes()}, not {value!r}.") from None

    def takes(self) -> str:
        """What it takes, in words."""
        return {
            "integer": f"a whole number{self._range()}",
            "number": f"a number{self._range()}",
            "name": "letters, digits, dot, - and _",
            "names": "names separated by commas",
            "text": "a text",
            "choice": " or ".join(self.choices),
            "day": "a day as 2026-11-20",
            "moment": "a time as 2026-11-20T06:00:00Z",
        }[self.kind]

    def _range(self) -> str:
        low = "" if self.least == -math.inf else f" from {self.least:g}"
        return low if self.most == math.inf else f"{low} to {self.most:g}"


def read_parameters(job: str, declared: Iterable[JobParameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters, defaults filled in. Raises BadInput for an unknown name or a value that doesn't fit."""
    known = {parameter.name: parameter for parameter in declared}
    for name in given:
        if name not in known:
            takes = ", ".join(known) or "none"
            raise BadInput(str(name), f"is unknown to {job}; its parameters are: {takes}.")
    return {name: parameter.read(given.get(name)) for name, parameter in known.items()}


def timestamp(text: str) -> datetime:
    """An instant's text as an aware datetime."""
    read = datetime.fromisoformat(text)
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _integer(parameter: JobParameter, value: Any) -> int:
    number = _number(parameter, value)
    if number != int(number):
        raise ValueError
    return int(number)


def _number(parameter: JobParameter, value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value)
    if not math.isfinite(number) or not parameter.least <= number <= parameter.most:
        raise ValueError
    return number


def _name(parameter: JobParameter, value: Any) -> str:
    if not NAME.match(value):
        raise ValueError
    return str(value)


def _names(parameter: JobParameter, value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return [_name(parameter, part.strip()) for part in parts]


def _text(parameter: JobParameter, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _choice(parameter: JobParameter, value: Any) -> str:
    if value not in parameter.choices:
        raise ValueError
    return str(value)


def _day(parameter: JobParameter, value: Any) -> str:
    return date.fromisoformat(value).isoformat()


def _moment(parameter: JobParameter, value: Any) -> str:
    return timestamp(value).astimezone(UTC).isoformat()


_READERS = {
    "integer": _integer,
    "number": _number,
    "name": _name,
    "names": _names,
    "text": _text,
    "choice": _choice,
    "day": _day,
    "moment": _moment,
}
