"""The columns of an event that an application reads, in Arrow and in Spark, and rows on their way between processes.

Declared attributes are columns too, parsed from the events' JSON before the rules are applied. Events repeat their
attributes, so each distinct text of a batch is parsed once. A value that can't be read as declared is a fault of that
event, described in words; the event goes to the dead letters with it.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from queues.events import block
from workers.pipeline.events.distinct_texts import find_distinct_texts

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

    def read(self, document: Mapping[str, Any]) -> object:
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
    distinct = find_distinct_texts(texts)
    if distinct is None:
        return _read_texts(texts, attributes)
    columns, faults = _read_texts(distinct.texts, attributes)
    return [column.take(distinct.places) for column in columns], faults.take(distinct.places)


def _read_texts(texts: pa.Array, attributes: tuple[Attribute, ...]) -> tuple[list[pa.Array], pa.Array]:
    documents = _parse_together(texts)
    columns = [_read_column(documents, attribute) for attribute in attributes] if documents else []
    exact = [column for column in columns if column is not None]
    if len(exact) == len(attributes):
        return exact, pa.nulls(len(texts), pa.string())
    # At least one text is invalid. Each text is parsed separately, and its fault is described.
    rows = [_parse_row(text, attributes) for text in texts.to_pylist()]
    return [
        pa.array([row[0][place] for row in rows], TYPES[attribute.kind]) for place, attribute in enumerate(attributes)
    ], pa.array([row[1] for row in rows], pa.string())


def _parse_together(texts: pa.Array) -> list[dict[str, Any]] | None:
    """Return the objects of all texts, parsed as one document; None if a text isn't an object.

    A random text separates the texts. Without it, texts that are invalid separately could be valid together.
    """
    mark = secrets.token_hex(16)
    filled = pc.replace_with_mask(texts, pc.fill_null(pc.equal(texts, ""), True), "{}")
    together = pc.binary_join(pa.ListArray.from_arrays([0, len(filled)], filled), f',"{mark}",')[0].as_buffer()
    try:
        parsed = orjson.loads(b"".join((b"[", together, b"]")))
    except orjson.JSONDecodeError:
        return None
    documents, marks = parsed[::2], parsed[1::2]
    if len(documents) != len(texts) or set(map(type, documents)) != {dict} or marks.count(mark) != len(marks):
        return None
    return list(documents)


_NONE = type(None)
_EXACT: dict[str, set[type]] = {
    "text": {str, _NONE},
    "number": {float, int, _NONE},
    "integer": {int, _NONE},
    "boolean": {bool, _NONE},
}


def _read_column(documents: list[dict[str, Any]], attribute: Attribute) -> pa.Array | None:
    """Return the values of an attribute; None if a value is invalid."""
    name = attribute.name
    values = [document.get(name) for document in documents]
    kinds = set(map(type, values))
    if not kinds <= _EXACT[attribute.kind] or (attribute.required and _NONE in kinds):
        return None
    if attribute.kind == "number" and int in kinds:
        values = [None if value is None else float(value) for value in values]
    try:
        return pa.array(values, TYPES[attribute.kind])
    except OverflowError:
        return None


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


def _is_of(value: object, kind: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return type(value) is int and -(2**63) <= value < 2**63
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format_short_value(value: object) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= 40 else f"{text[:40]}…"


TIMESTAMP = pa.timestamp("us", tz="UTC")
_KINDS = {
    **{field.name: field.type for field in block.SCHEMA},
    "queue": pa.string(),
    "node": pa.string(),
    "block": pa.string(),
    "published": TIMESTAMP,
}
_SQL = {pa.string(): "string", pa.float64(): "double", TIMESTAMP: "timestamp"}
COLUMNS = tuple(_KINDS)
CARRIED = ("id", "type", "source", "key", "value")  # in every row, besides what patterns read


@dataclass(frozen=True)
class Layout:
    """The columns that are read, in order: some of COLUMNS, then the declared attributes.

    criteria: criteria whose present values follow as columns.
    """

    columns: tuple[str, ...] = COLUMNS
    attributes: tuple[Attribute, ...] = ()
    criteria: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        own = [pa.field(name, _KINDS[name]) for name in self.columns]
        return pa.schema([*own, *(pa.field(attribute.name, TYPES[attribute.kind]) for attribute in self.attributes)])

    @property
    def kinds(self) -> dict[str, str]:
        """Return the type of each column, by its name in SQL."""
        own = {name: _SQL[_KINDS[name]] for name in self.columns}
        attributes = {attribute.name: SQL_TYPES[attribute.kind] for attribute in self.attributes}
        return own | attributes | {get_criterion_column(name): "double" for name in self.criteria}

    @property
    def sql(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.kinds.items())

    def add_criteria(self, rows: pa.RecordBatch, criteria: Mapping[str, float]) -> pa.RecordBatch:
        """Return the rows under `schema` with the columns of the criteria."""
        for name in self.criteria:
            rows = rows.append_column(get_criterion_column(name), pa.repeat(float(criteria[name]), rows.num_rows))
        return rows


def get_criterion_column(name: str) -> str:
    """Return the name of a criterion's column. A value in a column can change without a new plan."""
    return f"criterion {name}"


SLOTS = 12  # slots of a window: it slides by a twelfth


@dataclass(frozen=True)
class MonitoredQuantile:
    """A monitored quantile.

    criterion: the name that rules refer to. column: the column of which the quantile is computed, for events of `type`
    (None: for all events).
    """

    criterion: str
    column: str
    quantile: float
    window_seconds: float
    type: str | None = None

    def compute_slot(self, now_seconds: float) -> int:
        return int(now_seconds // (self.window_seconds / SLOTS))


# Compression more than halves the bytes. It costs less than sending, storing, and logging the rest would.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
# Compression makes smaller batches no smaller, and takes 15 times as long: Arrow compresses each buffer separately.
MIN_COMPRESSED_BYTES = 8_192


def encode(batch: pa.RecordBatch) -> bytes:
    """Return an Arrow stream of the batch, compressed unless it is small."""
    is_small = pa.ipc.get_record_batch_size(batch) < MIN_COMPRESSED_BYTES
    if is_small and not any(map(pa.types.is_dictionary, batch.schema.types)):
        return b"".join((batch.schema.serialize(), batch.serialize()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode(data: bytes) -> list[pa.RecordBatch]:
    """Return the record batches of a blob."""
    return list(pa.ipc.open_stream(data))


def unify_types(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Cast each column to its type in the last table. Values that can't be cast become null."""
    kinds: dict[str, pa.DataType] = {}
    for table in tables:
        kinds.update({field.name: field.type for field in table.schema if not pa.types.is_null(field.type)})
    return [_cast_table(table, kinds) for table in tables]


def as_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with a schema of the same columns."""
    if rows.schema == schema:
        return rows
    columns = [_cast(rows.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def append_batch(old: pa.RecordBatch, new: pa.RecordBatch) -> pa.RecordBatch:
    """Return old rows followed by new ones, with the columns of the new ones.

    A column has the type that it has in the new rows, unless it has no values there.
    """
    fields = [old.schema.field(field.name) if pa.types.is_null(field.type) else field for field in new.schema]
    schema = pa.schema([pa.field(field.name, field.type) for field in fields])
    return pa.concat_batches([as_schema(old.select(schema.names), schema), as_schema(new, schema)])


def _cast_table(table: pa.Table, kinds: dict[str, pa.DataType]) -> pa.Table:
    for place, field in enumerate(table.schema):
        kind = kinds.get(field.name, field.type)
        if field.type not in (kind, pa.null()):
            column = _cast(table.column(place).combine_chunks(), kind)
            table = table.set_column(place, pa.field(field.name, kind), column)
    return table


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return pc.cast(column, kind, safe=False)
    except pa.ArrowException:
        return pa.nulls(len(column), kind)
