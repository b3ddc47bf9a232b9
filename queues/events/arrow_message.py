"""The header of an Arrow IPC message, parsed before Arrow builds anything from it.

The header is a FlatBuffer (Message.fbs of the Arrow format, version V5). This module reads what shows how large a
record batch would become: its rows, the buffers that it names in the body, and whether they are compressed. Every
offset is checked against the header's end, so that a wrong one is an error and never reads other memory.
"""

import struct
from dataclasses import dataclass

from common.errors import MalformedEvent

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
            raise MalformedEvent("body", "has compressed buffers; write the stream without compression.")
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
