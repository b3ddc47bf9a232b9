"""The columns of a block: tasks of one plant and day as Parquet, which other programs can read, too.

Times are rounded to milliseconds, and run times to microseconds.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from workers.task_history.record import TaskRecord

MAX_ROWS = 8_192
LEVEL = 9
TEXT, TIME = pa.string(), pa.timestamp("ms")
TIMES = ("at", "sent", "received", "started", "ended")
NUMBERS = ("retries", "retried")
RUN = "run_microseconds"
SCHEMA = pa.schema(
    [
        *((name, TEXT) for name in ("id", "name", "state", "worker", "queue", "args", "kwargs")),
        ("are_exact", pa.bool_()),
        *((name, TEXT) for name in ("result", "error", "traceback", "failure", "eta", "parent", "root")),
        *((name, TIME) for name in TIMES),
        *((name, pa.int32()) for name in NUMBERS),
        (RUN, pa.int64()),
    ]
)
# Texts that are different in most rows; a dictionary of them would only take space.
_DISTINCT = ("id", "args", "kwargs", "result")
_WITH_DICTIONARY = [
    field.name for field in SCHEMA if (field.type == TEXT and field.name not in _DISTINCT) or field.name in NUMBERS
]


def build_table(records: Sequence[TaskRecord]) -> pa.Table:
    """Return the records as a table, in their order."""
    values = zip(*(msgspec.structs.astuple(record) for record in records), strict=True)
    columns = dict(zip(TaskRecord.__struct_fields__, values, strict=True))
    for name in TIMES:
        columns[name] = tuple(None if time is None else round(time * 1_000) for time in columns[name])
    columns[RUN] = tuple(None if run is None else round(run * 1_000_000) for run in columns["run_seconds"])
    arrays = [
        pa.array(columns[field.name], pa.int64()).cast(TIME)
        if field.name in TIMES
        else pa.array(columns[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def read_records(table: pa.Table, plant: str) -> list[TaskRecord]:
    """Return the records of a table with all columns."""
    records = []
    for name in TIMES:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(name).cast(pa.int64()))
    for row in table.to_pylist():
        microseconds = row.pop(RUN)
        values = {name: value for name, value in row.items() if value is not None}
        values |= {name: values[name] / 1_000 for name in TIMES if name in values}
        run_seconds = None if microseconds is None else microseconds / 1_000_000
        records.append(TaskRecord(plant=plant, run_seconds=run_seconds, **values))
    return records


def encode_table(table: pa.Table) -> bytes:
    """Return the table as a Parquet file with one row group."""
    buffer = io.BytesIO()
    with open_writer(buffer) as writer:
        writer.write_table(table, row_group_size=MAX_ROWS)
    return buffer.getvalue()


def open_encoded(data: bytes) -> parquet.ParquetFile:
    """Return an encoded table to read from. Raises pa.ArrowException."""
    return parquet.ParquetFile(pa.BufferReader(data))


def read_encoded(data: bytes) -> pa.Table:
    """Return an encoded table. Raises pa.ArrowException."""
    return open_encoded(data).read(use_threads=False)


def find_equal(column: pa.ChunkedArray, value: str) -> list[int]:
    """Return the numbers of the rows with this value."""
    numbers: list[int] = compute.indices_nonzero(compute.equal(column, value)).to_pylist()
    return numbers


def open_writer(target: io.BytesIO | Path) -> parquet.ParquetWriter:
    """Return a writer of blocks, each of which becomes a row group. Raises OSError."""
    return parquet.ParquetWriter(
        target,
        SCHEMA,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=_WITH_DICTIONARY,
        write_statistics=False,
        store_schema=False,
    )


def round_times(record: TaskRecord) -> TaskRecord:
    """Return the record as a block stores it."""
    times = {name: getattr(record, name) for name in TIMES}
    rounded = {name: None if time is None else round(time * 1_000) / 1_000 for name, time in times.items()}
    run = record.run_seconds
    rounded["run_seconds"] = None if run is None else round(run * 1_000_000) / 1_000_000
    return msgspec.structs.replace(record, **rounded)
