"""Events in Arrow: the schema, the block of up to 512 events, its encoding, and the conversions into it."""

import base64
import itertools
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from common.errors import MalformedEvent

# Times that are given as numbers: in the unit that their column names, or that their size says.
#
# Seconds since 1970 are below 1e11, milliseconds below 1e14, microseconds below 1e17, nanoseconds from there on. No
# number has two meanings before the year 2200. Whole numbers are computed exactly. What is finer than a microsecond is
# cut off, as it is of an ISO 8601 text with nine digits.

MIN_TIME_US = 0
MAX_TIME_US = 7_258_118_400_000_000  # 2200-01-01
# ns of one unit, by the end of a column's name.
UNITS_NS = {"_ns": 1, "_us": 1_000, "_ms": 1_000_000, "_s": 1_000_000_000}
# ns of one unit, by the size of a number: the first that it reaches.
_SIZES = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (0.0, 1_000_000_000))


def find_unit_ns(column: str) -> int | None:
    """Return the nanoseconds of one unit of a time column by its name; None: by the size of each number."""
    return next((unit for suffix, unit in UNITS_NS.items() if column.endswith(suffix)), None)


def convert_number_to_us(number: float, unit: int | None = None) -> int:
    """Return the µs since 1970 of a number. Raises ValueError for one that is no time from 1970 to 2199."""
    if not math.isfinite(number):
        raise ValueError("the time is not finite")
    unit = unit or next(unit_ns for size, unit_ns in _SIZES if abs(number) >= size)
    if isinstance(number, int) or unit < 1_000:
        time_us = int(number) * unit // 1_000
    else:
        time_us = round(number * (unit // 1_000))
    if not MIN_TIME_US <= time_us < MAX_TIME_US:
        raise ValueError("the time is not from 1970 to 2199")
    return time_us


Numbers: TypeAlias = NDArray[np.int64] | NDArray[np.float64]


def convert_numbers_to_us(numbers: Numbers, unit: int | None = None) -> NDArray[np.int64]:
    """Return `number_us` of an array of int64 or float64, as int64. Raises ValueError for the same."""
    size = np.abs(numbers.astype(np.float64))
    units = np.select([size >= least for least, _ in _SIZES], [unit_ns for _, unit_ns in _SIZES], 1)
    units = np.full(len(numbers), unit) if unit else units
    with np.errstate(over="ignore"):
        is_known = size * units < MAX_TIME_US * 1e3  # also refuses NaN, and what int64 can't hold
    if not is_known.all():
        raise ValueError("a time is not from 1970 to 2199")
    if numbers.dtype.kind == "f":
        numbers = np.where(units < 1_000, np.trunc(numbers), np.rint(numbers * (units // 1_000)))
        return np.where(units < 1_000, numbers // 1_000, numbers).astype(np.int64)
    return np.where(units < 1_000, numbers // 1_000, numbers * (units // 1_000))


# A block whose bytes are not events, kept among the dead letters as one event that contains the bytes.

TYPE = "unreadable"
NO_DETAILS: Mapping[str, Any] = MappingProxyType({})


def build_unreadable_event(
    block_id: str, at_us: int, data: bytes, kind: str = TYPE, details: Mapping[str, Any] = NO_DETAILS
) -> pa.RecordBatch:
    """Return the event: its type is `kind`, its attributes are the details and {"base64": the bytes}."""
    attributes = orjson.dumps({**details, "base64": base64.b64encode(data).decode()}).decode()
    event = {
        "id": block_id.replace("\0", "\\0"),
        "time": min(at_us, MAX_TIME_US - 1),
        "type": kind,
        "attributes": attributes,
    }
    return pa.RecordBatch.from_pylist([event], schema=SCHEMA)


def decode_unreadable_bytes(attributes: str | None) -> bytes:
    """Return the bytes in such an event; empty if there are none."""
    try:
        return base64.b64decode(orjson.loads(attributes or "{}").get("base64", ""), validate=True)
    except (ValueError, TypeError, AttributeError):
        return b""


# The composition of events: the most frequent types, keys, and sources of a sample, with their counts.
#
# It shows what changed in the arrivals even if no queue is archived, such as a key that becomes dominant.

COLUMNS = ("type", "key", "source")
MAX_EVENTS = 2_000
MAX_VALUES, MAX_VALUE_LENGTH = 8, 80  # of a column; characters of a value
NONE = "(none)"
Composition = dict[str, int | dict[str, int]]


def compute_composition(batch: pa.RecordBatch) -> Composition:
    """Return {"events": how many were sampled, "keys": how many there are, "type": {value: events}, "key": …, …}.

    The sample has at most MAX_EVENTS rows, evenly spaced in a batch of `queues.events.block.SCHEMA`, which may be
    sorted.
    """
    if batch.num_rows > MAX_EVENTS:
        places = np.linspace(0, batch.num_rows - 1, MAX_EVENTS).astype(np.int64)
        batch = batch.select(COLUMNS).take(pa.array(places))
    counts = {name: _count_most_frequent(batch.column(name)) for name in COLUMNS}
    return {"events": batch.num_rows, "keys": _estimate_distinct(batch.column("key")), **counts}


def _estimate_distinct(column: pa.Array) -> int:
    """Return the number of different values of which a column is a sample (Chao's estimator). Null is none."""
    counts = pc.value_counts(column.drop_null()).field("counts").to_numpy(zero_copy_only=False)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return len(counts) + once * (once - 1) // (2 * (twice + 1))


def _count_most_frequent(column: pa.Array) -> dict[str, int]:
    counted = pc.value_counts(column.cast(pa.string()))
    rows = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
    counts: dict[str, int] = {}
    for value, count in sorted(rows, key=lambda row: (-row[1], row[0] or ""))[:MAX_VALUES]:
        shown = NONE if value is None else value[:MAX_VALUE_LENGTH]
        counts[shown] = counts.get(shown, 0) + count
    return counts


BLOCK_EVENTS = 512
MAX_BYTES = 2**20  # of a block of large events: several blocks are read and copied at once
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),  # null: derived from the block's id and the row
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("type", pa.string()),
        pa.field("source", pa.string()),
        pa.field("key", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("attributes", pa.string()),  # a JSON object, or null
    ]
)
FIELDS = tuple(SCHEMA.names)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_TEXT = 1_000
TEXTS = ("id", "type", "source", "key")
NOT_EMPTY = ("type",)  # null means unknown; an empty text says nothing
MAX_ATTRIBUTES = 65_536
SURELY_FLAT = 200  # this many brackets can't nest deeper than JSON can be written
_ATTRIBUTES_MESSAGE = f"must be a JSON object with at most {MAX_ATTRIBUTES} characters and 254 levels of nesting."
_TIME_MESSAGE = "must be a time from 1970 to 2199, in ISO 8601 or as s, ms, µs, or ns since 1970"


@dataclass(frozen=True)
class EncodedBlock:
    """A block as it is stored: `data` is the serialized batch, `newest_time_us` its newest event time."""

    block_id: str
    events: int
    newest_time_us: int
    data: bytes | pa.Buffer

    @property
    def size_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True)
class Block:
    """Up to 512 events with the schema `SCHEMA`."""

    block_id: str
    batch: pa.RecordBatch

    @property
    def events(self) -> int:
        return int(self.batch.num_rows)

    def get_event_ids(self) -> pa.Array:
        """Return the event ids: the producer's own, or `{block_id}:{row}` where that is null."""
        own = self.batch.column(0)
        if own.null_count == 0:
            return own
        rows = -(-self.events // BLOCK_EVENTS) * BLOCK_EVENTS  # whole blocks, so that few tables of numbers are cached
        numbers = _format_number_range(rows).slice(0, self.events)
        derived = pc.binary_join_element_wise(self.block_id, numbers, ":")
        return derived if own.null_count == self.events else pc.coalesce(own, derived)

    def build_explicit_batch(self) -> pa.RecordBatch:
        """Return the batch with every id written out, so that slices and copies of it keep their ids."""
        return self.batch.set_column(0, SCHEMA.field(0), self.get_event_ids())

    def encode(self) -> EncodedBlock:
        """Return the stored form. Raises `ValueError` for an empty block."""
        return EncodedBlock(self.block_id, self.events, find_newest_time_us(self.batch), self.batch.serialize())


class BlockIds:
    """Block ids of 32 hex digits: 64 random bits for this object in this process, then a counter.

    Thread-safe and cheap.
    """

    def __init__(self) -> None:
        self._begun = _start_sequence()

    def __call__(self) -> str:
        begun = self._begun
        if begun[0] != os.getpid():  # forked since: the counter would continue in both processes
            begun = self._begun = _start_sequence()
        _, prefix, numbers = begun
        return f"{prefix}{next(numbers):016x}"


def _start_sequence() -> tuple[int, str, Iterator[int]]:
    return os.getpid(), secrets.token_hex(8), itertools.count()


def find_newest_time_us(batch: pa.RecordBatch) -> int:
    """Return the newest event time of a batch, µs since 1970."""
    return int(_get_times_us(batch).max())


def decode(block_id: str, data: object) -> Block:
    """Decode a stored block. Raises `MalformedEvent` if the bytes are not a valid batch of `SCHEMA` with rows."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, IndexError, ValueError) as error:
        raise MalformedEvent("block", f"{block_id[:80]} can't be read ({str(error)[:200]}).") from None
    if not batch.num_rows or batch.column(1).null_count:
        raise MalformedEvent("block", f"{block_id[:80]} has no events, or events without a time.")
    return Block(block_id, batch)


def cut(batch: pa.RecordBatch, ids: Callable[[], str], events: int = BLOCK_EVENTS) -> list[EncodedBlock]:
    """Cut a batch of `SCHEMA` (any length) into encoded blocks of up to `events` rows.

    Blocks of large events have fewer rows: about MAX_BYTES, and at most twice as much in a block of several events.
    """
    rows = batch.num_rows
    if rows == 0:
        return []
    events = min(events, max(1, MAX_BYTES * rows // max(1, batch.nbytes)))
    starts = np.arange(0, rows, events)
    newest = np.maximum.reduceat(_get_times_us(batch), starts).tolist()
    blocks: list[EncodedBlock] = []
    for start, time_us in zip(starts.tolist(), newest, strict=True):
        part = batch.slice(start, events)
        data = part.serialize()
        if part.num_rows > 1 and data.size > 2 * MAX_BYTES:  # larger ones are next to each other here
            blocks += cut(part, ids, events)
        else:
            blocks.append(EncodedBlock(ids(), part.num_rows, time_us, data))
    return blocks


def from_events(events: Iterable[Mapping[str, Any]], now_us: int) -> pa.RecordBatch:
    """Convert events given as mappings to one batch of `SCHEMA`.

    `time` takes ISO 8601, a datetime or seconds since 1970 (a number), and is `now_us` if absent; `value` takes a
    finite number; `attributes` an object; the others text. Raises `MalformedEvent` that names the field, and the
    position of the event if there are several.
    """
    columns: list[list[Any]] = [[] for _ in FIELDS]
    for place, event in enumerate(events):
        try:
            row = parse_event(event, now_us)
        except MalformedEvent as error:
            raise MalformedEvent(f"events[{place}].{error.field}", error.message) from None
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    return from_rows(columns)


def from_rows(columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Convert columns of checked cells (times in µs) in the order of `SCHEMA` to a batch."""
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def parse_event(event: Mapping[str, Any], now_us: int) -> tuple[Any, ...]:
    """Return one event's cells in the order of `SCHEMA`, time in µs. Raises `MalformedEvent` that names the field."""
    if not isinstance(event, Mapping):
        raise MalformedEvent("event", f"must be a JSON object, not {type(event).__name__}.")
    for name in event:
        if name not in FIELDS:
            raise MalformedEvent(str(name), f"is unknown. The fields are {', '.join(FIELDS)}.")
    return (
        parse_text(event.get("id"), "id"),
        parse_time_us(event.get("time"), now_us),
        parse_text(event.get("type"), "type"),
        parse_text(event.get("source"), "source"),
        parse_text(event.get("key"), "key"),
        parse_value(event.get("value")),
        parse_attributes(event.get("attributes")),
    )


def parse_text(value: object, name: str) -> str | None:
    """Return text or a whole number as text; None stays None."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 64:
        value = str(value)
    if not isinstance(value, str) or len(value) > MAX_TEXT or not _is_encodable(value) or "\0" in value:
        raise MalformedEvent(name, _describe_text_limits(name))
    if not value and name in NOT_EMPTY:
        raise MalformedEvent(name, _describe_text_limits(name))
    return value


def parse_time_us(value: object, now_us: int, unit_ns: int | None = None, given: object = None) -> int:
    """Return a time as µs since 1970; None is now. A time without a zone is UTC.

    unit_ns: of a number (None: by its size); given: what the value was read from, which a refusal quotes.
    """
    if value is None:
        return now_us
    try:
        time_us = _convert_to_time_us(value, unit_ns)
    except (ValueError, OverflowError):
        raise MalformedEvent(
            "time", f"{_TIME_MESSAGE}, not {_shorten_for_message(value if given is None else given)}."
        ) from None
    if not MIN_TIME_US <= time_us < MAX_TIME_US:
        raise MalformedEvent("time", f"{_TIME_MESSAGE}, not {_shorten_for_message(value if given is None else given)}.")
    return time_us


def parse_value(value: object) -> float | None:
    """Return a finite number, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MalformedEvent("value", f"must be a finite number, not {_shorten_for_message(value)}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MalformedEvent("value", "must be a finite number.")
    return number


def parse_attributes(value: object) -> str | None:
    """Return an object, or JSON text of one, as JSON text; None stays None."""
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise MalformedEvent("attributes", "must be a JSON object with finite numbers.") from None
    if not is_attributes(text):
        raise MalformedEvent("attributes", _ATTRIBUTES_MESSAGE)
    return text


def is_attributes(text: str) -> bool:
    """Return whether a text is a JSON object of at most MAX_ATTRIBUTES characters and 254 levels."""
    if len(text) > MAX_ATTRIBUTES:
        return False
    try:
        document = orjson.loads(text)
        if text.count("{") + text.count("[") > SURELY_FLAT:
            orjson.dumps(document)  # writes 254 levels at most: what is parsed must be writable again
    except (ValueError, TypeError):
        return False
    return type(document) is dict


def from_columns(columns: pa.RecordBatch | pa.Table, now_us: int, attributes_are_read: bool = False) -> pa.RecordBatch:
    """Convert columnar events to one batch of `SCHEMA`.

    Casts the columns, and fills missing ones (time with `now_us`). Takes any subset of the columns in any order; `time`
    as timestamps, ISO 8601 text or seconds since 1970. The rules are those of `parse_event`. `attributes_are_read`:
    they were written from JSON just now, so only their length is checked. Raises `MalformedEvent` that names the column
    if it is unknown, duplicate, of an unsuitable type, or has a row that `parse_event` would reject.
    """
    batch = _one_batch(columns)
    names = batch.schema.names
    for name in names:
        if name not in FIELDS:
            raise MalformedEvent(name, f"is unknown. The columns are {', '.join(FIELDS)}.")
        if names.count(name) > 1:
            raise MalformedEvent(name, "is a duplicate.")
    arrays = [_convert_column(batch, field, now_us) for field in SCHEMA]
    result = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    _check_columns(result, attributes_are_read)
    return result


def takes_type(name: str, kind: pa.DataType) -> bool:
    """Return whether a column of events may have an Arrow type."""
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind) or (types.is_integer(kind) and name != "attributes"):
        return True
    if name == "value":
        return bool(types.is_floating(kind))
    if name == "time" and (types.is_floating(kind) or types.is_timestamp(kind)):
        return True
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _one_batch(columns: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    if isinstance(columns, pa.RecordBatch):
        return columns
    batches = columns.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=columns.schema)


def _convert_column(batch: pa.RecordBatch, field: pa.Field, now_us: int) -> pa.Array:
    """Return one column with its type in `SCHEMA`."""
    place = batch.schema.get_field_index(field.name)
    if place < 0 and field.name == "time":
        return pa.array(np.full(batch.num_rows, now_us, np.int64)).cast(field.type)
    if place < 0:
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(place)
    if not takes_type(field.name, array.type):
        raise MalformedEvent(field.name, f"can't be of type {str(array.type)[:80]}.")
    try:
        if field.name == "value" and pa.types.is_integer(array.type):
            return array.cast(field.type, safe=False)  # the nearest number, as float() returns it
        if field.name == "time":
            array = _convert_time_column(array, now_us)
        return array if array.type == field.type else array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MalformedEvent(field.name, f"can't be read as {field.type} ({str(error)[:200]}).") from None


def _convert_time_column(array: pa.Array, now_us: int) -> pa.Array:
    """Return times as µs timestamps; numbers are seconds since 1970, text is ISO 8601, null is now."""
    kind = SCHEMA.field("time").type
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), kind)
    elif pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        array = _convert_numbers_to_times(array)
    elif pa.types.is_timestamp(array.type):
        # Only nanoseconds may lose precision; in a larger unit, a time that overflows is out of range.
        coarser = array.cast(pa.timestamp("us", array.type.tz), safe=array.type.unit != "ns")
        array = coarser.cast(kind)
    elif array.type != kind:
        array = _parse_time_texts(array, now_us)
    return array.fill_null(pa.scalar(now_us, pa.int64()).cast(kind)) if array.null_count else array


def _convert_numbers_to_times(array: pa.Array) -> pa.Array:
    """Numbers as times, each by its size; what is null stays so."""
    whole = pa.types.is_integer(array.type)
    numbers = array.cast(pa.int64() if whole else pa.float64())
    known = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    try:
        times = convert_numbers_to_us(known)
    except ValueError:
        raise MalformedEvent("time", f"{_TIME_MESSAGE}. A row is out of this range.") from None
    mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    return pa.array(times, pa.int64(), mask=mask).cast(SCHEMA.field("time").type)


def _parse_time_texts(texts: pa.Array, now_us: int) -> pa.Array:
    """Parse ISO 8601 with Arrow if every text has a zone, which is fast, and otherwise one by one."""
    kind = SCHEMA.field("time").type
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([parse_time_us(text, now_us) for text in texts.to_pylist()], pa.int64()).cast(kind)


def _check_columns(batch: pa.RecordBatch, attributes_are_read: bool) -> None:
    if batch.num_rows == 0:
        return
    times = _get_times_us(batch)
    if times.min() < MIN_TIME_US or times.max() >= MAX_TIME_US:
        raise MalformedEvent("time", f"{_TIME_MESSAGE}. The time of a row is out of this range.")
    value = batch.column(FIELDS.index("value"))
    if value.null_count < len(value) and not pc.all(pc.is_finite(value)).as_py():
        raise MalformedEvent("value", "must have finite numbers. A row has an invalid value.")
    for name in TEXTS:
        array = batch.column(FIELDS.index(name))
        if array.null_count < len(array) and not _are_texts(array, MAX_TEXT, name in NOT_EMPTY):
            raise MalformedEvent(name, f"{_describe_text_limits(name)[:-1]}. A row has an invalid value.")
    attributes = batch.column(FIELDS.index("attributes"))
    if attributes.null_count < len(attributes) and not _are_attributes(attributes, attributes_are_read):
        raise MalformedEvent("attributes", f"{_ATTRIBUTES_MESSAGE[:-1]}. A row has an invalid value.")


def _are_texts(array: pa.Array, most: int, not_empty: bool) -> bool:
    """Return whether each text is UTF-8 without NUL, and of an accepted length.

    A text has at most `most` characters and, if requested, is not empty.
    """
    lengths, data = _get_lengths_and_bytes(array)
    if lengths.min() < int(not_empty and not array.null_count) or (data.size and data.min() == 0):
        return False
    if not_empty and array.null_count and pc.any(pc.equal(array, "")).as_py():
        return False
    if not data.size or (data.max() < 128 and lengths.max() <= most):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return bool(lengths.max() <= most or pc.max(pc.utf8_length(array)).as_py() <= most)


def _get_lengths_and_bytes(texts: pa.Array) -> tuple[Any, Any]:
    """Return the length of each text in bytes, nulls included, and all their bytes, without copying."""
    texts.validate()
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    return np.diff(offsets), data


def _are_attributes(texts: pa.Array, are_read: bool) -> bool:
    if are_read:
        return bool((pc.max(pc.utf8_length(texts)).as_py() or 0) <= MAX_ATTRIBUTES)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return all(map(is_attributes, texts.drop_null().unique().to_pylist()))


@lru_cache(4)
def _format_number_range(count: int) -> pa.Array:
    return pa.array(np.arange(count)).cast(pa.string())


def _get_times_us(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return event times as a numpy array of µs, without copying."""
    times_us: NDArray[np.int64] = batch.column(1).view(pa.int64()).to_numpy(zero_copy_only=True)
    return times_us


def _convert_to_time_us(value: object, unit_ns: int | None) -> int:
    if isinstance(value, bool):
        raise ValueError("a Boolean is not a time")
    if isinstance(value, int | float):
        return convert_number_to_us(value, unit_ns)
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(_require_text(value))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("neither text nor a number")
    return value.strip()


def _is_encodable(text: str) -> bool:
    """Return whether a text can be encoded. JSON escapes may produce lone surrogates, which are not Unicode text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe_text_limits(name: str) -> str:
    least = 1 if name in NOT_EMPTY else 0
    return f"must be text of {least} to {MAX_TEXT} characters, without NUL."


def _shorten_for_message(value: object) -> str:
    """Return a short form of any value for a message."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number with more than 64 bits"
    return repr(value)[:60]
