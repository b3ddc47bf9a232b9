"""Drills on a real plant: each fault breaks what it says, and is gone at once when the drill is stopped."""

import json
import signal
import sqlite3
from contextlib import closing

import psutil
import pytest

from bench.plant.api_plant import ApiPlant
from console.drills.faults import PLAN_POINTS, SERVICE_SECONDS
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1200)]
PATIENCE_SECONDS = 180.0


class DrillingPlant(ApiPlant):
    """A plant with the records of its drills."""

    def row(self, query):
        with closing(sqlite3.connect(f"file:{self.data}/weir.sqlite3?mode=ro", uri=True, timeout=30)) as database:
            return database.execute(query).fetchone()

    def find(self, name):
        """None for one that is not running."""
        row = next((row for row in self.answer("processes")["processes"] if row["name"] == name), None)
        return None if row is None or row["pid"] is None else psutil.Process(row["pid"])

    def newest_drill(self):
        id, faults, ending, subjects = self.row(
            "SELECT id, faults, ending, subjects FROM console_drill ORDER BY id DESC LIMIT 1"
        )
        return id, json.loads(faults), ending, json.loads(subjects)

    def begin(self, scenario):
        """The subjects of a drill, once its first fault has started."""
        self.sign_in()
        self.post("drills", scenario=scenario)
        wait(lambda: self.newest_drill()[1])
        return self.newest_drill()[3]

    def stop(self):
        """Stop the newest drill; its ending."""
        self.post(f"drills/{self.newest_drill()[0]}/stop")
        wait(lambda: self.newest_drill()[2])
        assert all(record["ended"] for record in self.newest_drill()[1].values())
        return self.newest_drill()[2]

    def post(self, path, **body):
        headers = {"X-CSRFToken": self.api.cookies["csrftoken"], "Referer": self.url}
        self.api.post(f"/api/v1/{path}", json=body, headers=headers).raise_for_status()

    def options(self, queue):
        return json.loads(self.row(f"SELECT handler_options FROM queues_queue WHERE name = '{queue}'")[0])

    def points(self, queue, node):
        return self.row(
            "SELECT points FROM queues_container c JOIN queues_queue q ON q.id = c.queue_id JOIN queues_node n"
            f" ON n.id = c.node_id WHERE q.name = '{queue}' AND n.name = '{node}'"
        )[0]


def wait(condition):
    return until(condition, PATIENCE_SECONDS, every_seconds=0.3)


@pytest.fixture(scope="module")
def plant():
    with DrillingPlant() as running:
        running.wait_until(lambda seen: not seen["parts"].get("starting"), PATIENCE_SECONDS, "all has started")
        running.sign_in()
        yield running


def test_a_burst_is_seen_and_ends_at_once(plant):
    queue = plant.begin("burst")["queue"]

    def rate():
        return plant.snapshot()["queues"].get(queue, {}).get("in_per_second") or 0.0

    wait(lambda: rate() > 200)
    assert plant.stop() == "stopped"
    wait(lambda: rate() < 5)


def test_a_handler_is_slow_and_as_before_after_the_drill(plant):
    queue = plant.begin("slow-handler")["queue"]
    wait(lambda: plant.options(queue)["seconds"] == 8 * SERVICE_SECONDS)
    plant.stop()
    assert plant.options(queue) == {"seconds": SERVICE_SECONDS}


def test_events_fail_and_are_dead_letters(plant):
    queue = plant.begin("poison-events")["queue"]
    wait(lambda: plant.options(queue).get("failing"))
    plant.stop()
    assert plant.options(queue) == {"seconds": SERVICE_SECONDS}


def test_a_lost_node_stays_down_until_the_drill_ends(plant):
    node = plant.begin("node-lost")["node"]
    wait(lambda: plant.find(node) is None)
    wait(lambda: plant.snapshot()["nodes"][node]["state"] == "OFFLINE")
    assert plant.find(node) is None
    plant.stop()
    wait(lambda: plant.find(node))
    wait(lambda: plant.snapshot()["nodes"][node]["state"] not in (None, "OFFLINE"))


def test_a_suspended_observer_goes_on_after_the_drill(plant):
    plant.begin("measurements-stop")
    wait(lambda: plant.find("observer").status() == psutil.STATUS_STOPPED)
    plant.stop()
    wait(lambda: plant.find("observer").status() != psutil.STATUS_STOPPED)


def test_the_pipeline_is_down_until_the_drill_ends(plant):
    plant.begin("pipeline-killed")
    wait(lambda: plant.find("pipeline") is None)
    plant.stop()
    wait(lambda: plant.find("pipeline"))


def test_a_harmful_plan_is_carried_out_and_undone(plant):
    subjects = plant.begin("harmful-plan")
    wait(lambda: plant.points(subjects["queue"], subjects["node"]) == PLAN_POINTS)
    plant.stop()
    wait(lambda: plant.points(subjects["queue"], subjects["node"]) < PLAN_POINTS)


def test_what_a_killed_process_left_is_ended_when_the_supervisor_restarts_it(plant):
    queue = plant.begin("slow-handler")["queue"]
    wait(lambda: plant.options(queue)["seconds"] == 8 * SERVICE_SECONDS)
    plant.find("drill").send_signal(signal.SIGKILL)
    wait(lambda: plant.newest_drill()[2] == "interrupted")
    assert plant.options(queue) == {"seconds": SERVICE_SECONDS}
