"""Spark's counts of two stretches of the event archive.

`comparisons/…parquet` is written by the job `stretch_comparison` and read by the page that compares them.

| column | is |
|---|---|
| dimension | type, key, or source |
| value | one of the most frequent of both stretches together, or `(all others)` |
| here, there | the events of each slice of either stretch, as `stretches.archived` counts them |

A file's name identifies its comparison, so that the same request finds it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from common.files import resolve_inside_folder
from workers.history.stretches import SLICES, Sliced, TimeRange

ROOT = "comparisons"
TABLE = pa.schema(
    [
        ("dimension", pa.string()),
        ("value", pa.string()),
        ("here", pa.list_(pa.float64(), SLICES)),
        ("there", pa.list_(pa.float64(), SLICES)),
    ]
)


@dataclass(frozen=True)
class TimeRangeCounts:
    """Counts of two stretches.

    here, there: dimension → value → events per slice; made_at: when they were counted.
    """

    here: Mapping[str, Sliced]
    there: Mapping[str, Sliced]
    made_at: datetime


def build_counts_name(queue: str, here: TimeRange, there: TimeRange) -> str:
    """Return the file's name without its suffix: whole seconds, for one queue or all."""
    times = "-".join(f"{int(at)}" for at in (here.since, here.until, there.since))
    return f"queue={queue}/{times}" if queue else f"all/{times}"


def get_counts_path(queue: str, here: TimeRange, there: TimeRange) -> str:
    """Return the file's path relative to the data folder."""
    return f"{ROOT}/{build_counts_name(queue, here, there)}.parquet"


def build_counts_table(here: Mapping[str, Sliced], there: Mapping[str, Sliced]) -> pa.Table:
    """Return a table with a row per dimension and value; a value missing in one stretch is 0 there."""
    none = [0.0] * SLICES
    rows = [
        {
            "dimension": name,
            "value": value,
            "here": here.get(name, {}).get(value, none),
            "there": there.get(name, {}).get(value, none),
        }
        for name in sorted({*here, *there})
        for value in sorted({*here.get(name, {}), *there.get(name, {})})
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def read_counts(data: Path, queue: str, here: TimeRange, there: TimeRange) -> TimeRangeCounts | None:
    """Read the counts; None where no job has counted them."""
    path = resolve_inside_folder(data / ROOT, f"{build_counts_name(queue, here, there)}.parquet", "queue")
    try:
        with pq.ParquetFile(path) as file:
            rows = file.read().to_pylist()
        made_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None
    ours: dict[str, Sliced] = {}
    theirs: dict[str, Sliced] = {}
    for row in rows:
        ours.setdefault(row["dimension"], {})[row["value"]] = row["here"]
        theirs.setdefault(row["dimension"], {})[row["value"]] = row["there"]
    return TimeRangeCounts(ours, theirs, made_at)
