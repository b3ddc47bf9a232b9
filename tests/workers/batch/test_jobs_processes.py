"""Batch jobs in real processes: paused, killed, cancelled, and Spark's results on a real archive.

Each plant has its own database and data folder, since the processes share nothing else with the test.
"""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
import redis

from tests.servers import Server
from tests.waiting import MAX_SECONDS, until
from tests.workers.celery_worker import CeleryWorker
from tests.workers.samples import batch_of
from workers.batch import files
from workers.batch.catalog import JOBS
from workers.batch.chunk_leases import ChunkLeaseLost
from workers.batch.job import JobContext
from workers.batch.jobs.spark.client import SparkProcess
from workers.batch.jobs.spark.process import MAKERS
from workers.history import event_archive, metric_history, stretches
from workers.history.stretches import TimeRange, get_counts_path, read_counts

ROOT = Path(__file__).resolve().parents[3]
DAY = "2026-11-19"
BEGIN_US = int(datetime.fromisoformat(f"{DAY}T06:00:00+00:00").timestamp() * 1_000_000)
MANAGE_SECONDS = 120

pytestmark = [pytest.mark.slow]


class Plant:
    """`manage.py job` on a data folder, database and control server of its own."""

    def __init__(self, data: Path, server: Server) -> None:
        self.data, self.control = data, server.client()
        self.environment = {
            **os.environ,
            "WEIR_DATA": str(data),
            "REDIS_URL": server.url,
            "DATABASE_URL": f"sqlite:///{data / 'weir.sqlite3'}",
            "PYTHONPATH": str(ROOT),
            "SPARK_MASTER": "local[2]",
        }
        self.started: list[subprocess.Popen[str]] = []
        self.manage("migrate", "--skip-checks", "-v0")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def manage(self, *arguments: str, code: int = 0) -> str:
        out, err = (process := self.start(*arguments)).communicate(timeout=MANAGE_SECONDS)
        assert process.returncode == code, err
        return out if code == 0 else err

    def job(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self.manage("job", *arguments, "--json"))

    def run(self, name: str, *arguments: str, **values: Any) -> dict[str, Any]:
        pairs = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        return self.job("run", name, *pairs, *arguments)

    def define(self, name: str, job: str, **fields: Any) -> None:
        """A task of the tests' own jobs."""
        script = f"from workers.batch.task_definitions import define; define({name!r}, {job!r}, **{fields!r})"
        self.manage("shell", "-v0", "-c", script)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def plant(tmp_path, control_server):
    plant = Plant(tmp_path, control_server)
    yield plant
    plant.close()


def lay(data: Path, name: str, table: pa.Table, queue: str = "process") -> Path:
    path = event_archive.Partition(DAY, queue).get_folder(data) / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
    return path


def events(count: int, first: int = 0, **columns: Any) -> pa.Table:
    rows = range(first, first + count)
    values = {
        "id": [f"e{row}" for row in rows],
        "time": [BEGIN_US + row * 500_000 for row in rows],
        "type": ["cpu" if row % 2 else "load" for row in rows],
        **columns,
    }
    return pa.Table.from_batches([batch_of(count, first, **values)])


def test_a_worker_that_was_paused_and_revived_cannot_write_after_its_successor(plant):
    plant.define("parts", "python:tests.workers.batch.job_samples.NUMBERED", parameters={"chunks": 1})
    (plant.data / "hold").touch()
    paused = plant.start("job", "run", "parts", "--here", "--json")
    until((plant.data / "holding").exists)
    os.kill(paused.pid, signal.SIGSTOP)
    (plant.data / "hold").unlink()
    age_signs_of_life(plant)
    (run,) = next(task for task in plant.job("list")["tasks"] if task["name"] == "parts")["runs"]
    successor = plant.start("shell", "-v0", "-c", WORK.format(run=run["run"]))
    out, err = successor.communicate(timeout=MAX_SECONDS)
    assert successor.returncode == 0, err
    part = plant.data / "extracts" / "part-0.txt"
    assert part.read_text() == str(successor.pid)
    os.kill(paused.pid, signal.SIGCONT)
    out, err = paused.communicate(timeout=MAX_SECONDS)
    assert "no longer belongs to this worker" in err
    assert part.read_text() == str(successor.pid)
    assert json.loads(out)["state"] == "done" and json.loads(out)["chunks_done"] == 1
    assert [path.name for path in part.parent.iterdir()] == ["part-0.txt"]


WORK = """
from datetime import UTC, datetime
from django.conf import settings
from workers.batch import worker
from workers.coordination.connections import control_server
worker.work_at({run}, "successor", control_server(), settings.WEIR_DATA, lambda: datetime.now(UTC))
"""


def age_signs_of_life(plant: Plant) -> None:
    """As if a worker had been silent for long: what a test may do instead of waiting."""
    plant.manage(
        "shell",
        "-v0",
        "-c",
        "from datetime import timedelta; from workers.models import Chunk; from django.db.models import F;"
        "Chunk.objects.filter(state='working').update(beat_at=F('beat_at') - timedelta(seconds=60))",
    )


class Spark:
    """The process of Spark jobs, asked as a worker asks it."""

    def __init__(self, data: Path) -> None:
        self.data, self.asked = data, 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workers.batch.jobs.spark.process"],
            cwd=ROOT,
            env={**os.environ, "SPARK_MASTER": "local[2]"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def ask(self, job: str, content: dict[str, Any], **given: Any) -> dict[str, Any]:
        """The answer that ends it, whatever progress came before."""
        self.asked += 1
        request = {
            "job": job,
            "parameters": JOBS[job].read(given),
            "content": content,
            "token": f"1-1-{self.asked}",
            "data": str(self.data),
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        while "progress" in (answer := json.loads(self.process.stdout.readline())):
            assert answer["progress"]["tasks_done"] <= answer["progress"]["tasks"]
        return answer

    def make(self, job: str, content: dict[str, Any], **given: Any) -> dict[str, Any]:
        answer = self.ask(job, content, **given)
        assert "made" in answer, answer
        files.show(self.data, answer["made"]["outputs"])
        return answer["made"]

    def table(self, name: str) -> pa.Table:
        return parquet.read_table(self.data / name, partitioning=None)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(MAX_SECONDS)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """One for all tests of this file: its start is most of what they take."""
    spark = Spark(tmp_path_factory.mktemp("spark"))
    lay(spark.data, "a", events(600))
    lay(spark.data, "b", events(300, first=500))  # 100 of them were archived before
    lay_figures(spark.data)
    yield spark
    spark.close()


PARTITION = {"queue": "process", "day": DAY}
STATISTICS = f"statistics/queue=process/day={DAY}.parquet"


@pytest.mark.spark
def test_statistics_count_an_event_once_and_a_second_run_replaces_the_first(spark):
    made = spark.make("stream_statistics", PARTITION)
    assert (made["rows"], made["skipped"]) == (900, [])
    first = spark.table(STATISTICS)
    cpu, load = first.sort_by("type").to_pylist()
    assert (cpu["events"], load["events"], cpu["duplicates"] + load["duplicates"]) == (400, 400, 100)
    assert cpu["interarrival_mean_seconds"] == pytest.approx(1.0)
    assert cpu["interarrival_cv2"] == pytest.approx(0.0, abs=1e-9)
    assert load["value_q50"] == pytest.approx(399, abs=2)
    spark.make("stream_statistics", PARTITION)
    assert spark.table(STATISTICS).equals(first)


@pytest.mark.spark
def test_selectivity_is_the_pipelines_outputs_for_each_event_of_a_type(spark):
    lay(spark.data, "t", events(20), "telemetry")
    lay(spark.data, "s", events(6, type=["load-rises"] * 5 + ["other"]), "alert")
    spark.make("stream_statistics", {"queue": "telemetry", "day": DAY})
    rows = spark.table(f"statistics/queue=telemetry/day={DAY}.parquet").to_pylist()
    assert [dict(row["selectivity"])["load-rises"] for row in rows] == [0.5, 0.5]


@pytest.mark.spark
def test_an_unsound_file_is_skipped_and_named_or_stops_the_job(spark):
    content = {"queue": "mixed", "day": DAY}
    lay(spark.data, "a", events(5_000), "mixed")
    lay(spark.data, "b", pa.table({"id": ["x"], "time": ["soon"]}), "mixed")
    torn = lay(spark.data, "c", events(5_000), "mixed")
    damaged = bytearray(torn.read_bytes())
    damaged[200:20_000] = bytes(19_800)
    torn.write_bytes(damaged)
    made = spark.make("stream_statistics", content)
    assert [(Path(each["file"]).name, each["why"].split(":")[0]) for each in made["skipped"]] == [
        ("b.parquet", "has an unexpected schema"),
        ("c.parquet", "is corrupt"),
    ]
    assert made["rows"] == 5_000
    refused = spark.ask("stream_statistics", content, on_error="stop")["refused"]
    assert (
        refused["field"] == "on_error"
        and "mixed/day=2026-11-19/b.parquet has an unexpected schema" in refused["message"]
    )


@pytest.mark.spark
def test_figures_are_rolled_up_from_their_seconds(spark):
    spark.make("metric_rollup", {"day": DAY})
    minutes = spark.table(metric_history.get_rollup_path("1m", DAY))
    assert minutes["count"].to_pylist() == [60, 60]
    assert minutes["mean"].to_pylist() == [29.5, 89.5]
    assert minutes["last"].to_pylist() == [59.0, 119.0]
    assert spark.table(metric_history.get_rollup_path("10s", DAY)).num_rows == 12
    assert spark.table(metric_history.get_rollup_path("1h", DAY))["maximum"].to_pylist() == [119.0]


@pytest.mark.spark
def test_a_training_set_has_every_window_of_the_day(spark):
    spark.make("forecast_training", PARTITION)
    rows = spark.table(f"training/queue=process/day={DAY}.parquet")
    whole = rows.filter(pc.equal(rows["type"], ""))
    assert whole.num_rows == 1_440
    assert sum(whole["rate_per_second"].to_pylist()) * 60 == pytest.approx(800)


@pytest.mark.spark
def test_an_extract_is_one_file_of_events_in_order_or_of_rates(spark):
    span = {"since": f"{DAY}T06:00:10Z", "until": f"{DAY}T06:01:10Z"}
    given = {"queue": "process", **span}

    def extracted(name: str, **options: Any) -> pa.Table:
        content = {**span, "name": name, "days": [DAY]}
        (path,) = spark.make("replay_extract", content, **given, **options)["outputs"]
        return spark.table(path) if path.endswith("parquet") else csv.read_csv(spark.data / path)

    found = extracted("minute")
    assert found["id"].to_pylist() == [f"e{row}" for row in range(20, 140)]
    assert json.loads(found["attributes"][0].as_py()) == {"unit": "%"}
    assert extracted("packed", format="csv.gz").equals(found)
    assert extracted("columns", format="parquet")["id"].equals(found["id"])
    assert extracted("rates", step_seconds=10)["rate_per_second"].to_pylist() == [2.0] * 6
    assert not list((spark.data / "extracts").glob(".*"))


@pytest.mark.spark
def test_two_stretches_are_counted_in_spark_as_a_page_counts_them(spark):
    """4,000 events with 300 keys beside a hot one: the 200 most frequent, and the rest."""
    random = np.random.default_rng(7)
    cold = [f"k{each}" for each in random.integers(0, 300, 4_000)]
    keys = np.where(random.random(4_000) < 0.3, "hot", cold).tolist()
    sources = [None if at % 5 else "shop" for at in range(4_000)]
    lay(spark.data, "a", events(4_000, key=keys, source=sources), "compared")
    here = TimeRange(BEGIN_US / 1e6 + 960, BEGIN_US / 1e6 + 1_920)
    there = here.shift(960)
    content = {"queue": "compared", "here": [here.since, here.until], "there": [there.since, there.until]}
    made = spark.make("stretch_comparison", content, queue="compared", **_times(here, there))
    assert (list(made["outputs"]), made["rows"]) == ([get_counts_path("compared", here, there)], 4_000)
    counted = read_counts(spark.data, "compared", here, there)
    assert counted is not None and sum(counted.here["key"]["hot"]) > 500
    for name in stretches.ARCHIVED:
        read = [stretches.count_archived(each, spark.data, "compared")[name] for each in (here, there)]
        counts = (counted.here[name], counted.there[name])
        for found, expected in zip(counts, stretches.fold_rare(*read), strict=True):
            assert _sums(found) == _sums(expected)
            alike = found.keys() & expected.keys() - {stretches.REST}
            assert alike and all(found[value] == expected[value] for value in alike)
    assert len(counted.here["key"]) == stretches.MAX_VALUES + 1


def _times(here: TimeRange, there: TimeRange) -> dict[str, str]:
    times = {"since": here.since, "until": here.until, "other_since": there.since}
    return {name: datetime.fromtimestamp(at, UTC).isoformat() for name, at in times.items()}


def _sums(sliced: dict[str, list[float]]) -> list[float]:
    return np.sum(list(sliced.values()), axis=0).tolist()


def lay_figures(data: Path) -> None:
    """Two minutes of one series, a second's row spilled twice."""
    seconds = [*range(120), 7]
    table = pa.table(
        [
            pa.array([BEGIN_US + second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            pa.array(["totals.in_per_second"] * len(seconds)),
            pa.array([float(second) for second in seconds]),
        ],
        schema=metric_history.RAW,
    )
    folder = metric_history.get_raw_folder(data, DAY)
    folder.mkdir(parents=True)
    parquet.write_table(table, folder / "1-0_2-0.parquet")


@pytest.mark.spark
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_a_killed_worker_leaves_nothing_half_and_another_goes_on_where_it_was(plant, control, monkeypatch):
    for day_events, queue in ((400, "alert"), (500, "process")):
        lay(plant.data, "a", events(day_events), queue)
    for name, value in plant.environment.items():
        monkeypatch.setenv(name, value)
    run = plant.run("stream_statistics", since=DAY, until=DAY)["run"]
    worker = CeleryWorker(control, plant.environment["REDIS_URL"], plant.data, queues="spark,jobs").start()
    try:
        tick(plant)
        spark = until(lambda: spark_of(worker))
        until(lambda: control.hlen(f"weir:job:{run}"))
        worker.kill()
        # Spark's process sees its worker gone, and ends by itself.
        until(lambda: not spark.is_running() or spark.status() == psutil.STATUS_ZOMBIE)
        assert plant.job("show", str(run))["state"] == "running"
        age_signs_of_life(plant)
        control.delete(f"weir:job:{run}:workers")
        worker.start()
        tick(plant)
        until(lambda: plant.job("show", str(run))["chunks_done"] == 2, 180, 1.0)
        tick(plant)
    finally:
        worker.close()
    done = plant.job("show", str(run))
    assert (done["state"], done["progress"]["rows"]) == ("done", 900)
    assert not list(plant.data.rglob(".*.tmp*"))
    assert "Only a queued or running run" in plant.manage("job", "cancel", str(run), code=2)


def tick(plant: Plant) -> None:
    plant.manage("shell", "-v0", "-c", "from workers import tasks; tasks.manage_tasks()")


def spark_of(worker: CeleryWorker) -> psutil.Process | None:
    assert worker.process is not None
    for child in psutil.Process(worker.process.pid).children(recursive=True):
        if "workers.batch.jobs.spark.process" in child.cmdline():
            return child
    return None


def test_every_spark_job_of_the_catalog_has_its_maker():
    assert set(MAKERS) == {name for name, job in JOBS.items() if "spark" in job.requirements}


class CancelledSeat:
    """A seat whose run is cancelled as soon as Spark is at work."""

    def __init__(self, data: Path, control: redis.Redis) -> None:
        self.surroundings = JobContext(data, control, datetime.now(UTC))
        self.parameters = JOBS["stream_statistics"].read({})
        self.content, self.token = PARTITION, "1-1-1"

    def check(self, progress: dict[str, Any] | None = None) -> None:
        if progress is not None:
            raise ChunkLeaseLost("The run was cancelled.")


@pytest.mark.spark
def test_a_cancelled_spark_job_ends_its_process_and_shows_nothing(tmp_path, control):
    lay(tmp_path, "a", events(5_000))
    process = SparkProcess("stream_statistics")
    with pytest.raises(ChunkLeaseLost):
        process.work(CancelledSeat(tmp_path, control))
    until(lambda: not java_of(tmp_path))
    assert not list(tmp_path.glob("statistics/*/day=*"))


def java_of(data: Path) -> list[int]:
    """Spark's Java processes that work in a data folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if "java" in line and str(data) in line:
            found.append(process.pid)
    return found
