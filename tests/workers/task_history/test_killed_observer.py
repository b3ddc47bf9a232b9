"""A real observer of a real Celery app is killed: each task is stored, or was received within a gap."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from bench.celery.brokers import valkey
from bench.celery.stock_workers import ROOT, Rival, StockWorker
from bench.plant.running_plant import clean_environment, manage
from tests.waiting import MAX_SECONDS, until

pytestmark = pytest.mark.slow
TASKS, SENT_BEFORE, KILLED_AT, STARTED_AT = 600, 100, 250, 400
ARRIVES_SECONDS = 2.0  # from the end of a task to its event at the observer, on a busy host


class Observed:
    """An installation that observes one app, whose observer can be killed."""

    def __init__(self, folder, control, broker):
        self._folder = folder
        self._environment = {
            **clean_environment(),
            "WEIR_DATA": str(folder),
            "DATABASE_URL": f"sqlite:///{folder}/weir.sqlite3",
            "REDIS_URL": control,
            "WEIR_EGRESS_ALLOW": "127.0.0.0/8",
        }
        manage(self._environment, "migrate", "--skip-checks", "--verbosity=0", "--no-input")
        row = f"name='shop', kind='celery', url={broker!r}"
        code = f"from workers.plants.models import RegisteredPlant; RegisteredPlant.objects.create({row})"
        manage(self._environment, "shell", "-v", "0", "-c", code)

    def start(self):
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "observe"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self):
        self._process.kill()
        self._process.wait(MAX_SECONDS)

    def read(self, query):
        with closing(sqlite3.connect(f"file:{self._folder}/weir.sqlite3?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(query).fetchall()

    def list_numbers(self, state):
        rows = (json.loads(record) for (record,) in self.read("SELECT record FROM workers_recenttask"))
        return {int(row["args"].strip("([").split(",")[0]) for row in rows if row["state"] == state and row.get("args")}

    def list_gaps(self):
        return self.read("SELECT since, until FROM workers_taskgap WHERE plant = 'shop' AND worker = ''")


def test_each_task_is_stored_or_within_a_gap_after_the_observer_is_killed(tmp_path):
    with (
        valkey(["shop", "control"]) as urls,
        StockWorker(Rival("shop", ("--concurrency", "4", "-E")), urls["shop"], tmp_path / "shop") as worker,
    ):
        worker.begin()
        observed = Observed(tmp_path, urls["control"], urls["shop"])
        observed.start()
        try:
            until(lambda: observed.read("SELECT 1 FROM workers_taskfeed"))
            for number in range(TASKS):
                worker.send(number, 0.01)
                if number == SENT_BEFORE:
                    until(lambda: SENT_BEFORE in observed.list_numbers("succeeded"))
                elif number == KILLED_AT:
                    worker.wait_until_done(number // 2)
                    observed.kill()
                elif number == STARTED_AT:
                    worker.wait_until_done(number)
                    observed.start()
                    until(observed.list_gaps)
            worker.wait_until_done(TASKS)
            until(lambda: TASKS - 1 in observed.list_numbers("succeeded"))
        finally:
            observed.kill()
        stored, gaps = observed.list_numbers("succeeded"), observed.list_gaps()
        missing = [done for done in worker.count_done() if done.number not in stored]
    [(since, end)] = gaps
    outside = [done for done in missing if done.ended_at + ARRIVES_SECONDS < since or done.begun_at > end]
    assert outside == []
    assert stored >= {*range(SENT_BEFORE), *range(STARTED_AT + 1, TASKS)}
