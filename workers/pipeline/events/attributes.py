"""Declared attributes as columns, parsed from the events' JSON before the rules are applied.

Events repeat their attributes, so each distinct text of a batch is parsed once. A value that can't be read as declared
is a fault of that event, described in words; the event goes to the dead letters with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

TYPES = {"text": pa.string(), "number": pa.float64(), "integer": pa.int64(), "boolean": pa.bool_()}
SQL_TYPES = {"text": "string", "number": "double", "integer": "bigint", "boolean": "boolean"}
NUMBERS = ("number", "integer")
_NOUNS = {"integer": "64-bit whole number", "text": "string"}


@dataclass(frozen=True)
class Attribute:
    """A declared attribute.

    kind: text, number (a double), integer (of 64 bits, exact) or boolean. required: an event without it is faulty;
    otherwise the value is null.
    """

    name: str
    kind: str
    required: bool = False

    def read(self, document: Mapping[str, Any]) -> Any:
        """Return the value. Raises `ValueError` that says what is wrong."""
        value = document.get(self.name)
        if value is None:
            if self.required:
                raise ValueError(f"attribute {self.name} is missing")
            return None
        if not _is_of(value, self.kind):
            noun = _NOUNS.get(self.kind, self.kind)
            raise ValueError(f"attribute {self.name} must be a {noun}, not {_format_short_value(value)}")
        return float(value) if self.kind == "number" else value


def extract(texts: pa.Array, attributes: tuple[Attribute, ...]) -> tuple[list[pa.Array], pa.Array]:
    """Return a column for each attribute, and the fault of each row or null."""
    encoded = texts.dictionary_encode()
    # One more element than there are texts, for events without attributes.
    documents = [*encoded.dictionary.to_pylist(), None]
    places = pc.fill_null(encoded.indices, len(documents) - 1)
    rows = [_parse_row(text, attributes) for text in documents]
    columns = [
        pa.array([row[0][place] for row in rows], TYPES[attribute.kind]).take(places)
        for place, attribute in enumerate(attributes)
    ]
    return columns, pa.array([row[1] for row in rows], pa.string()).take(places)


def _parse_row(text: str | None, attributes: tuple[Attribute, ...]) -> tuple[list[Any], str | None]:
    """Return the values of one text, and the first fault."""
    values: list[Any] = [None] * len(attributes)
    try:
        document = orjson.loads(text) if text else {}
        if not isinstance(document, dict):
            return values, "attributes are not a JSON object"
        for place, attribute in enumerate(attributes):
            values[place] = attribute.read(document)
    except orjson.JSONDecodeError as error:
        return [None] * len(attributes), f"attributes are not JSON ({error})"
    except ValueError as error:
        return [None] * len(attributes), str(error)
    return values, None


def find_ahead_faults(times_us: np.ndarray, now_us: int, ahead_us: int) -> pa.Array:
    """Return the fault of each row whose time is more than `ahead_us` after now."""
    ahead = times_us > now_us + ahead_us
    if not ahead.any():
        return pa.nulls(len(times_us), pa.string())
    seconds = f"more than {ahead_us / 1e6:g} s"
    cause = f"its time is {seconds} ahead of this host's clock; check the clock of its source"
    return pc.if_else(pa.array(ahead), cause, pa.scalar(None, pa.string()))


def _is_of(value: Any, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return type(value) is int and -(2**63) <= value < 2**63
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format_short_value(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else f"{text[:40]}…"
