"""The plant's metrics as files: rows spilled from the stream, and their roll-ups.

`metrics/raw/day=…/{first id}_{last id}.parquet`: time, series, value; one file per spill, named by the stream
ids of its first and last row. `metrics/{10s,1m,1h}/day=….parquet`: see `workers.batch.jobs.spark.rollup`.
"""

import re
from pathlib import Path

import pyarrow as pa

from common.files import resolve_inside_folder
from workers.history.days import list_days

RAW = pa.schema([("time", pa.timestamp("us", "UTC")), ("series", pa.string()), ("value", pa.float64())])
ROOT = "metrics"
RAW_ROOT = f"{ROOT}/raw"
SPILLED = re.compile(r"\d+-\d+_\d+-\d+")
STEPS = {"10s": 10, "1m": 60, "1h": 3_600}  # name → seconds


def get_raw_folder(data: Path, day: str) -> Path:
    return resolve_inside_folder(data / RAW_ROOT, f"day={day}", "day")


def list_raw_days(data: Path, since: str = "", until: str = "9999") -> list[str]:
    """Return the days with raw metrics between two days, both included."""
    days = list_days((data / RAW_ROOT).glob("day=*"))
    return [day for day in days if since <= day <= until and any(get_raw_folder(data, day).glob("*.parquet"))]


def find_last_spilled_id(data: Path) -> str | None:
    """Return the greatest stream id in any file's name; None before the first spill."""
    stems = (path.stem for path in (data / RAW_ROOT).glob("day=*/*.parquet"))
    ends = (stem.split("_")[1] for stem in stems if SPILLED.fullmatch(stem))
    return max(ends, key=lambda entry: tuple(map(int, entry.split("-"))), default=None)


def is_rolled_up(data: Path, day: str) -> bool:
    """Return whether a day has roll-ups of all of its spilled rows."""
    rolled = data / get_rollup_path(next(iter(STEPS)), day)
    if not rolled.exists():
        return False
    newest = max((path.stat().st_mtime for path in get_raw_folder(data, day).glob("*.parquet")), default=0.0)
    return newest <= rolled.stat().st_mtime


def get_rollup_path(step: str, day: str) -> str:
    return f"{ROOT}/{step}/day={day}.parquet"


def list_rollup_days(data: Path, step: str, since: str = "", until: str = "9999") -> list[str]:
    """Return the days with roll-ups of this step between two days, both included."""
    days = list_days((data / ROOT / step).glob("day=*.parquet"), ".parquet")
    return [day for day in days if since <= day <= until]
