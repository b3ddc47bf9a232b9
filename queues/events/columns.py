"""From the cells of a file to those of an event: which column is the time, the type, the key, and the value.

Columns with the names of the schema are used for these unless another column was named. All other columns become
`attributes`, a JSON object.

Times are ISO 8601 (UTC without a zone) or numbers. The unit of a number follows from the column's name if it ends in
`_us`, `_ms` or `_s`, and otherwise from its size: from 1e14 microseconds, from 1e11 milliseconds, below seconds. An
empty time is now.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from common.errors import BadInput, MalformedEvent
from common.parsing import parse_any_number
from queues.events import block

_TO_ESCAPE = r'["\\\x00-\x1f]'


@dataclass(frozen=True)
class Columns:
    """The file's columns for the parts of an event; None: the column of that name, if there is one."""

    time: str | None = None
    type: str | None = None
    key: str | None = None
    value: str | None = None
    source: str | None = None

    def build_source_map(self) -> dict[str, str]:
        """Return {part of the event: column of the file}, with every part named."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        taken = {column for column in named.values() if column}
        # A column that was named for another part is not used for its own name too.
        own = {part: part for part in block.FIELDS if part not in taken}
        return {**own, **{part: column for part, column in named.items() if column}}

    def check(self, header: Sequence[str]) -> None:
        """Raise `BadInput` that names the part whose named column is not in the file."""
        for field in fields(self):
            column = getattr(self, field.name)
            if column is not None and column not in header:
                raise BadInput(field.name, f"column {column} is not in the file. The columns are {', '.join(header)}.")


class Mapper:
    """A converter from named cells to events.

    `batch` converts many rows at once and strictly. `row` converts one row, with an error that names its fault. Both
    give the same events; `batch` may reject what `row` accepts, never vice versa.
    """

    def __init__(self, columns: Columns) -> None:
        self._sources = columns.build_source_map()
        self._known = set(self._sources.values())
        self._unit_ns = block.find_unit_ns(self._sources.get("time", "time"))

    def convert_row(self, cells: Mapping[str, Any], now_us: int) -> tuple[Any, ...]:
        """Return one event's cells in the order of the schema. Raises `MalformedEvent` that names the field."""
        get = {part: cells.get(column) for part, column in self._sources.items()}
        return (
            block.parse_text(get.get("id"), "id"),
            self._parse_time_us(get.get("time"), now_us),
            block.parse_text(get.get("type"), "type"),
            block.parse_text(get.get("source"), "source"),
            block.parse_text(get.get("key"), "key"),
            block.parse_value(_parse_number(get.get("value"))),
            self._merge_attributes(get.get("attributes"), cells),
        )

    def convert_to_batch(self, rows: Sequence[dict[str, Any]], now_us: int) -> pa.RecordBatch:
        """Convert many rows at once. Raises `MalformedEvent`, `TypeError` or Arrow's errors if one is not plain."""
        shapes = set(map(tuple, rows))
        if len(shapes) == 1:
            columns = group_by_name(shapes.pop(), map(dict.values, rows))
            return self.convert_columns(columns, len(rows), now_us)
        names = {name for shape in shapes for name in shape if name in self._known}
        columns = {name: [row.get(name) for row in rows] for name in names}
        own = columns.get(self._sources.get("attributes", ""), [None] * len(rows))
        texts = [self._merge_attributes(cell, row) for cell, row in zip(own, rows, strict=True)]
        return self._build_batch(columns, pa.array(texts, pa.string()), len(rows), now_us)

    def convert_columns(self, columns: Mapping[str, Sequence[Any]], count: int, now_us: int) -> pa.RecordBatch:
        """Do the same as `batch`, from whole columns by name: every row has every one of them."""
        more = {name: cells for name, cells in columns.items() if name not in self._known}
        own = columns.get(self._sources.get("attributes", ""))
        if own is None or set(map(type, own)) == {NoneType}:
            texts = _build_json_objects(more, count)
        else:
            texts = pa.array(
                [self._merge_attributes(*pair) for pair in zip(own, _iterate_rows(more, count), strict=True)]
            )
        return self._build_batch(columns, texts, count, now_us)

    def _build_batch(
        self, columns: Mapping[str, Sequence[Any]], attributes: pa.Array, count: int, now_us: int
    ) -> pa.RecordBatch:
        cells = {part: columns.get(column) for part, column in self._sources.items()}
        arrays = [
            _convert_texts(cells.get("id"), count, "id"),
            self._convert_times(cells.get("time"), count, now_us),
            *(_convert_texts(cells.get(part), count, part) for part in ("type", "source", "key")),
            _convert_values(cells.get("value"), count),
            attributes,
        ]
        return block.from_columns(
            pa.RecordBatch.from_arrays(arrays, schema=block.SCHEMA), now_us, attributes_are_read=True
        )

    def _parse_time_us(self, value: object, now_us: int) -> int:
        if value is None:
            return now_us
        number = value if (type(value) is str and value[4:5] == "-" and value[:4].isdecimal()) else _parse_number(value)
        return block.parse_time_us(number, now_us, self._unit_ns, value)

    def _convert_times(self, cells: Sequence[Any] | None, count: int, now_us: int) -> pa.Array:
        """Convert the times of many rows: numbers with numpy, text with Arrow, the rest one by one."""
        cells = cells or ()
        types = set(map(type, cells)) - {NoneType}
        if not types:
            times: NDArray[np.int64] | list[int] = np.full(count, now_us)
        elif types in ({int}, {float}) and None not in cells:
            numbers = np.array(cells, np.int64) if types == {int} else np.array(cells, np.float64)
            times = block.convert_numbers_to_us(numbers, self._unit_ns)
        elif types == {str} and None not in cells and cells[0][:1].isdigit() and "T" in cells[0]:
            return parse_iso_times(pa.array(cells, pa.string()))
        else:
            times = [self._parse_time_us(cell, now_us) for cell in cells]
        return pa.array(times, pa.int64()).cast(block.SCHEMA.field("time").type)

    def _merge_attributes(self, own: object, cells: Mapping[str, Any]) -> str | None:
        """Return the attributes column, merged with every column that has no other use, as one object."""
        known = self._known
        more = {name: cell for name, cell in cells.items() if name not in known}
        if not more:
            return _format_object(own) if type(own) is dict else block.parse_attributes(own)
        if own is not None:
            more = {**(own if type(own) is dict else orjson.loads(str(block.parse_attributes(own)))), **more}
        return _format_object(more)


def group_by_name(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> dict[str, Sequence[Any]]:
    """Group rows of equal shape as columns."""
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def convert_rows_to_batch(rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Convert checked rows to a batch."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in block.FIELDS]
    return block.from_rows(columns)


def _convert_texts(cells: Sequence[Any] | None, count: int, part: str) -> pa.Array:
    if cells is None:
        return pa.nulls(count, pa.string())
    try:
        return pa.array(cells, pa.string())
    except (pa.ArrowInvalid, TypeError):
        return pa.array([block.parse_text(cell, part) for cell in cells], pa.string())


def _convert_values(cells: Sequence[Any] | None, count: int) -> pa.Array:
    if cells is None:
        return pa.nulls(count, pa.float64())
    if set(map(type, cells)) <= {float, int, NoneType}:
        return pa.array(cells, pa.float64())
    return pa.array([block.parse_value(_parse_number(cell)) for cell in cells], pa.float64())


def _parse_number(value: object) -> object:
    """Return text that is a number as a number, empty text as None, and everything else as it is."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return None
    number = parse_any_number(text)
    return value if number is None else number


def _iterate_rows(columns: Mapping[str, Sequence[Any]], count: int) -> Iterable[dict[str, Any]]:
    """Return columns as rows; without columns, `count` empty rows."""
    if not columns:
        return ({} for _ in range(count))
    return (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _build_json_objects(columns: Mapping[str, Sequence[Any]], count: int) -> pa.Array:
    """Return one JSON object per row. Arrow joins text without escapes. Everything else is written row by row."""
    if not columns:
        return pa.nulls(count, pa.string())
    arrays = [_quote_cells(cells) for cells in columns.values()]
    if any(array is None for array in arrays):
        return pa.array([_format_object(row) for row in _iterate_rows(columns, count)], pa.string())
    pieces: list[Any] = []
    for opening, name, array in zip("{" + "," * len(arrays), columns, arrays, strict=False):
        pieces += [opening + _format_object({name: 0})[1:-2], array]
    return pc.binary_join_element_wise(*pieces, "}", "")


def _quote_cells(cells: Sequence[Any]) -> pa.Array | None:
    """Return texts in quotes and None as null, or None if a cell is no text or needs escaping."""
    if not set(map(type, cells)) <= {str, NoneType}:
        return None
    texts = pa.array(cells, pa.string())
    if pc.any(pc.match_substring_regex(texts, _TO_ESCAPE)).as_py():
        return None
    return pc.coalesce(pc.binary_join_element_wise('"', texts, '"', ""), "null")


def _format_object(document: Mapping[str, Any]) -> str:
    """Return an object as JSON text. Raises `MalformedEvent` if it has no such form or is too long."""
    try:
        text = orjson.dumps(document).decode()
    except TypeError as error:
        raise MalformedEvent("attributes", f"must be a JSON object ({error}).") from None
    if len(text) > block.MAX_ATTRIBUTES:
        raise MalformedEvent("attributes", f"must be a JSON object with at most {block.MAX_ATTRIBUTES} characters.")
    return text


def parse_iso_times(texts: pa.Array) -> pa.Array:
    """Parse ISO 8601 texts that all have a zone or all have none. Raises Arrow's errors for any other."""
    kind = block.SCHEMA.field("time").type
    last = texts[0].as_py()
    zoned = last.endswith("Z") or "+" in last or last.count("-") > 2
    return texts.cast(kind) if zoned else texts.cast(pa.timestamp("us")).cast(kind)
