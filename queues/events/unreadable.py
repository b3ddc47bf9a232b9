"""A block whose bytes are not events, kept among the dead letters as one event that contains the bytes."""

import base64

import orjson
import pyarrow as pa

from queues.events.block import SCHEMA
from queues.events.times import MAX_TIME_US

TYPE = "unreadable"


def build_unreadable_event(block_id: str, at_us: int, data: bytes) -> pa.RecordBatch:
    """Return the event: type unreadable, attributes {"base64": the bytes}."""
    attributes = orjson.dumps({"base64": base64.b64encode(data).decode()}).decode()
    event = {
        "id": block_id.replace("\0", "\\0"),
        "time": min(at_us, MAX_TIME_US - 1),
        "type": TYPE,
        "attributes": attributes,
    }
    return pa.RecordBatch.from_pylist([event], schema=SCHEMA)


def decode_unreadable_bytes(attributes: str | None) -> bytes:
    """Return the bytes in such an event; empty if there are none."""
    try:
        return base64.b64decode(orjson.loads(attributes or "{}").get("base64", ""), validate=True)
    except (ValueError, TypeError, AttributeError):
        return b""
