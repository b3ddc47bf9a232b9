"""`metric_spill`: metrics by the second, kept for two hours in a stream, as Parquet files.

The amount is unknown in advance: a chunk takes up to an hour of rows that no file has, then the next one follows. A
file is named by the ids of its first and last row, so the names alone say what was spilled.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import redis

from queues import keys
from queues.control.replies import Entries, expect_bytes
from workers.batch import files
from workers.batch.job import ChunkResult, ChunkSpec, HeldChunk, Job, JobContext, Values, Work
from workers.history import metric_history, metrics

CHUNK_ROWS = 3_600
# As Python objects, 600 rows take 30 MB, part of which a process would never return to the system.
PAGE_ROWS = 60
# A younger row may still be followed by one of the same second.
SETTLED_SECONDS = 2.0


def build_next_chunk(values: Values, where: JobContext, after: str | None) -> ChunkSpec | None:
    """Return the next rows of one day after the spilled ones; None when there are none."""
    spilled = metric_history.find_last_spilled_id(where.data)
    # Two ids have the form ms-n. The rows of the previous chunk may not be published yet when the next is requested.
    begun = max([when for when in (spilled, after and after.split("_")[1]) if when], key=_order, default=None)
    end = str(round((where.now.timestamp() - SETTLED_SECONDS) * 1000))
    pages = _iterate_pages(where.control, f"({begun}" if begun else "-", end, CHUNK_ROWS)
    ids = [entry_id.decode() for entries in pages for entry_id, _ in entries]
    if not ids:
        return None
    day = parse_entry_day(ids[0])
    last = [row_id for row_id in ids if parse_entry_day(row_id) == day][-1]
    return ChunkSpec(f"{ids[0]}_{last}", {"first": ids[0], "last": last, "day": day})


def work(lease: HeldChunk) -> ChunkResult:
    """Write one chunk's rows to a file that is not published yet."""
    first, last, day = (lease.content[name] for name in ("first", "last", "day"))
    where = lease.surroundings
    lease.check()
    table = read_stream_rows(where.control, first, last)
    if not table.num_rows:
        return ChunkResult(0)  # the stream has dropped them in the meantime
    final = f"{metric_history.RAW_ROOT}/day={day}/{first}_{last}.parquet"
    return ChunkResult(table.num_rows, files.write_table(where.data, final, lease.token, table))


def read_stream_rows(control: redis.Redis, first: str, last: str) -> pa.Table:
    """Return the stream's rows from id to id, both included."""
    pages = _iterate_pages(control, first, last)
    tables = [build_table(rows) for entries in pages for rows in metrics.iterate_rows(control, entries)]
    return pa.concat_tables([metric_history.RAW.empty_table(), *tables])


def _iterate_pages(control: redis.Redis, first: str, last: str, most_rows: int | None = None) -> Iterator[Entries]:
    """Yield those rows, PAGE_ROWS at a time, and at most most_rows, where that is given."""
    left = most_rows
    while left is None or left > 0:
        count = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
        entries = expect_bytes(control).xrange(keys.METRICS, first, last, count)
        if not entries:
            return
        yield entries
        first = f"({entries[-1][0].decode()}"
        left = None if left is None else left - len(entries)


def build_table(rows: metrics.MetricRows) -> pa.Table:
    """Return the known numbers as {time, series, value}."""
    places, columns = np.nonzero(~np.isnan(rows.numbers))
    times = pa.array(1000 * rows.at_ms[places], metric_history.RAW.field("time").type)
    series = pa.array(rows.series, pa.string()).take(pa.array(columns))
    return pa.Table.from_arrays([times, series, pa.array(rows.numbers[places, columns])], schema=metric_history.RAW)


def parse_entry_day(entry_id: str) -> str:
    return datetime.fromtimestamp(int(entry_id.split("-")[0]) / 1000, UTC).date().isoformat()


def open_job(where: JobContext) -> nullcontext[Work]:
    return nullcontext(work)


def _order(entry_id: str) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split("-")))


JOBS = (
    Job(
        "metric_spill",
        "Writes the per-second metrics from the stream to files.",
        (),
        open_job,
        next_piece=build_next_chunk,
        every_seconds=600,
    ),
)
