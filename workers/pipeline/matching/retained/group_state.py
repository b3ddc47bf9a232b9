"""The state of a matcher as one value for each key group: JSON values and Arrow rows, packed."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from workers.pipeline.events.arrow_blob import decode, encode
from workers.pipeline.matching.retained.keyed_rows import group_rows

_LENGTH = struct.Struct("<I")


@dataclass
class GroupParts:
    """The parts of a group.

    values: JSON values by name. rows: Arrow rows by name. Empty parts are left out.
    """

    values: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, pa.RecordBatch] = field(default_factory=dict)

    def pack(self) -> bytes:
        streams = {name: encode(rows) for name, rows in self.rows.items()}
        lengths = {name: len(stream) for name, stream in streams.items()}
        head = orjson.dumps({"values": self.values, "rows": lengths})
        return b"".join((_LENGTH.pack(len(head)), head, *streams.values()))

    @classmethod
    def unpack(cls, data: bytes) -> "GroupParts":
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        head = orjson.loads(data[_LENGTH.size : end])
        rows = {}
        for name, size in head["rows"].items():
            (rows[name],) = decode(data[end : end + size])
            end += size
        return cls(head["values"], rows)


class GroupStates:
    """The parts of many groups, combined by name and split again."""

    def __init__(self, states: Mapping[int, bytes] | None = None) -> None:
        self._parts = {group: GroupParts.unpack(data) for group, data in (states or {}).items()}

    def put_values(self, name: str, values: Mapping[int, Any]) -> None:
        for group, value in values.items():
            self._parts.setdefault(group, GroupParts()).values[name] = value

    def put_rows(self, name: str, rows: pa.RecordBatch | None) -> None:
        """Add rows with a column `group`."""
        if rows is not None and rows.num_rows:
            for group, part in group_rows(rows).items():
                self._parts.setdefault(group, GroupParts()).rows[name] = part

    def collect_values(self, name: str) -> dict[int, Any]:
        return {group: parts.values[name] for group, parts in self._parts.items() if name in parts.values}

    def collect_rows(self, name: str) -> pa.RecordBatch | None:
        """Return the rows of all groups together."""
        rows_of_name = [parts.rows[name] for parts in self._parts.values() if name in parts.rows]
        return pa.concat_batches(rows_of_name) if rows_of_name else None

    def pack(self) -> dict[int, bytes]:
        return {group: parts.pack() for group, parts in self._parts.items()}
