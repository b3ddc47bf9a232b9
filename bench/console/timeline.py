"""The kept past: what a day of it takes on disk, how soon any instant is read, and a week of figures drawn.

A real plant (./run) fills the archive; the large one is its snapshot copied to 200 nodes, 1000 containers.
"""

import random
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as parquet
import redis

from bench.plant.running_plant import RunningPlant
from common.stored_document import convert
from console.timeline.strips import PATHS, build_figures, format_state_path
from console.timeline.window import Window
from workers.batch.jobs.spark import rollup
from workers.documents.snapshot import Snapshot
from workers.history import metric_history, metrics
from workers.history.snapshot_archive import ROOT, SUFFIX, Recorder, snapshot_at

LIMITS = {"bytes_per_day": 50e6, "read_p95_seconds": 0.2, "large_read_p95_seconds": 0.2, "week_seconds": 1.0}
READS, LARGE_NODES, CONTAINERS_A_QUEUE = 100, 200, 10
MIN_SECONDS = 200.0  # three whole minutes


def bytes_per_day(data: Path) -> float:
    """From the whole minutes: those between the first block, which began late, and the open one."""
    blocks = sorted((data / ROOT).glob(f"day=*/*{SUFFIX}"))[1:]
    return float(np.mean([block.stat().st_size for block in blocks])) * 1_440


def read_seconds(data: Path, begin: float, end: float) -> list[float]:
    """Of instants spread over what is kept."""
    chance = random.Random(7)
    return [_time_work(lambda: snapshot_at(data, chance.uniform(begin, end))) for _ in range(READS)]


def _time_work(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    if work() is None:
        raise AssertionError("nothing was kept of an instant that was measured")
    return time.perf_counter() - start


def enlarge(snapshot: dict[str, Any]) -> dict[str, Any]:
    """The same plant with LARGE_NODES nodes, and 100 queues of CONTAINERS_A_QUEUE containers."""
    large = deepcopy(snapshot)
    node, queue = (next(iter(snapshot[kind].values())) for kind in ("nodes", "queues"))
    container = next(iter(queue["containers"].values()))
    names = [f"node{number:03}" for number in range(LARGE_NODES)]
    large["nodes"] = {name: deepcopy(node) for name in names}
    large["queues"] = {
        f"queue{number:03}": {
            **queue,
            "containers": {
                names[(7 * number + place) % LARGE_NODES]: dict(container) for place in range(CONTAINERS_A_QUEUE)
            },
        }
        for number in range(1_000 // CONTAINERS_A_QUEUE)
    }
    return large


def large_figures(snapshot: dict[str, Any], folder: Path) -> dict[str, float]:
    """Ten minutes of the large plant, every number of it another each second."""
    chance, recorder, large = random.Random(7), Recorder(folder), enlarge(snapshot)
    begin = snapshot["at"]
    for second in range(600):
        for row in [*large["nodes"].values(), *(c for q in large["queues"].values() for c in q["containers"].values())]:
            row["in_per_second"] = round(chance.uniform(10, 400), 3)
        recorder.add(begin + second, orjson.dumps({**large, "at": begin + second}))
    seconds = read_seconds(folder, begin, begin + 599)
    return {
        "large_snapshot_bytes": len(orjson.dumps(large)),
        "large_bytes_per_day": bytes_per_day(folder),
        "large_read_p95_seconds": float(np.quantile(seconds, 0.95)),
    }


def lay_week(data: Path, series: list[str], until: datetime) -> None:
    """A week rolled up by the minute, as `metric_rollup` writes it."""
    values = np.random.default_rng(7).uniform(0, 3, (1_440, len(series)))
    for back in range(8):
        day = (until - timedelta(days=back)).replace(hour=0, minute=0, second=0, microsecond=0)
        minutes = [m for m in range(1_440) if day + timedelta(minutes=m) < until - timedelta(minutes=40)]
        times = [day + timedelta(minutes=m) for m in minutes for _ in series]
        names = series * len(minutes)
        column = values[: len(minutes)].ravel()
        table = pa.table([times, names, np.full(len(names), 60), column, column, column, column], schema=rollup.TABLE)
        path = data / metric_history.get_rollup_path("1m", day.date().isoformat())
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path)


def week_seconds(control: redis.Redis, snapshot: dict[str, Any], data: Path) -> float:
    """From the files to what is drawn."""
    until = datetime.now(UTC)
    lay_week(data, [name for name, _ in metrics.iterate_figures(convert(Snapshot, snapshot))], until)
    window, nodes = Window(until - timedelta(days=7), until), list(snapshot["nodes"])
    wanted = [*PATHS, *map(format_state_path, nodes)]

    def draw() -> Any:
        ends = window.since.timestamp(), window.until.timestamp()
        return build_figures(window, metric_history.read_columns(control, data, *ends, wanted), nodes)

    draw()  # what is read for the first time is loaded
    return float(np.median([_time_work(draw) for _ in range(5)]))


def run(seconds: float) -> dict[str, Any]:
    with RunningPlant() as plant, tempfile.TemporaryDirectory(prefix="weir-past-") as folder:
        plant.wait_until(lambda s: (s["pipeline"] or {}).get("state") == "running", 120, "the pipeline runs")
        snapshot = plant.snapshot() or {}
        time.sleep(max(MIN_SECONDS, 10 * seconds))
        newest = plant.snapshot() or {}
        reads = read_seconds(plant.data, snapshot["at"] + 1, newest["at"] - 1)
        with redis.Redis.from_url(plant.control_url()) as control:
            week = week_seconds(control, newest, Path(folder) / "week")
        figures = {
            "snapshot_bytes": len(orjson.dumps(newest)),
            "bytes_per_day": bytes_per_day(plant.data),
            "read_p95_seconds": float(np.quantile(reads, 0.95)),
            **large_figures(newest, Path(folder) / "large"),
            "week_seconds": week,
        }
    return {
        "figures": figures,
        "peers": {f"limit_{name}": value for name, value in LIMITS.items()},
        "ratio": {name: figures[name] / limit for name, limit in LIMITS.items()},
    }
