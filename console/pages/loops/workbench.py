"""The controls of a loop: its main parameters, the others folded by topic, and its guard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import BadInput
from common.parameter import Parameter
from console.display.formats import format_for_input, get_human_unit
from console.display.loops import ParameterRow
from console.input.form_values import FLAGS, parse_number
from workers.control.parts.kind import Display

WOULD, UNIT = "would-", "unit-"  # fields of a parameter: the typed value, and its unit
OTHERS, GUARD = "Other parameters", "Guard: limits, delays, or holds an action"


@dataclass(frozen=True)
class Topic:
    """Parameters under a common title, folded by default."""

    title: str
    rows: list[ParameterRow]

    @property
    def overridden(self) -> int:
        """Return the number of overridden parameters in the topic, which is then not folded."""
        return sum(row.override is not None for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """The controls of a loop. main: parameters always shown. topics: the others."""

    main: list[ParameterRow]
    topics: list[Topic]


def build_workbench(display: Display, parameters: Sequence[ParameterRow], guard: Sequence[ParameterRow]) -> Workbench:
    """Sort the rows into the workbench."""
    rows = {row.name: row for row in parameters}
    main = [rows.pop(name) for name in display.main if name in rows] or [rows.pop(name) for name in list(rows)]
    topics = [Topic(title, [rows.pop(name) for name in names if name in rows]) for title, names in display.topics]
    topics += [Topic(OTHERS, list(rows.values())), Topic(GUARD, list(guard))]
    return Workbench(main=main, topics=[topic for topic in topics if topic.rows])


def parse_value(parameter: Parameter, text: str, field: str, unit: str = "") -> object:
    """Parse typed text as the parameter's kind, in its unit and range.

    unit: the typed unit, "" for the parameter's own. Raises `BadInput` that names the form's field.
    """
    value = _read(parameter, text, field)
    human = get_human_unit(parameter.unit, parameter.kind)
    if unit and unit != human.name:
        raise BadInput(field, f"must be in {human.name or parameter.unit}, not in {unit[:40]}.")
    if unit and not isinstance(value, str | bool):
        value = human.back(value)
    try:
        return parameter.check(value, field)
    except BadInput as error:
        raise BadInput(field, error.message) from None


def _read(parameter: Parameter, text: str, field: str) -> int | float | bool | str:
    words = text.strip()
    if parameter.kind == "choice":
        return words
    return FLAGS.get(words, words) if parameter.kind == "flag" else parse_number(words, field)


def read_value(parameter: Parameter, values: Mapping[str, str], name: str, present: object) -> object:
    """Return the value of a parameter's own field.

    `present`, the value in force, is returned if the field still shows it: an untouched value is not rounded. Raises
    `BadInput` that names the field.
    """
    text, unit = values[WOULD + name], values.get(UNIT + name, "")
    human = get_human_unit(parameter.unit, parameter.kind)
    is_shown = unit == human.name or (not unit and human.factor == 1.0)
    if is_shown and text.strip() == format_for_input(human.convert(present)):
        return present
    return parse_value(parameter, text, WOULD + name, unit)
