"""Readers of external JSON and YAML documents, limited in size, depth, and digits.

Any part of Weir can store and print the values. An error names the position, such as `observations[0].measured`.
Rejected are numbers that are not finite or have too many digits, duplicate keys, text that is not Unicode (half of a
surrogate pair), and in YAML anchors, aliases, and tags, by which a short text expands to a large one or to something
other than it seems.
"""

import codecs
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TextIO, TypeAlias, TypeVar

import orjson
import yaml

from common.errors import BadInput, Forbidden
from common.parsing import read_plain_scalar

# Standard input, if there is one: the caller of a program may have closed it.


def get_standard_input(field: str) -> TextIO:
    """Return the stream for `-`, in UTF-8 like files. Raises `BadInput` that names the field if it is closed."""
    if sys.stdin is None:
        raise BadInput(field, "standard input is closed; pass a file, or open standard input")
    if isinstance(sys.stdin, io.TextIOWrapper):
        # The default is the locale's encoding, which changes names and reads half of what is not text.
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    return sys.stdin


MAX_JSON_BYTES = 64 * 2**20
MAX_YAML_CHARACTERS = 100_000
MAX_YAML_VALUES = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 40
T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?\d[\d_]*(?:\.[\d_]*)?(?:[eE][-+]?\d+)?\Z")
_STEP = re.compile(r"\[\d+\]|[^.\[\]]+")
_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Refused:
    """Placeholder of a rejected value until its position is known."""

    def __init__(self, why: str) -> None:
        self.why = why


class _LocatedError(Exception):
    """A rejection that collects its position on its way up."""

    def __init__(self, why: str, kind: type[BadInput] = BadInput) -> None:
        super().__init__(why)
        self.why, self.kind = why, kind
        self.steps: list[str] = []

    def build_refusal(self, name: str) -> BadInput:
        path = "".join(reversed(self.steps)).removeprefix(".")
        return self.kind(path or name, self.why)


# What editors, spreadsheets, and Windows put in front of a text, the longest first.
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decode_text(content: bytes, errors: str = "strict") -> str:
    """Return the text of a file or an answer: UTF-8, or as its byte order mark says. Raises `UnicodeDecodeError`."""
    encoding = next((codec for mark, codec in _MARKS if content.startswith(mark)), "utf-8")
    return content.decode(encoding, errors)


def parse_json(content: bytes) -> Any:
    """Parse JSON from outside as it is.

    It may have a byte order mark, and NaN and Infinity, which Python and JavaScript write. The code that reads a number
    says which it accepts. Raises `orjson.JSONDecodeError`, and `RecursionError` if it is nested too deeply.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as fault:
        try:
            return json.loads(decode_text(content, "surrogatepass"), parse_int=_bounded_integer)
        except ValueError:
            raise fault from None


def _bounded_integer(digits: str) -> float:
    return int(digits) if len(digits) < 20 else math.inf


def read_json(text: str | bytes, name: str = "document") -> Any:
    """Return the value of a JSON text. Raises `BadInput` that names the position, or `name` for the whole."""
    if len(text) > MAX_JSON_BYTES:
        raise Forbidden(name, f"must be at most {MAX_JSON_BYTES // 2**20} MiB")
    try:
        value = json.loads(
            text.removeprefix("\ufeff") if isinstance(text, str) else decode_text(text),
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
            object_pairs_hook=_build_object,
        )
    except RecursionError:
        raise Forbidden(name, f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise BadInput(name, f"is not valid JSON ({_describe_location(error)})") from None
    return check_value(value, name)


def _describe_location(error: ValueError) -> str:
    return str(error) if isinstance(error, json.JSONDecodeError) else "it is not UTF-8"


def check_value(value: T, name: str) -> T:
    """Return the same value if everything in it is accepted. Raises `BadInput` that names the position."""
    try:
        _check(value, 0)
    except _LocatedError as found:
        raise found.build_refusal(name) from None
    return value


def _check(value: object, depth: int) -> None:
    if type(value) is str:
        _check_text(value)
    elif type(value) is float:
        if not math.isfinite(value):
            raise _LocatedError("must be a finite number")
    elif type(value) is _Refused:
        raise _LocatedError(value.why)
    elif type(value) is dict or type(value) is list:
        if depth >= MAX_DEPTH:
            raise _LocatedError(f"is nested deeper than {MAX_DEPTH} levels", Forbidden)
        _check_parts(value, depth)


def _check_parts(value: dict[object, object] | list[object], depth: int) -> None:
    step: object = None
    try:
        if type(value) is dict:
            for step, part in value.items():
                _check_text(step)
                _check(part, depth + 1)
        else:
            for step, part in enumerate(value):  # noqa: B007  it is named below
                _check(part, depth + 1)
    except _LocatedError as found:
        found.steps.append(f"[{step}]" if type(step) is int else f".{_format_key(step)}")
        raise


def _get_line_number(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _format_key(key: object) -> str:
    return str(key)[:80].encode(errors="replace").decode()


def _check_text(text: object) -> None:
    if type(text) is str and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _LocatedError("contains an unpaired surrogate, which is not valid Unicode") from None


def _constant(token: str) -> _Refused:
    return _Refused(f"must be a finite number, not {token}")


def _float(text: str) -> float | _Refused:
    """Parse a number. 1e999 overflows to infinity, and is rejected like Infinity."""
    value = float(text)
    return value if math.isfinite(value) else _Refused(f"must be a finite number, not {text[:20]}")


def _integer(text: str) -> int | _Refused:
    if len(text) > MAX_DIGITS:
        return _Refused(f"must have at most {MAX_DIGITS} digits, not {len(text)}")
    return int(text)


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                made[key] = _Refused("is a duplicate key")
            seen.add(key)
    return made


@dataclass
class YamlDocument:
    """The value of a YAML text, and the positions of its parts."""

    value: Any = None
    lines: dict[str, int] = field(default_factory=dict)

    def find_line(self, place: str) -> int:
        """Return the line (from 1) of a place such as `rules[0].enrich.table`.

        If the place is missing, return the line of its innermost existing part.
        """
        line, path = 1, ""
        for step in _STEP.findall(place):
            path += step if step.startswith("[") or not path else f".{step}"
            if path not in self.lines:
                break
            line = self.lines[path]
        return line


def read_yaml(text: str, name: str = "document") -> YamlDocument:
    """Parse a YAML text. Raises `BadInput` that names the position in it (or `name`) and the line."""
    if len(text) > MAX_YAML_CHARACTERS:
        raise Forbidden(name, f"must have at most {MAX_YAML_CHARACTERS} characters, not {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(name, "contains an unpaired surrogate, which is not valid Unicode") from None
    try:
        return _Builder(name).document(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise BadInput(name, f"is not valid YAML: {error.problem or error.context}{line}") from None
    except yaml.YAMLError:
        raise BadInput(name, "is not valid YAML: it contains characters that YAML does not allow") from None


_Node: TypeAlias = yaml.ScalarEvent | yaml.CollectionStartEvent | yaml.AliasEvent


class _Builder:
    """Builds the value from the scanner's tokens, so that depth and size are checked while parsing."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made = YamlDocument()
        self._values = 0

    def document(self, events: Iterator[Any]) -> YamlDocument:
        self._events = events
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse("", event, "must contain one document")
                self._made.value = self._resolve_value(next(events), "", 0)
        return self._made

    def _resolve_value(self, event: _Node, path: str, depth: int) -> object:
        self._values += 1
        if self._values > MAX_YAML_VALUES:
            self._refuse(path, event, f"must have at most {MAX_YAML_VALUES} values", Forbidden)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            self._refuse(path, event, "must not contain anchors or aliases (& or *)", Forbidden)
        if event.tag not in (None, "!"):
            self._refuse(path, event, "must not contain tags (!)", Forbidden)
        if isinstance(event, yaml.ScalarEvent):
            return self._parse_scalar(event, path)
        if depth >= MAX_DEPTH:
            self._refuse(path, event, f"is nested deeper than {MAX_DEPTH} levels", Forbidden)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._build_mapping(path, depth)

    def _sequence(self, path: str, depth: int) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            inner = f"{path}[{len(items)}]"
            self._made.lines[inner] = _get_line_number(event)
            items.append(self._resolve_value(event, inner, depth + 1))
        return items

    def _build_mapping(self, path: str, depth: int) -> dict[object, object]:
        made: dict[object, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse(path, event, "must have scalar keys such as text or numbers", Forbidden)
            key = self._resolve_value(event, path, depth + 1)
            inner = f"{path}.{_format_key(key)}".removeprefix(".")
            if key in made:
                self._refuse(inner, event, "is a duplicate key")
            self._made.lines[inner] = _get_line_number(event)
            made[key] = self._resolve_value(next(self._events), inner, depth + 1)
        return made

    def _parse_scalar(self, event: yaml.ScalarEvent, path: str) -> bool | int | float | str | None:
        value = event.value
        try:
            _check_text(value)
        except _LocatedError as found:
            self._refuse(path, event, found.why)
        if not event.implicit[0]:  # in quotes
            return value
        if len(value) > MAX_DIGITS:
            if _NUMBER.match(value):
                self._refuse(path, event, f"must have at most {MAX_DIGITS} digits, not {len(value)}")
            return value
        try:
            return read_plain_scalar(value)
        except ValueError as error:
            self._refuse(path, event, str(error))

    def _refuse(self, path: str, event: yaml.Event, why: str, kind: type[BadInput] = BadInput) -> NoReturn:
        raise kind(path or self._name, f"{why} (line {_get_line_number(event)})")
