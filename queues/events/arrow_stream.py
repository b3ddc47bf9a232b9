"""An Arrow IPC stream of events from outside: its expanded size is known before anything is built.

Accepted are record batches with the columns of `queues.events.block.SCHEMA`, in plain types
(`queues.events.block.takes_type`). Rejected are compressed buffers, dictionaries, nested, extension, and other types,
and anything that would have more rows or bytes than were sent. Buffers stay in the body: nothing is copied to read it.
"""

from collections.abc import Iterator

import pyarrow as pa

from common.errors import MalformedEvent
from queues.events.arrow_message import record_batch_header
from queues.events.block import FIELDS, from_columns, takes_type

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
            raise MalformedEvent("body", f"must have at most {most_rows} events; send several requests.")
        if batches > MAX_BATCHES:
            raise MalformedEvent("body", f"must have at most {MAX_BATCHES} record batches; write larger batches.")
        yield from_columns(_read_valid_batch(message, schema), now_us)


def _read_next_message(reader: pa.BufferReader) -> pa.ipc.Message | None:
    """Return the next message, or None at the end.

    Arrow has checked that its header is a FlatBuffer of a message.
    """
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
            raise MalformedEvent(field.name[:80], f"is unknown; the columns are {', '.join(FIELDS)}.")
        if pa.types.is_dictionary(field.type) or not takes_type(field.name, field.type):
            raise MalformedEvent(field.name, f"can't be of type {kinds[field.name][:80]}.")
    if len(kinds) < len(schema):
        raise MalformedEvent("body", "has a duplicate column.")
    if not kinds:
        raise MalformedEvent("body", f"has no columns; the columns are {', '.join(FIELDS)}.")
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
