"""A declared value: name, default, range, unit and help in one place; and reading documents against
declarations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from queues.errors import BadInput


@dataclass(frozen=True)
class Parameter:
    """One value a law, a guard or an observation takes. The range includes both ends."""

    name: str
    unit: str
    help: str
    default: float | int | str | None = None
    minimum: float = 0.0
    maximum: float = 1e12
    kind: Literal["number", "integer", "choice"] = "number"
    choices: tuple[str, ...] = ()
    required: bool = False

    def takes(self) -> str:
        """In words, what this takes."""
        if self.kind == "choice":
            return f"takes one of {', '.join(self.choices)}"
        noun = "a whole number" if self.kind == "integer" else "a number"
        return f"takes {noun} from {self.minimum:g} to {self.maximum:g} ({self.unit})"

    def check(self, value: Any, where: str) -> Any:
        """The value, or `BadInput` for `where.name` saying what it takes."""
        if not (self._is_choice(value) if self.kind == "choice" else self._is_number(value)):
            raise BadInput(f"{where}.{self.name}", f"{self.takes()}, not {_short(value)}")
        return int(value) if self.kind == "integer" else value

    def _is_choice(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.choices

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        # NaN fails the comparison, infinities fall outside every range, and a huge integer is compared
        # exactly.
        if not self.minimum <= value <= self.maximum:
            return False
        return self.kind != "integer" or float(value).is_integer()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_object(document: Any, where: str) -> Mapping[str, Any]:
    """The document when it is a JSON object, or `BadInput`."""
    if not isinstance(document, Mapping):
        raise BadInput(where, f"takes an object, not {_short(document)}")
    return document


def refuse_unknown(document: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """`BadInput` naming the first key that isn't known, and the ones that are."""
    for key in document:
        if key not in known:
            raise BadInput(
                f"{where}.{key}" if where else str(key), f"is not known; known: {', '.join(known)}"
            )


def read_values(declared: Sequence[Parameter], document: Any, where: str) -> dict[str, Any]:
    """Every declared value, from the document or by default, checked.

    Raises `BadInput` naming `where.key` when a key is unknown, a required one missing, or a value out of
    range.
    """
    given = read_object({} if document is None else document, where)
    refuse_unknown(given, [parameter.name for parameter in declared], where)
    return {parameter.name: _read_value(parameter, given, where) for parameter in declared}


def _read_value(parameter: Parameter, given: Mapping[str, Any], where: str) -> Any:
    if parameter.name in given:
        return parameter.check(given[parameter.name], where)
    if parameter.required:
        raise BadInput(f"{where}.{parameter.name}", f"is missing; it {parameter.takes()}")
    return parameter.default
