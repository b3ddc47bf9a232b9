"""An Arrow IPC stream of events from outside: its expanded size is known before anything is built.

Accepted are record batches with the columns of `queues.events.block.SCHEMA`, in plain types
(`queues.events.block.takes_type`). Rejected are compressed buffers, dictionaries, nested, extension, and other types,
and anything that would have more rows or bytes than were sent. Buffers stay in the body: nothing is copied to read it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from common.errors import MalformedEvent
from queues.events.block import FIELDS, from_columns, takes_type

# The header of an Arrow IPC message, parsed before Arrow builds anything from it.
#
# The header is a FlatBuffer (Message.fbs of the Arrow format, version V5). This module reads what shows how large a
# record batch would become: its rows, the buffers that it names in the body, and whether they are compressed. Every
# offset is checked against the header's end, so that a wrong one is an error and never reads other memory.

_U16, _I32, _I64 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<q")
_PAIR = struct.Struct("<qq")  # FieldNode {length, null_count} and Buffer {offset, length}
# Offsets of fields in their tables.
_HEADER = 2
_LENGTH, _NODES, _BUFFERS, _COMPRESSION, _VARIADIC = range(5)


@dataclass(frozen=True)
class RecordBatchHeader:
    """The description of a record batch. `nodes`: (rows, nulls) by column; `buffers`: (offset, bytes)."""

    rows: int
    nodes: list[tuple[int, int]]
    buffers: list[tuple[int, int]]
    is_compressed: bool
    has_views: bool

    def check(self, columns: int, body_bytes: int) -> None:
        """Raise `MalformedEvent` unless Arrow would build as many rows and bytes from it as it says."""
        if self.is_compressed:
            raise MalformedEvent("body", "has compressed buffers. Write the stream without compression.")
        if self.has_views or len(self.nodes) != columns:
            raise MalformedEvent("body", "has a record batch that does not match its schema.")
        if any(rows != self.rows or not 0 <= nulls <= rows for rows, nulls in self.nodes):
            raise MalformedEvent("body", "has columns of different lengths.")
        end = 0
        for offset, size in self.buffers:
            # Buffers follow each other: two columns that share bytes would be more than was sent.
            if size < 0 or offset < end or offset + size > body_bytes:
                raise MalformedEvent("body", "has buffers that overlap or exceed the record batch.")
            end = offset + size if size else end


def record_batch_header(metadata: bytes, most: int) -> RecordBatchHeader:
    """Return the header of a record batch's message; `most`: columns. Raises `MalformedEvent`."""
    try:
        table = _Table(metadata, _unpack_number(metadata, 0, _I32)).read_table(_HEADER)
        return RecordBatchHeader(
            rows=table.read_int64(_LENGTH),
            nodes=table.read_int64_pairs(_NODES, most),
            buffers=table.read_int64_pairs(_BUFFERS, 3 * most),
            is_compressed=table.place(_COMPRESSION) is not None,
            has_views=table.place(_VARIADIC) is not None,
        )
    except (struct.error, IndexError):
        raise MalformedEvent("body", "has a record batch without a readable header.") from None


class _Table:
    """A table of a FlatBuffer. Raises `struct.error` or `IndexError` for an offset outside."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - _unpack_number(data, at, _I32)
        self._size = _unpack_number(data, self._fields, _U16)

    def place(self, field: int) -> int | None:
        """Return the offset of a field's value; None if it has none."""
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return None
        offset = _unpack_number(self._data, self._fields + slot, _U16)
        return self._at + offset if offset else None

    def read_table(self, field: int) -> "_Table":
        return _Table(self._data, self._check_buffers(field))

    def read_int64(self, field: int) -> int:
        place = self.place(field)
        return 0 if place is None else _unpack_number(self._data, place, _I64)

    def read_int64_pairs(self, field: int, most: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two int64; raises `IndexError` for more than `most`."""
        if self.place(field) is None:
            return []
        start = self._check_buffers(field)
        count = _unpack_number(self._data, start, _I32)
        if not 0 <= count <= most:
            raise IndexError(count)
        end = start + 4 + count * _PAIR.size
        if end > len(self._data):
            raise IndexError(end)
        return [(first, second) for first, second in _PAIR.iter_unpack(self._data[start + 4 : end])]

    def _check_buffers(self, field: int) -> int:
        place = self.place(field)
        if place is None:
            raise IndexError(field)
        return place + _unpack_number(self._data, place, _I32)


def _unpack_number(data: bytes, at: int, form: struct.Struct) -> int:
    if at < 0:  # struct would count from the end
        raise IndexError(at)
    return int(form.unpack_from(data, at)[0])


MAX_METADATA_BYTES = 64 * 1024
MAX_BATCHES = 4_096
_WHAT = "is not an Arrow stream"


def read_events(body: bytes, now_us: int, most_rows: int) -> Iterator[pa.RecordBatch]:
    """Return the stream's events as batches of `SCHEMA`. Raises `MalformedEvent` at the first fault."""
    reader = pa.BufferReader(body)
    schema = _read_schema(_read_next_message(reader))
    rows, batches = 0, 0
    while (message := _read_next_message(reader)) is not None:
        rows, batches = rows + _count_rows(message, schema), batches + 1
        if rows > most_rows:
            raise MalformedEvent("body", f"must have at most {most_rows} events. Send several requests.")
        if batches > MAX_BATCHES:
            raise MalformedEvent("body", f"must have at most {MAX_BATCHES} record batches. Write larger batches.")
        yield from_columns(_read_valid_batch(message, schema), now_us)


def _read_next_message(reader: pa.BufferReader) -> pa.ipc.Message | None:
    """Return the next message, or None at the end. Arrow has checked that its header is a FlatBuffer of a message."""
    try:
        message = pa.ipc.read_message(reader)
    except EOFError:
        return None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MalformedEvent("body", f"{_WHAT} ({_format_error(error)}).") from None
    if message.metadata.size > MAX_METADATA_BYTES:
        raise MalformedEvent("body", f"must have at most {MAX_METADATA_BYTES} bytes of metadata.")
    return message


def _read_schema(message: pa.ipc.Message | None) -> pa.Schema:
    """Return the stream's schema. Each of its columns must be an accepted one."""
    if message is None or message.type != "schema":
        raise MalformedEvent("body", f"{_WHAT}: it does not start with a schema.")
    try:
        schema = pa.ipc.read_schema(message)
        kinds = {field.name: str(field.type) for field in schema}  # a name may not be UTF-8
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MalformedEvent("body", f"{_WHAT} ({_format_error(error)}).") from None
    for field in schema:
        if field.name not in FIELDS:
            raise MalformedEvent(field.name[:80], f"is unknown. The columns are {', '.join(FIELDS)}.")
        if pa.types.is_dictionary(field.type) or not takes_type(field.name, field.type):
            raise MalformedEvent(field.name, f"can't be of type {kinds[field.name][:80]}.")
    if len(kinds) < len(schema):
        raise MalformedEvent("body", "has a duplicate column.")
    if not kinds:
        raise MalformedEvent("body", f"has no columns. The columns are {', '.join(FIELDS)}.")
    return schema


def _count_rows(message: pa.ipc.Message, schema: pa.Schema) -> int:
    """Return the rows of an accepted record batch."""
    if message.type != "record batch":
        raise MalformedEvent("body", f"must contain only record batches, not a {message.type}.")
    header = record_batch_header(message.metadata.to_pybytes(), len(schema))
    body = message.body
    header.check(len(schema), 0 if body is None else body.size)
    return header.rows


def _read_valid_batch(message: pa.ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch with its offsets and its text checked: nothing is cast or cut before."""
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MalformedEvent("body", f"has a record batch that can't be read ({_format_error(error)}).") from None
    return batch


def _format_error(error: Exception) -> str:
    """Return the first line of an error, the helpful part of a rejection."""
    return str(error).partition("\n")[0][:200]
