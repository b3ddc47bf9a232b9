"""Training sets of the job `forecast_training`: archived rates by window, as input of forecasts.

`training/queue=…/day=….parquet`; columns: see `workers.batch.jobs.spark.training`. The newest contiguous days are read.
A stale or invalid set is refused with the reason: the forecast then uses measured rates only.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.errors import WeirError
from common.files import resolve_inside_folder

ROOT = "training"
ALL_TYPES = ""
TABLE = pa.schema(
    [
        ("time", pa.timestamp("s", "UTC")),
        ("type", pa.string()),
        ("rate_per_second", pa.float64()),
        ("day_sin", pa.float64()),
        ("day_cos", pa.float64()),
        ("week_sin", pa.float64()),
        ("week_cos", pa.float64()),
        ("weekend", pa.bool_()),
        ("history", pa.list_(pa.float64())),
        ("target", pa.list_(pa.float64())),
    ]
)
NEEDED = ("time", "type", "rate_per_second")
# An older set may show a different week.
STALE_DAYS, MAX_DAYS = 8, 14
MAX_WINDOW_SECONDS = 3_600.0
Floats = npt.NDArray[np.float64]


class TrainingRefused(WeirError):  # noqa: N818
    """Raised when a set is unusable for forecasts; the message says why."""


@dataclass(frozen=True)
class TrainingSet:
    """Middles of windows (s since 1970) and their rates, events/s."""

    at_seconds: Floats
    rates_per_second: Floats
    newest_day: date
    days: int


def load_newest_set(data: Path, queue: str, now_seconds: float) -> TrainingSet | None:
    """Return the newest days of a queue; None where there is no set. Raises TrainingRefused."""
    files = sorted(resolve_inside_folder(data / ROOT, f"queue={queue}", "queue").glob("day=*.parquet"))[-MAX_DAYS:]
    if not files:
        return None
    last = _parse_day(files[-1])
    age_days = (datetime.fromtimestamp(now_seconds, UTC).date() - last).days
    if age_days > STALE_DAYS:
        raise TrainingRefused(f"the training set of {queue} ends on {last}, {age_days} days ago")
    parts = [_read_rates(path, path.stat().st_mtime_ns) for path in files]
    widths = {width for _, _, width in parts}
    if len(widths) > 1:
        raise TrainingRefused(f"the training set of {queue} has days with different window lengths")
    at, rates = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    past = at < now_seconds
    return TrainingSet(at[past], rates[past], last, len(files))


def _parse_day(path: Path) -> date:
    try:
        return date.fromisoformat(path.stem.removeprefix("day="))
    except ValueError:
        raise TrainingRefused(f"{path.name} has no date in its name") from None


@lru_cache(maxsize=2_048)  # days of a hundred queues
def _read_rates(path: Path, changed_ns: int) -> tuple[Floats, Floats, float]:
    """Return middles, rates, and the width of the whole queue's windows, cached while the file is unchanged."""
    try:
        schema = pq.read_schema(path)
        table = pq.read_table(path, columns=list(NEEDED), partitioning=None)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise TrainingRefused(f"{path.parent.name}/{path.name} cannot be read ({type(error).__name__})") from error
    if not _is_ours(schema):
        raise TrainingRefused(f"{path.parent.name}/{path.name} does not have the columns of a training set")
    whole = table.filter(pc.equal(table["type"], ALL_TYPES)).sort_by("time")
    begins = whole["time"].cast(pa.timestamp("s", "UTC")).cast(pa.int64()).to_numpy().astype(float)
    widths = np.unique(np.diff(begins))
    if widths.size != 1 or not 0 < widths[0] <= MAX_WINDOW_SECONDS:
        raise TrainingRefused(f"{path.parent.name}/{path.name} must have windows of equal length, at most 1 h")
    width = float(widths[0])
    return begins + width / 2, whole["rate_per_second"].to_numpy(), width


def _is_ours(schema: pa.Schema) -> bool:
    """Return whether columns and types match. In a file, times may be finer and lists name their items differently."""
    if schema.names != TABLE.names:
        return False
    is_time = pa.types.is_timestamp(schema.field("time").type)
    return is_time and all(schema.field(name).type == TABLE.field(name).type for name in NEEDED[1:])
