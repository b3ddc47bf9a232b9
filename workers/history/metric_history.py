"""The plant's metrics as files: rows spilled from the stream, and their roll-ups.

`metrics/raw/day=…/{first id}_{last id}.parquet`: time, series, value; one file per spill, named by the stream
ids of its first and last row. `metrics/{10s,1m,1h}/day=….parquet`: see `workers.batch.jobs.spark.rollup`.
"""

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import redis
from numpy.typing import NDArray

from common.files import resolve_inside_folder
from workers.history import event_archive, metrics
from workers.history.event_archive import list_days

RAW = pa.schema([("time", pa.timestamp("us", "UTC")), ("series", pa.string()), ("value", pa.float64())])
METRICS_ROOT = "metrics"
RAW_ROOT = f"{METRICS_ROOT}/raw"
SPILLED = re.compile(r"\d+-\d+_\d+-\d+")
ROLLUP_SECONDS = {"10s": 10, "1m": 60, "1h": 3_600}  # name → seconds


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
    rolled = data / get_rollup_path(next(iter(ROLLUP_SECONDS)), day)
    if not rolled.exists():
        return False
    newest = max((path.stat().st_mtime for path in get_raw_folder(data, day).glob("*.parquet")), default=0.0)
    return newest <= rolled.stat().st_mtime


def get_rollup_path(step: str, day: str) -> str:
    return f"{METRICS_ROOT}/{step}/day={day}.parquet"


def list_rollup_days(data: Path, step: str, since: str = "", until: str = "9999") -> list[str]:
    """Return the days with roll-ups of this step between two days, both included."""
    days = list_days((data / METRICS_ROOT / step).glob("day=*.parquet"), ".parquet")
    return [day for day in days if since <= day <= until]


# The longest range that is read with these windows; None: by the second.
STEPS: tuple[tuple[float, str | None], ...] = (
    (2 * 3_600, None),
    (6 * 3_600, "10s"),
    (8 * 86_400, "1m"),
    (float("inf"), "1h"),
)
LAST_SECONDS = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
Part = tuple[NDArray[np.float64], NDArray[np.float64]]  # times in seconds, values


def read_columns(
    control: redis.Redis,
    data: Path,
    since_seconds: float,
    until_seconds: float,
    series: Collection[str],
    range_seconds: float | None = None,
    means: bool = False,
) -> dict[str, list[float | None]]:
    """Return `{"at": [seconds …], series: [number or None …]}`, both ends included.

    `range_seconds`: the length of the whole range that this one belongs to, which decides on the windows.
    `means`: a window gives one row, its mean in its middle, which computations need: for a bursty rate, the
    middle between minimum and maximum is far from the mean.
    """
    since, until = (min(max(0.0, instant), LAST_SECONDS) for instant in (since_seconds, until_seconds))
    earlier = {name: before for name in series if (before := _find_former_series(name)) is not None}
    parts: dict[str, list[Part]] = {name: [] for name in dict.fromkeys([*series, *earlier.values()])}
    step = _choose_kept_step(data, _step(until - since if range_seconds is None else range_seconds), since, until)
    if step is not None:
        since = (_add_means if means else _add_windows)(parts, data, step, since, until)
    since = _add_seconds(parts, data, since, until)
    _add_live(parts, control, since, until)
    joined = _on_one_axis(parts)
    for name, before in earlier.items():
        pairs = zip(joined[name], joined[before], strict=True)
        joined[name] = [older if value is None else value for value, older in pairs]
    return {name: joined[name] for name in ("at", *series)}


def _find_former_series(name: str) -> str | None:
    """Return the series that rows of old versions have instead: busy workers at an instant."""
    if name == "totals.workers_at_work":
        return "totals.workers_busy"
    if name.startswith("hosts.") and name.endswith(".at_work"):
        return f"{name.removesuffix('.at_work')}.busy"
    return None


def step_seconds(range_seconds: float) -> int:
    """Return the distance between the rows of a range of this length."""
    step = _step(range_seconds)
    return ROLLUP_SECONDS[step] if step else 1


def _step(range_seconds: float) -> str | None:
    return next(step for longest, step in STEPS if range_seconds <= longest)


def _choose_kept_step(data: Path, step: str | None, since: float, until: float) -> str | None:
    """Return the step, or the next longer one that is kept for these days. Retention deletes fine data first."""
    first, last = _format_day(since), _format_day(until)
    raw = list_raw_days(data, first)
    steps = [step for _, step in STEPS]
    for candidate in steps[steps.index(step) :]:
        days = [*raw, *(list_rollup_days(data, candidate, first) if candidate else ())]
        # Nothing of these days is kept, but later days are: it was deleted.
        if min(days, default="") <= last:
            return candidate
    return step


def _add_windows(parts: dict[str, list[Part]], data: Path, step: str, since: float, until: float) -> float:
    """Add the windows of the range; return the second from which on there are none."""
    width = ROLLUP_SECONDS[step]
    files = _list_rollup_files(data, step, since - width, until)
    tables = [_read_windows(path, path.stat().st_mtime_ns, tuple(parts)) for path in files]
    table = _select_between(pa.concat_tables(tables), since - width, until) if tables else None
    if not table:
        return since
    end = _end(table)
    for name, rows in _group_by_series(table):
        begins = _convert_to_seconds(rows["time"])
        whole = begins < end
        least, greatest = (rows[column].to_numpy()[whole] for column in ("minimum", "maximum"))
        # A state that was bad for an instant was bad: its window has its worst state.
        first = greatest if name.endswith(".state") else least
        parts[name] += [(begins[whole], first), (begins[whole] + width / 2, greatest)]
    return max(since, end)


def _add_means(parts: dict[str, list[Part]], data: Path, step: str, since: float, until: float) -> float:
    """Add the windows' means. This is requested once, so no file is cached."""
    width = ROLLUP_SECONDS[step]
    tables = [_read_rows(path, ("mean",), parts) for path in _list_rollup_files(data, step, since - width, until)]
    table = _select_between(pa.concat_tables(tables), since - width, until) if tables else None
    if not table:
        return since
    end = _end(table)
    for name, rows in _group_by_series(table):
        begins = _convert_to_seconds(rows["time"])
        whole = begins < end
        parts[name].append((begins[whole] + width / 2, rows["mean"].to_numpy()[whole]))
    return max(since, end)


def _list_rollup_files(data: Path, step: str, since: float, until: float) -> list[Path]:
    days = list_rollup_days(data, step, _format_day(since), _format_day(until))
    return [data / get_rollup_path(step, day) for day in days]


def _end(table: pa.Table) -> float:
    """Return the start of the newest window, which may have been rolled up before it was complete."""
    end: float = pc.max(table["time"]).as_py().timestamp()
    return end


def _add_seconds(parts: dict[str, list[Part]], data: Path, since: float, until: float) -> float:
    """Add the spilled rows of the range; return the second from which on nothing is spilled."""
    for day in list_raw_days(data, _format_day(since), _format_day(until)):
        for path in event_archive.list_parquet_files(get_raw_folder(data, day)):
            first, last = (int(part.split("-")[0]) / 1000 for part in path.stem.split("_"))
            if last < since or first > until:
                continue
            for name, rows in _group_by_series(_select_between(_read_rows(path, ("value",), parts), since, until)):
                parts[name].append((_convert_to_seconds(rows["time"]), rows["value"].to_numpy()))
    spilled = find_last_spilled_id(data)
    # From the next millisecond after the last spilled row.
    return since if spilled is None else max(since, (int(spilled.split("-")[0]) + 1) / 1000)


def _add_live(parts: dict[str, list[Part]], control: redis.Redis, since: float, until: float) -> None:
    if since > until:
        return
    at, columns = metrics.read_columns(control, since, until, parts)
    for name, column in columns.items():
        parts[name].append((at, column))


@lru_cache(maxsize=16)
def _read_windows(path: Path, changed_ns: int, series: tuple[str, ...]) -> pa.Table:
    """Return a day's windows of the requested series.

    They are cached while the file is unchanged: a week is requested again whenever a person moves or zooms it.
    """
    return _read_rows(path, ("minimum", "maximum"), series)


def _read_rows(path: Path, values: tuple[str, ...], series: Collection[str]) -> pa.Table:
    wanted = pc.field("series").isin(list(series))
    return pq.read_table(path, columns=["time", "series", *values], filters=wanted, partitioning=None)


def _select_between(table: pa.Table, since: float, until: float) -> pa.Table:
    first, last = (pa.scalar(_convert_to_datetime(instant), pa.timestamp("us", "UTC")) for instant in (since, until))
    return table.filter((pc.field("time") >= first) & (pc.field("time") <= last))


def _group_by_series(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for name in pc.unique(table["series"]).to_pylist():
        yield name, table.filter(pc.equal(table["series"], name))


def _on_one_axis(parts: dict[str, list[Part]]) -> dict[str, list[float | None]]:
    """Align all series on the union of times; of duplicate rows (overlapping spills), one is kept."""
    times = [at for pieces in parts.values() for at, _ in pieces]
    axis = np.unique(np.concatenate(times)) if times else np.empty(0)
    columns_by_name: dict[str, list[Any]] = {"at": axis.tolist()}
    for name, pieces in parts.items():
        column = np.full(len(axis), np.nan)
        for at, values in pieces:
            column[np.searchsorted(axis, at)] = values
        columns_by_name[name] = np.where(np.isnan(column), cast(Any, None), column).tolist()
    return columns_by_name


def _convert_to_seconds(times: pa.ChunkedArray) -> NDArray[np.float64]:
    microseconds: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return microseconds / 1e6


def _convert_to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _format_day(seconds: float) -> str:
    return _convert_to_datetime(max(0.0, seconds)).date().isoformat()
