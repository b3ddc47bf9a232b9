"""What a stranger sees after ./run, on a real plant with real servers, workers and Spark."""

import csv
import gzip
import json
import random
import signal
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from bench.plant.running_plant import RunningPlant
from tests.shared_data import DATA

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1200)]
PATIENCE = 600.0  # seconds; how long a start takes is a figure of the bench, and no verdict on a busy machine
SHARED_EVENTS = DATA / "events" / "google2011_job_events_parts_000_039.csv.gz"


def test_real_events_reach_workers(plant):
    def flows(snapshot):
        return (snapshot["queues"]["process"]["out_per_second"] or 0) > 0

    plant.wait_until(flows, PATIENCE, "process events go through workers")


def test_all_three_nodes_carry_telemetry(plant):
    def carried(snapshot):
        containers = snapshot["queues"]["telemetry"]["containers"]
        return len(containers) == 3 and all(c["inserted_events"] for c in containers.values())

    plant.wait_until(carried, PATIENCE, "every node holds telemetry")


def test_a_loop_acts_and_says_why(plant):
    def acted(snapshot):
        return any((loop["actuator"] or 0) > 0 and loop["reason"] for loop in snapshot["loops"].values())

    plant.wait_until(acted, PATIENCE, "a worker rate loop starts workers")


def test_a_killed_process_comes_back(plant):
    observer = plant.process_matching("manage.py", "observe")
    observer.send_signal(signal.SIGKILL)
    before = (plant.snapshot() or {"at": 0})["at"]
    plant.wait_until(lambda snapshot: snapshot["at"] > before + 2, PATIENCE, "a new observer goes on")


@pytest.fixture
def events_file(tmp_path):
    """The real trace where it is at hand, else a file of our own in its form."""
    return (SHARED_EVENTS, 158_120) if SHARED_EVENTS.exists() else trace_of(tmp_path, 60_000)


@pytest.mark.slow
def test_every_published_event_has_its_effect_once_while_a_node_and_a_worker_are_killed(plant, events_file):
    path, count = events_file
    command = plant.manage_command(
        "publish", "alert", str(path), "--type", "event_type", "--key", "job_id", "--speed", "0"
    )
    publishing = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=plant.environment()
    )
    plant.wait_until(lambda s: s["queues"]["alert"]["waiting_events"] > 0, PATIENCE, "publishing has begun")
    plant.node_server("n2").send_signal(signal.SIGKILL)
    output, errors = publishing.communicate(timeout=PATIENCE)
    assert publishing.returncode == 0, errors
    assert json.loads(output)["published"] == count
    plant.process_matching("console.celery", "--queues jobs").send_signal(signal.SIGKILL)

    def drained(snapshot):
        queue = snapshot["queues"]["alert"]
        nodes_up = all(node["state"] != "OFFLINE" for node in snapshot["nodes"].values())
        return nodes_up and queue["waiting_events"] == 0

    snapshot = plant.wait_until(drained, PATIENCE, "everything published is handled")
    assert snapshot["queues"]["alert"]["dead_letters"] == 0
    assert handled_jobs(plant) == jobs_in(path)


def trace_of(folder: Path, rows: int) -> tuple[Path, int]:
    """A file of so many events."""
    path, chance = folder / "events.csv.gz", random.Random(3)
    with gzip.open(path, "wt", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["time_us", "job_id", "event_type", "user", "sched_class"])
        for row in range(rows):
            writer.writerow([row * 1000, chance.randrange(10_000), chance.randrange(7), chance.randrange(50), 0])
    return path, rows


def jobs_in(path: Path) -> Counter[tuple[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        return Counter((row["event_type"], row["job_id"]) for row in csv.DictReader(lines))


def handled_jobs(plant: RunningPlant) -> Counter[tuple[str, str]]:
    """(type, key) of the published file's events as the sql handler wrote them, a row an effect.

    An event that took effect twice would stand here twice. Alerts of the pipeline have longer types.
    """
    with closing(sqlite3.connect(plant.data / "handled.sqlite3")) as database:
        return Counter(database.execute("SELECT type, key FROM handled WHERE queue = 'alert' AND length(type) = 1"))
