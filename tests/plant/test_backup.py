"""A plant is backed up, lost, and restored elsewhere: no event is lost, none has its effect twice."""

import json
import subprocess

import pytest

from bench.plant.running_plant import RunningPlant
from tests.plant.test_stranger import PATIENCE, handled_jobs, jobs_in, trace_of

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1200)]


def batch_of(snapshot: dict) -> int:
    return int((snapshot["pipeline"] or {}).get("batch") or 0)


def test_a_backup_taken_under_load_is_the_plant_again_in_another_folder(tmp_path):
    path, _ = trace_of(tmp_path, 60_000)
    file = tmp_path / "weir.backup"
    with RunningPlant() as plant:
        plant.wait_until(lambda s: (s["pipeline"] or {}).get("state") == "running", PATIENCE, "the pipeline runs")
        options = ("--type", "event_type", "--key", "job_id", "--speed", "0")
        command = plant.manage_command("publish", "alert", str(path), *options)
        publisher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=plant.environment())
        plant.wait_until(lambda s: s["queues"]["alert"]["waiting_events"] > 0, PATIENCE, "events wait")
        publisher.communicate(timeout=PATIENCE)
        assert publisher.returncode == 0
        made = plant.manage("backup", str(file), timeout=PATIENCE)
        assert made.returncode == 0, made.stderr
        batch = batch_of(plant.wait_until(lambda s: not s["overrides"], PATIENCE, "the plant goes on"))
    with RunningPlant(arguments=("--restore", str(file))) as plant:

        def drained(snapshot):
            running = (snapshot["pipeline"] or {}).get("state") == "running"
            drained = snapshot["queues"]["alert"]["waiting_events"] == 0
            return running and drained and batch_of(snapshot) > 0

        snapshot = plant.wait_until(drained, PATIENCE, "everything published is handled")
        assert snapshot["queues"]["alert"]["dead_letters"] == 0
        assert handled_jobs(plant) == jobs_in(path)
        assert batch_of(snapshot) >= batch, "the pipeline goes on where it was"
        verdict = plant.manage("audit", "verify", "--json")
        assert json.loads(verdict.stdout)["sound"]
