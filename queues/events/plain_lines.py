"""Plain JSON lines: objects with an event's own fields, as most programs send them, read by Arrow at once.

Arrow reads JSON text without regard to lines. Each line therefore has to start and end like an object, and there have
to be as many objects as lines. Then each line is one object: a second object on a line would be one too many, and one
that continues on the next line can't continue with a brace. Text that Arrow rejects, or would read differently from
`queues.events.columns` (times missing in some lines, other forms of a time, attributes), is not plain.
"""

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from queues.events.block import SCHEMA, TEXTS, from_columns
from queues.events.columns import parse_iso_times
from queues.events.times import convert_numbers_to_us

MAX_LINE_BYTES = 2**20
MAX_EXACT = 2**53
_NEWLINE, _OPENING, _CLOSING = b"\n{}"
_BESIDE_TIME = [(name, pa.string()) for name in TEXTS] + [("value", pa.float64())]
_TIME_KINDS = (pa.float64(), pa.string())
_PARSING = [
    pj.ParseOptions(explicit_schema=pa.schema([("time", kind), *_BESIDE_TIME]), unexpected_field_behavior="error")
    for kind in _TIME_KINDS
]


def build_plain_batch(text: bytes, now_us: int) -> pa.RecordBatch:
    """Return the events of whole lines as one batch.

    Raises `ValueError` (some of Arrow's errors are, and `MalformedEvent` is) if a line is not plain, whether or not it
    is an event.
    """
    lines = _count_lines(text)
    table = _read(text)
    if table.num_rows != lines:
        raise ValueError("there are more or fewer objects than lines")
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    columns["time"] = _convert_times(columns["time"], now_us)
    columns["attributes"] = pa.nulls(lines, pa.string())
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)
    return from_columns(batch, now_us, attributes_are_read=True)


def _count_lines(text: bytes) -> int:
    """Return the number of lines. Raises `ValueError` if one does not start and end like an object."""
    letters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(letters == _NEWLINE), letters.size)
    begins = np.append(0, ends[:-1] + 1)
    lengths = ends - begins
    if lengths.min() < 2 or lengths.max() > MAX_LINE_BYTES:
        raise ValueError("a line is empty or too long")
    if (letters[begins] != _OPENING).any() or (letters[ends - 1] != _CLOSING).any():
        raise ValueError("a line is not an object")
    return int(ends.size)


def _read(text: bytes) -> pa.Table:
    # A chunk is read as a whole; the time of the first line determines the type of times.
    reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    place = text.find(b'"time"', 0, text.find(b"\n"))
    after = text[place + 6 : place + 10].lstrip(b" \t:") if place >= 0 else b""
    options = _PARSING[1 if after.startswith(b'"') else 0]
    return pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=options)


def _convert_times(array: pa.Array, now_us: int) -> pa.Array:
    kind = SCHEMA.field("time").type
    if array.null_count == len(array):
        return pa.array(np.full(len(array), now_us)).cast(kind)
    if array.null_count:
        raise ValueError("some lines have no time")
    if pa.types.is_string(array.type):
        if "T" not in array[0].as_py():
            raise ValueError("the first time has a different format")
        return parse_iso_times(array)
    numbers = array.to_numpy()
    if numbers.max() >= MAX_EXACT:  # such as nanoseconds: read as floats they are rounded
        raise ValueError("a time has more digits than a float")
    return pa.array(convert_numbers_to_us(numbers)).cast(kind)
