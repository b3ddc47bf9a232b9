"""Event files, CSV and JSON lines, plain or gzip, as batches. A malformed line is reported and skipped.

Lines are read some thousands at a time. Arrow reads a chunk of plain lines of JSON (`plain_lines`); any other is
converted to columns at once. A chunk with a bad line is read again line by line, so that every bad line is counted and
reported, and only those are lost.
"""

import codecs
import csv
import gzip
import io
import itertools
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj

from common.documents import get_standard_input
from common.errors import BadInput, MalformedEvent
from common.parsing import NAMES, convert_decimal_comma, detect_separator, split_header_cells
from queues.events.block import FIELDS, SCHEMA, TEXTS, convert_numbers_to_us, from_columns
from queues.events.columns import Columns, Mapper, convert_rows_to_batch, group_by_name, parse_iso_times

# Plain JSON lines: objects with an event's own fields, as most programs send them, read by Arrow at once.
#
# Arrow reads JSON text without regard to lines. Each line therefore has to start and end like an object, and there have
# to be as many objects as lines. Then each line is one object: a second object on a line would be one too many, and one
# that continues on the next line can't continue with a brace. Text that Arrow rejects, or would read differently from
# `queues.events.columns` (times missing in some lines, other forms of a time, attributes), is not plain.

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
    # A chunk is read as a whole; the time of the first line determines the type of times.
    reading = pj.ReadOptions(use_threads=False, block_size=len(text) + 1)
    place = text.find(b'"time"', 0, text.find(b"\n"))
    after = text[place + 6 : place + 10].lstrip(b" \t:") if place >= 0 else b""
    options = _PARSING[1 if after.startswith(b'"') else 0]
    table = pj.read_json(pa.BufferReader(text), read_options=reading, parse_options=options)
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


FORMATS = ("csv", "jsonl")
CHUNK_BYTES = 512 * 1024
# Small enough that they and their objects stay in the cache: twice as fast as a megabyte of them.
LINES_AT_ONCE = 1_000
BATCH_EVENTS = 8_192
MAX_RECORD_LINES = 100
NAMED = 20
# A chunk that is not plain is detected at its first line, or at its last. After one, this many are not tried.
PIECES_NOT_TRIED = 7
_NOT_PLAIN = (BadInput, ValueError, TypeError, AttributeError, pa.ArrowException, OverflowError, csv.Error)


@dataclass(frozen=True)
class Rejection:
    """A line that was skipped: its number in the file (from 1) and why."""

    line: int
    error: str


@dataclass(frozen=True)
class CsvColumns:
    """The mapping of a CSV file's columns: {part of an event: column}; the others; what separates them."""

    parts: dict[str, str]
    attributes: list[str]
    separator: str

    def format_sentence(self) -> str:
        """Return it for people."""
        parts = ", ".join(f"{part} from {column}" for part, column in self.parts.items())
        more = f"; as attributes: {', '.join(self.attributes)}" if self.attributes else ""
        return f"columns, separated by {NAMES[self.separator]}: {parts}{more}"


class EventLines:
    """Batches of `queues.events.block.SCHEMA` from a file.

    `rejected` and `rejections` (the first 20) say what was skipped. `csv_columns` says how the columns of a CSV file
    are read, once its header is. `stream` is binary, gzip or not. `format` is csv, jsonl or None (the first visible
    character decides). With `strict`, the first malformed line raises `MalformedEvent` whose field is the line. Raises
    `BadInput` for a file that can't be read at all: a broken gzip, a header without a named column.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        format: str | None = None,
        columns: Columns = Columns(),  # noqa: B008 - a frozen value
        strict: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if format not in (None, *FORMATS):
            raise BadInput("format", f"must be csv or jsonl, not {format!r}.")
        self.rejected = 0
        self.rejections: list[Rejection] = []
        self.csv_columns: CsvColumns | None = None
        self._stream, self._format = unzip_stream(stream), format
        self._columns, self._mapper = columns, Mapper(columns)
        self._strict, self._clock = strict, clock
        self._not_tried = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        pieces = _skip_blank_start(_iterate_line_chunks(self._stream))
        first = next(pieces, None)
        if first is None:
            return
        pieces = itertools.chain([first], pieces)
        name = self._format or ("jsonl" if first[1].lstrip()[:1] == b"{" else "csv")
        form = JsonLines() if name == "jsonl" else CsvLines(self._columns)
        yield from merge_batches(self._iterate_batches(form, pieces))

    def _iterate_batches(
        self, form: "JsonLines | CsvLines", pieces: Iterable[tuple[int, bytes]]
    ) -> Iterator[pa.RecordBatch]:
        """Return the batch of each chunk, and of the rest at the end; none of them is empty."""
        for start, text in pieces:
            if (plain := self._try_plain_batch(form, text)) is not None:
                yield plain
                continue
            lines = text.split(b"\n")
            for at in range(0, len(lines), LINES_AT_ONCE):
                records = form.list_records(start + at, lines[at : at + LINES_AT_ONCE])
                self.csv_columns = form.csv_columns
                if records:
                    yield self._build_batch(form, records)
        if records := form.take_remaining_records():
            yield self._build_batch(form, records)

    def _try_plain_batch(self, form: "JsonLines | CsvLines", text: bytes) -> pa.RecordBatch | None:
        if isinstance(form, CsvLines) or self._columns != Columns():
            return None
        if self._not_tried:
            self._not_tried -= 1
            return None
        try:
            return build_plain_batch(text, round(self._clock() * 1_000_000))
        except _NOT_PLAIN:
            self._not_tried = PIECES_NOT_TRIED
            return None

    def _build_batch(self, form: "JsonLines | CsvLines", records: list[tuple[int, bytes]]) -> pa.RecordBatch:
        now_us = round(self._clock() * 1_000_000)
        try:
            return form.convert_to_batch(self._mapper, [text for _, text in records], now_us)
        except _NOT_PLAIN:
            return convert_rows_to_batch(self._iterate_good_rows(form, records, now_us))

    def _iterate_good_rows(
        self, form: "JsonLines | CsvLines", records: list[tuple[int, bytes]], now_us: int
    ) -> Iterator[tuple[Any, ...]]:
        """Read line by line: return the good rows and report the bad lines."""
        for number, text in records:
            try:
                yield self._mapper.convert_row(form.parse(text), now_us)
            except (BadInput, ValueError, OverflowError) as error:
                self._reject(number, str(error))

    def _reject(self, line: int, error: str) -> None:
        if self._strict:
            raise MalformedEvent(f"line {line}", error)
        self.rejected += 1
        if len(self.rejections) < NAMED:
            self.rejections.append(Rejection(line, error))


class JsonLines:
    """One JSON object per line; empty lines are ignored."""

    csv_columns: CsvColumns | None = None

    def list_records(self, start: int, lines: list[bytes]) -> list[tuple[int, bytes]]:
        return [(number, line) for number, line in enumerate(lines, start) if line and not line.isspace()]

    def take_remaining_records(self) -> list[tuple[int, bytes]]:
        return []

    def convert_to_batch(self, mapper: Mapper, texts: list[bytes], now_us: int) -> pa.RecordBatch:
        """Convert all lines at once. Raises if one of them is not plain."""
        rows = list(map(orjson.loads, texts))
        if max(map(len, texts)) > MAX_LINE_BYTES or set(map(type, rows)) != {dict}:
            raise ValueError("a line is not an object or is too long")
        return mapper.convert_to_batch(rows, now_us)

    def parse(self, text: bytes) -> dict[str, Any]:
        _check_length(text)
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise MalformedEvent("line", f"is not JSON ({error}).") from None
        if not isinstance(row, dict):
            raise MalformedEvent("line", "must be a JSON object.")
        return row


class CsvLines:
    """Comma-separated with a header line. A quoted cell may contain line breaks, up to 100 lines."""

    def __init__(self, columns: Columns) -> None:
        self.csv_columns: CsvColumns | None = None
        self._columns, self._sources = columns, columns.build_source_map()
        self._header: list[str] = []
        self._separator = ","
        self._open: list[tuple[int, bytes]] = []  # the lines of a record whose quote is not closed yet

    def list_records(self, start: int, lines: list[bytes]) -> list[tuple[int, bytes]]:
        numbered: Iterable[tuple[int, bytes]] = [*self._open, *enumerate(lines, start)]
        self._open = []
        records = list(self._join_quoted_lines(numbered)) if any(b'"' in line for _, line in numbered) else numbered
        records = [(number, text) for number, text in records if text and not text.isspace()]
        if records and not self._header:
            self._read_header(records.pop(0)[1])
        return records

    def take_remaining_records(self) -> list[tuple[int, bytes]]:
        """Return what is left at the end: the lines after a quote that was never closed, each separately."""
        left, self._open = self._open, []
        return left

    def convert_to_batch(self, mapper: Mapper, texts: list[bytes], now_us: int) -> pa.RecordBatch:
        """Convert all records at once. Raises if one of them is not plain."""
        if max(map(len, texts)) > MAX_LINE_BYTES:
            raise ValueError("a line is too long")
        rows = self._read(b"\n".join(texts))
        if len(rows) != len(texts) or set(map(len, rows)) != {len(self._header)}:
            raise ValueError("a line and the header have different numbers of cells")
        columns = {name: _values_of(cells) for name, cells in group_by_name(self._header, rows).items()}
        for name in self._list_comma_columns(columns):
            columns[name] = [cell and convert_decimal_comma(cell) for cell in columns[name]]
        return mapper.convert_columns(columns, len(rows), now_us)

    def parse(self, text: bytes) -> dict[str, Any]:
        _check_length(text)
        try:
            rows = self._read(text)
        except (csv.Error, UnicodeDecodeError) as error:
            raise MalformedEvent("line", f"is not CSV ({error}).") from None
        if len(rows) != 1 or len(rows[0]) != len(self._header):
            width = len(rows[0]) if rows else 0
            raise MalformedEvent("line", f"has {width} cells. The header has {len(self._header)}.")
        cells = _map_cells(self._header, rows[0])
        for name in self._list_comma_columns(cells):
            cells[name] = cells[name] and convert_decimal_comma(cells[name])
        return cells

    def _read(self, text: bytes) -> list[list[str]]:
        stream = io.StringIO(text.decode(), newline="\n")
        return list(csv.reader(stream, delimiter=self._separator, strict=True))

    def _list_comma_columns(self, columns: Iterable[str]) -> list[str]:
        """Return the columns of numbers whose commas are decimal ones."""
        if self._separator == ",":
            return []
        return [name for name in columns if name in (self._sources.get("value"), self._sources.get("time"))]

    def _join_quoted_lines(self, numbered: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Yield records of one line or more: lines are joined until their quotes are closed."""
        waiting = list(numbered)
        position = 0
        while position < len(waiting):
            end, quotes = position, 0
            while end < len(waiting) and end - position < MAX_RECORD_LINES:
                quotes += waiting[end][1].count(b'"')
                end += 1
                if quotes % 2 == 0:
                    break
            if quotes % 2 and end == len(waiting) and end - position < MAX_RECORD_LINES:
                self._open = waiting[position:]
                return
            # A quote that is never closed spoils only its own line.
            end = position + 1 if quotes % 2 else end
            yield waiting[position][0], b"\n".join(text for _, text in waiting[position:end])
            position = end

    def _read_header(self, text: bytes) -> None:
        named = {column for column in vars(self._columns).values() if column}
        try:
            line = text.decode("utf-8-sig")
            self._separator = detect_separator(line, {known_field.lower() for known_field in (*FIELDS, *named)})
            written = split_header_cells(line, self._separator)
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadInput("header", f"is not CSV ({error}).") from None
        header = [self._part_of(name, written) for name in written]
        if not all(header) or len(set(header)) != len(header):
            raise BadInput("header", f"must have unique column names that are not empty, not {', '.join(written)}.")
        self._columns.check(header)
        names = dict(zip(header, written, strict=True))
        parts = {part: names[column] for part, column in self._sources.items() if column in names}
        if not parts:
            raise BadInput(
                "header",
                f"has no column for an event field: {', '.join(written)[:200]}. Map columns with --type COL, --key "
                f"COL, --time COL, --value COL, or --source COL, or rename them to {', '.join(FIELDS)}.",
            )
        self._header = header
        rest = [name for name in written if name not in parts.values()]
        self.csv_columns = CsvColumns(parts, rest, self._separator)

    def _part_of(self, name: str, header: list[str]) -> str:
        """Return the part of an event that a name is but for its capitals, else the name."""
        plain = name.lower()
        is_part = name not in self._sources.values() and self._sources.get(plain) == plain
        return plain if is_part and plain not in header else name


def open_events(path: str) -> BinaryIO:
    """Open a file by path, or standard input for `-`. Raises `BadInput` if it can't be opened."""
    if path == "-":
        return get_standard_input("file").buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise BadInput("file", f"{path} can't be read ({error.strerror}).") from None


def format_of(path: str) -> str | None:
    """Return the format that the name of a file implies, or None."""
    name = path.removesuffix(".gz")
    if name.endswith(".csv"):
        return "csv"
    return "jsonl" if name.endswith((".jsonl", ".ndjson", ".json")) else None


def unzip_stream(stream: BinaryIO) -> BinaryIO:
    """Return the stream, decompressed if it starts like gzip."""
    buffered: Any = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # any file that can be read
    opened: Any = gzip.GzipFile(fileobj=buffered) if buffered.peek(2)[:2] == b"\x1f\x8b" else buffered
    unzipped: BinaryIO = opened
    return unzipped


def _iterate_line_chunks(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield a chunk at a time: number of the first line, whole lines without the last one's end."""
    number, carry = 1, b""
    while data := _read(stream):
        data = carry + data
        end = data.rfind(b"\n")
        if end < 0:
            # Too long already: what is kept is enough to reject the line, and limits its memory.
            carry = data[: MAX_LINE_BYTES + 1]
            continue
        text = data[:end]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
        carry = data[end + 1 :]
        yield number, text
        number += text.count(b"\n") + 1
    if carry:
        yield number, carry.removesuffix(b"\r")


def _skip_blank_start(pieces: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Skip a byte order mark and the chunks before the first visible character."""
    before = codecs.BOM_UTF8
    for number, text in pieces:
        text, before = text.removeprefix(before), b""
        if text and not text.isspace():
            yield number, text
            break
    yield from pieces


def _read(stream: BinaryIO) -> bytes:
    try:
        return stream.read(CHUNK_BYTES)
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput("file", f"can't be read to its end ({error}).") from None


def _map_cells(header: list[str], row: list[str]) -> dict[str, Any]:
    """Return the cells by name; an empty cell is no value."""
    return {name: cell or None for name, cell in zip(header, row, strict=True)}


def merge_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge smaller batches into batches of some thousand events, so that most blocks are full."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_EVENTS:
            yield pa.concat_batches(waiting) if len(waiting) > 1 else batch
            waiting, rows = [], 0
    if rows:
        yield pa.concat_batches(waiting)


def _values_of(cells: Sequence[str]) -> Sequence[str | None]:
    """Return a column with its empty cells as None."""
    return [cell or None for cell in cells] if "" in cells else cells


def _check_length(text: bytes) -> None:
    if len(text) > MAX_LINE_BYTES:
        raise MalformedEvent("line", f"must have at most {MAX_LINE_BYTES} bytes.")
