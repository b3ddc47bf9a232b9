"""Parameters of batch jobs, declared once with kind, default, and help, and read from text or JSON."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from common import checks
from common.errors import BadInput


@dataclass(frozen=True)
class JobParameter:
    """A parameter.

    kind: integer, number, name, names (separated by commas), text, choice, day (2026-11-20), `moment` (ISO 8601;
    without a zone: UTC). Values are stored as JSON: a day and a moment as text. Without a default, a parameter is
    required; a default of None makes it optional.
    """

    name: str
    kind: str
    help: str
    default: Any = ...
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """Return the validated value. Raises BadInput naming the parameter and its valid values."""
        if value is None or value == "":
            if self.default is ...:
                raise BadInput(self.name, f"is missing: {self.help}.")
            return self.default
        return self.check().validate(value, self.name, end=".")

    def check(self) -> checks.Check:
        """Return the validated value.

        Text is accepted for a number, because commands and forms have only text.
        """
        return {
            "integer": checks.from_text(checks.accept_whole_number(self.least, self.most), checks.convert_to_integer),
            "number": checks.from_text(checks.accept_number(self.least, self.most), checks.convert_to_float),
            "name": _NAMED,
            "names": checks.Check("names separated by commas", _parse_names),
            "text": checks.accept_text(),
            "choice": checks.accept_choice(self.choices),
            "day": _limit_to_event_times(checks.DAY),
            "moment": _limit_to_event_times(checks.TIMESTAMP),
        }[self.kind]

    def takes(self) -> str:
        """Return the valid values, in words."""
        return self.check().takes


def read_parameters(job: str, declared: Iterable[JobParameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters with defaults. Raises BadInput for an unknown name or an invalid value."""
    known = {parameter.name: parameter for parameter in declared}
    message = f"is not a parameter of {job}; the parameters are {{known}}."
    checks.refuse_unknown(values, known, "", message=message)
    return {name: parameter.read(values.get(name)) for name, parameter in known.items()}


def _limit_to_event_times(check: checks.Check) -> checks.Check:
    """Limit a check to the years that events may have.

    A day before the first or after the last of all days is invalid.
    """

    def read(value: Any) -> str:
        kept = str(check.read(value))
        if not "1970" <= kept < "2200":
            raise ValueError
        return kept

    return checks.Check(f"{check.takes}, from 1970 to 2199", read)


_NAMED = checks.accept_matching_text(checks.NAME, "a name of letters, digits, dots, -, and _")


def _parse_names(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError
    return [_NAMED.read(part.strip() if isinstance(part, str) else part) for part in parts]
