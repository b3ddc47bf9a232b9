"""Declared values: name, default, range, unit, and help in one place, and reading documents against them.

Besides plain values (number, integer, choice, text, flag) a declaration may be `numbers` or `integers`, a list of them,
or a `table` of numbers; `names`, lists of names; `object`, an object of declared values, or `variant`, an object whose
`kind` selects the values; `rows`, a list of objects; or `map`, an object whose keys are names and whose values are all
alike.

Values that code reads as fields are declared as a `msgspec.Struct` whose fields have a `value`:

    q: Annotated[float, value("1/s²", "Weight of a difference.", 0.0, 1e9)] = 1.0

`list_parameters` derives the declarations from the Struct, and `build` its instance from values that were read.
"""

import functools
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from common import checks
from common.errors import BadInput
from common.stored_document import convert, convert_to_plain

MAX_SHOWN = 40
OTHER_KINDS = {
    "text": "must be text that is not empty",
    "flag": "must be true or false",
    "names": "must be a list of lists of names",
    "object": "must be a JSON object",
    "variant": "must be a JSON object",
    "rows": "must be a list of objects",
    "map": "must be a JSON object of names and values",
}
LISTS = ("numbers", "integers", "rows")
BOUNDED = (*LISTS, "map")
ScalarKind = Literal["number", "integer", "flag", "text"]
KINDS_OF_TYPES: dict[type, ScalarKind] = {float: "number", int: "integer", bool: "flag", str: "text"}
KINDS_OF_LISTS: dict[type, Literal["numbers", "integers"]] = {float: "numbers", int: "integers"}
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Parameter:
    """One value that a law, a guard, or an observation takes. The range includes both ends."""

    name: str
    unit: str
    help: str
    default: Any = None
    minimum: float = 0.0
    maximum: float = 1e12
    kind: Literal[
        "number",
        "integer",
        "choice",
        "text",
        "flag",
        "numbers",
        "integers",
        "table",
        "names",
        "object",
        "variant",
        "rows",
        "map",
        "name",
        "name_list",
        "day",
        "moment",
    ] = "number"
    choices: tuple[str, ...] = ()
    required: bool = False
    items: tuple["Parameter", ...] = ()  # for an object or row; for a map the declaration of its values
    or_null: bool = False  # null means "none"; if required, it has to be given
    most: int | None = None  # items of a list or map, or characters of a text
    variants: tuple[tuple[str, tuple["Parameter", ...]], ...] = ()  # kind → its further values
    # For the field of a form: its label, whether it has several lines, and name → a text to start from.
    title: str = ""
    many_lines: bool = False
    examples: Mapping[str, str] = dataclass_field(default_factory=dict, hash=False, repr=False)

    def takes(self) -> str:
        span = f"from {self.minimum:g} to {self.maximum:g} ({self.unit})"
        if self.kind == "choice":
            text = f"must be one of {', '.join(self.choices)}"
        elif self.kind == "text" and self.most is not None:
            text = f"must be text of 1 to {self.most} characters"
        elif self.kind in OTHER_KINDS:
            text = OTHER_KINDS[self.kind]
        elif self.kind == "table":
            text = f"must be lists of numbers {span}, all of the same length"
        elif self.kind in ("numbers", "integers"):
            text = f"must be a list of {'whole ' if self.kind == 'integers' else ''}numbers {span}"
        else:
            text = f"must be {'a whole number' if self.kind == 'integer' else 'a number'} {span}"
        most = f", at most {self.most}" if self.kind in BOUNDED and self.most is not None else ""
        return f"{text}{most}{', or null' if self.or_null else ''}"

    def check(self, value: Any, where: str) -> Any:
        """Return the value, or raise `BadInput` for `where.name` with what it takes."""
        if self.or_null and value is None:
            return None
        if self._is_usual(value):
            return [*value] if type(value) is list else value
        if not self._fits(value):
            raise BadInput(
                f"{where}.{self.name}", f"{self.takes()}, not {checks.shorten_for_message(value, MAX_SHOWN)}"
            )
        if self.kind == "numbers":
            return [float(item) for item in value]
        if self.kind == "integers":
            return [int(item) for item in value]
        if self.kind == "table":
            return [[float(item) for item in row] for row in value]
        if self.kind in ("object", "variant"):
            return read_values(self._list_parts(value, where), value, f"{where}.{self.name}")
        if self.kind == "rows":
            return [read_values(self.items, row, f"{where}.{self.name}[{at}]") for at, row in enumerate(value)]
        if self.kind == "map":
            inner = f"{where}.{self.name}"
            return {key: replace(self.items[0], name=key).check(item, inner) for key, item in value.items()}
        return int(value) if self.kind == "integer" else value

    @functools.cached_property
    def usual(self) -> type | None:
        """Return the type of number that needs no conversion if it is in range; None if this takes no number."""
        return {"number": float, "integer": int}.get(self.kind)

    def _is_usual(self, value: object) -> bool:
        """Return whether this takes the value as it is, because it is a number, a list of numbers, or a flag."""
        of = type(value)
        if (of is float and self.kind == "number") or (of is int and self.kind in ("number", "integer")):
            return self.minimum <= value <= self.maximum < math.inf  # type: ignore[operator] # no Boolean, no NaN
        if of is list and (self.most is None or len(value) <= self.most):  # type: ignore[arg-type]
            return self._are_usual_numbers(value)  # type: ignore[arg-type]
        return of is bool and self.kind == "flag"

    def _are_usual_numbers(self, values: Sequence[Any]) -> bool:
        """Return whether all values are finite numbers of type float in the range, without a call for each."""
        if self.kind != "numbers" or not values:
            return self.kind == "numbers"
        if set(map(type, values)) != {float} or not math.isfinite(sum(values)):
            return False
        return bool(self.minimum <= min(values) and max(values) <= self.maximum)

    def clip(self, value: Any) -> Any:
        """Return a value of this kind, with each number moved into its range."""
        if value is None or self._is_usual(value):
            return value
        if self.kind in ("number", "integer"):
            return self._clip_numbers(value)
        if self.kind in ("numbers", "integers"):
            return [*value] if self._are_usual_numbers(value) else [self._clip_numbers(item) for item in value]
        if self.kind in ("table", "names"):
            return [list(row) for row in value]
        if self.kind in ("object", "variant"):
            return clip_values(self._list_parts(value, ""), value)
        if self.kind == "rows":
            return [clip_values(self.items, row) for row in value]
        if self.kind == "map":
            return {key: self.items[0].clip(item) for key, item in value.items()}
        return value

    def _clip_numbers(self, value: float) -> float:
        if self.minimum <= value <= self.maximum:
            return value
        end = self.minimum if value < self.minimum else self.maximum
        return int(end) if isinstance(value, int) else float(end)

    def _list_parts(self, value: Mapping[str, Any], where: str) -> tuple["Parameter", ...]:
        if self.kind != "variant":
            return self.items
        known = dict(self.variants)
        kind = Parameter("kind", "choice", "", kind="choice", choices=tuple(known), required=True)
        return (kind, *known[read_values((kind,), {"kind": value.get("kind")}, f"{where}.{self.name}")["kind"]])

    def _fits(self, value: object) -> bool:
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        if self.kind == "text":
            return isinstance(value, str) and 0 < len(value) <= (self.most or len(value))
        if self.kind == "flag":
            return checks.FLAG.accepts(value)
        if self.kind in LISTS:
            if not isinstance(value, list) or (self.most is not None and len(value) > self.most):
                return False
            return self.kind == "rows" or self._are_usual_numbers(value) or all(map(self._is_number, value))
        if self.kind in ("table", "names"):
            if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
                return False
            if self.kind == "names":
                return all(isinstance(name, str) and name for row in value for name in row)
            alike = all(row and len(row) == len(value[0]) for row in value)
            return alike and all(self._is_number(item) for row in value for item in row)
        if self.kind in ("map", "object", "variant"):
            return isinstance(value, Mapping) and (self.most is None or len(value) <= self.most)
        return self._is_number(value)

    def _is_number(self, value: object) -> bool:
        if type(value) is float and self.kind == "numbers" and self.minimum <= value <= self.maximum < math.inf:
            return True
        if not checks.is_number(value, self.minimum, self.maximum):
            return False
        return self.kind not in ("integer", "integers") or float(value).is_integer()


def read_object(document: object, where: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise BadInput(where, f"must be a JSON object, not {checks.shorten_for_message(document, MAX_SHOWN)}")
    return document


def read_values(declared: Sequence[Parameter], document: object, where: str) -> dict[str, Any]:
    """Read every declared value, from the document or by default, and check it.

    Raise `BadInput` naming `where.key` if a key is unknown, a required one is missing, or a value is out of range.
    """
    given = read_object({} if document is None else document, where)
    if sum(parameter.name in given for parameter in declared) < len(given):
        checks.refuse_unknown(given, [parameter.name for parameter in declared], where)
    values = {}
    for parameter in declared:
        name = parameter.name
        item: Any = given.get(name)
        # A fast path for most values, without a call, because each tick reads dozens of values for each loop.
        if type(item) is parameter.usual and parameter.minimum <= item <= parameter.maximum < math.inf:  # type: ignore[operator]
            values[name] = item
        elif item is None and parameter.default is None and not parameter.required:
            values[name] = None  # where a value may be unknown, null says so
        elif name in given:
            values[name] = parameter.check(item, where)
        elif parameter.required:
            raise BadInput(f"{where}.{name}", f"is missing; it {parameter.takes()}")
        else:
            values[name] = parameter.default
    return values


def clip_values(declared: Sequence[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared values, each number moved into its range. Values that an older version left out stay out."""
    clipped = {}
    for parameter in declared:
        if (name := parameter.name) in values:
            item = values[name]
            # A fast path for most values, as in `read_values`.
            if type(item) is parameter.usual and parameter.minimum <= item <= parameter.maximum < math.inf:  # type: ignore[operator]
                clipped[name] = item
            else:
                clipped[name] = parameter.clip(item)
    return clipped


def check_range(minimum: float, maximum: float) -> None:
    if minimum > maximum:
        raise BadInput("parameters.minimum", f"must be at most maximum ({maximum}), not {minimum}")


def read_document(declared: Sequence[Parameter], document: object) -> dict[str, Any]:
    """Read the top level of a document with `read_values`; its fields need no prefix."""
    try:
        return read_values(declared, document, "document")
    except BadInput as error:
        raise BadInput(error.field.removeprefix("document."), error.message) from error


def value(
    unit: str,
    help: str,
    minimum: float = 0.0,
    maximum: float = 1e12,
    *,
    choices: tuple[str, ...] = (),
    required: bool = False,
    or_null: bool = False,
    most: int | None = None,
) -> Parameter:
    """Declare the field of a Struct; its name, kind, and default come from the field.

    required: a document must have the value although the field has a default.
    """
    return Parameter(
        "", unit, help, None, minimum, maximum, choices=choices, required=required, or_null=or_null, most=most
    )


@functools.cache
def list_parameters(struct: type[msgspec.Struct]) -> tuple[Parameter, ...]:
    """Return the declarations of a Struct's fields. Raise TypeError for a field without a `value`."""
    hints = get_type_hints(struct, include_extras=True)
    declared = []
    for field in msgspec.structs.fields(struct):
        parameter = _declare(field.encode_name, hints[field.name])
        has_default = field.default is not msgspec.NODEFAULT
        default = field.default if has_default else None
        if field.default_factory is not msgspec.NODEFAULT:
            has_default, default = True, field.default_factory()
        if isinstance(default, tuple | msgspec.Struct):  # as JSON has it
            default = list(default) if isinstance(default, tuple) else convert_to_plain(default)
        required = parameter.required or not has_default
        declared.append(replace(parameter, default=None if required else default, required=required))
    return tuple(declared)


def _declare(name: str, annotated: object) -> Parameter:
    if get_origin(annotated) is not Annotated:
        raise TypeError(f"{name}: {annotated} has no value(…)")
    annotation = get_args(annotated)[0]
    parameter: Parameter = get_args(annotated)[1]
    is_union = get_origin(annotation) in (Union, types.UnionType)
    options = [option for option in get_args(annotation) if option is not types.NoneType] if is_union else [annotation]
    if len(options) > 1:
        variants = tuple((str(option.__struct_config__.tag), list_parameters(option)) for option in options)
        return replace(parameter, name=name, kind="variant", variants=variants)
    of, inner = options[0], get_args(options[0])
    if get_origin(of) is Literal:
        return replace(parameter, name=name, kind="choice", choices=inner)
    if get_origin(of) is dict:
        return replace(parameter, name=name, kind="map", items=(_declare("", inner[1]),))
    if get_origin(of) in (list, tuple):
        if get_origin(inner[0]) in (list, tuple):
            return replace(parameter, name=name, kind="names" if get_args(inner[0])[0] is str else "table")
        if inner[0] in KINDS_OF_LISTS:
            return replace(parameter, name=name, kind=KINDS_OF_LISTS[inner[0]])
        return replace(parameter, name=name, kind="rows", items=list_parameters(inner[0]))
    if of in KINDS_OF_TYPES:
        return replace(parameter, name=name, kind="choice" if parameter.choices else KINDS_OF_TYPES[of])
    return replace(parameter, name=name, kind="object", items=list_parameters(of))


def build(struct: type[T], values: T | Mapping[str, Any]) -> T:
    """Return the Struct of values that `read_values` has checked; a Struct itself is unchanged."""
    return values if isinstance(values, struct) else convert(struct, values)
