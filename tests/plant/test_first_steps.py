"""README's ten steps on a plant that README's first command starts, with and without --data.

The test reads README: its commands run in a shell as they are, its pages are opened by the names in italics, and the
names in bold are on them.
"""

import json
import re
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.plant.api_plant import ApiPlant
from bench.plant.running_plant import ROOT, clean_environment
from tests.first_steps import Step, read_steps
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1800)]
PATIENCE_SECONDS = 300.0
NODES = ("n1", "n2", "n3")


@dataclass
class NewcomersPlant(ApiPlant):
    """A plant in a checkout of its own, where another plant of this machine's user does not run."""

    names_data: bool = True

    def folder_of_data(self) -> Path:
        return Path(self.folder.name) / "data" if self.names_data else self.place / ".weir"

    def options_of_data(self) -> tuple[str, ...]:
        return super().options_of_data() if self.names_data else ()

    def run_command(self, command: str) -> str:
        """Run a command of README as somebody types it: nothing says where the plant's data is."""
        done = subprocess.run(
            command, shell=True, cwd=self.place, env=clean_environment(), capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def find_loops(self, law, **target):
        rows = self.answer("loops")["loops"]
        return [row for row in rows if row["law"] == law and target.items() <= row["target"].items()]

    def read_page(self, address):
        return self.api.get(address).raise_for_status().text

    def read_process_id(self, name):
        """Return the number that the page shows; None while the process is gone or changes."""
        row = next(row for row in self.answer("processes")["processes"] if row["name"] == name)
        return row["pid"] if str(row["pid"]) in self.read_page("/processes/") else None


def copy_checkout(folder: Path) -> Path:
    """The files of this checkout, changed ones included, with its installed packages."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file() and not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=True)
    for name in (".venv", "node_modules"):
        if (ROOT / name).exists() and not (folder / name).exists():
            (folder / name).symlink_to((ROOT / name).resolve())
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["with --data", "without --data"])
def plant(request, tmp_path_factory):
    place = copy_checkout(tmp_path_factory.mktemp("checkout"))
    readme = (place / "README.md").read_text(encoding="utf-8")
    assert "\n./run\n" in readme and "--data /some/folder" in readme
    launcher, manager = (str(place / "run"),), (str(place / ".venv/bin/python"), "manage.py")
    with NewcomersPlant(launcher=launcher, manager=manager, place=place, names_data=request.param) as running:
        running.sign_in()
        yield running


@pytest.fixture(scope="module")
def steps(plant):
    return read_steps(plant.place / "README.md")


def wait(condition):
    return until(condition, PATIENCE_SECONDS, every_seconds=0.5)


def check_pages(plant: ApiPlant, step: Step) -> None:
    for label, address in step.find_pages().items():
        assert label in plant.read_page(address), (step.number, label)


def test_the_ten_steps_work_as_they_are_written(plant, steps):
    assert list(steps) == list(range(1, 11))
    for number, step in steps.items():
        plant.sign_in()
        check_pages(plant, step)
        globals()[f"do_step_{number}"](plant, step)


def do_step_1(plant, step):
    wait(lambda: "telemetry" in (plant.snapshot() or {"queues": ()})["queues"])
    wait(lambda: "telemetry" in plant.read_page("/"))
    wait(lambda: plant.snapshot()["queues"]["telemetry"]["out_per_second"])


def do_step_2(plant, step):
    (command,) = step.commands
    assert json.loads(plant.run_command(command))["published"] == 50_000
    loops = plant.find_loops("worker_rate", queue="alert")
    wait(lambda: any(find_actions(plant, loop) for loop in loops))
    wait(lambda: plant.snapshot()["queues"]["alert"]["waiting_events"] == 0)


def find_actions(plant, loop):
    return plant.answer("ledger", loop=loop["id"], acted="true")["entries"]


def do_step_3(plant, step):
    loop = plant.find_loops("worker_rate", queue="alert")[0]
    before = loop["effective"]["upper_limit"]
    plant.ask("overrides", loop=loop["id"], name="upper_limit", value=700, minutes=2)

    def setpoint():
        return plant.snapshot()["loops"][loop["name"]]["setpoint"]

    wait(lambda: setpoint() == 700)
    (made,) = plant.answer("overrides")["overrides"]
    ((_, address),) = [page for page in step.find_pages().items() if page[0] != "Loops"]
    assert loop["name"] in plant.read_page(address) and made["expires_at"]
    wait(lambda: setpoint() == before and not plant.answer("overrides")["overrides"])


def do_step_4(plant, step):
    loop = plant.find_loops("concurrency")[0]
    plant.ask(f"loops/{loop['id']}/mode", mode="auto")
    publish = read_steps(plant.place / "README.md")[2].commands[0]

    def tries():
        plant.run_command(publish)
        return find_actions(plant, loop)

    wait(tries)
    assert 'id="prediction"' in plant.read_page(f"/loops/{loop['id']}/")


def do_step_5(plant, step):
    loop = plant.find_loops("worker_rate", queue="alert")[0]
    page = plant.read_page(f"/loops/{loop['id']}/")
    assert all(label in page for label in step.buttons)
    compared = plant.answer(f"loops/{loop['id']}/what-if", set="upper_limit=1", hours=1)
    assert compared["decisions"] > 0 and not compared["first_error"]


def do_step_6(plant, step):
    loops = plant.find_loops("worker_rate", queue="alert")
    entry = next(entries[0] for loop in loops if (entries := find_actions(plant, loop)))
    exported = plant.answer(f"ledger/{entry['id']}")["export"]
    (command,) = step.commands
    file = plant.place / command.split()[-1]
    file.write_text(json.dumps(exported))
    again = json.loads(plant.run_command(command))["decisions"][-1]
    assert (again["action"], again["reason"]) == (entry["action"], entry["reason"])


def do_step_7(plant, step):
    page = plant.read_page("/queues/")
    assert all(label in page for label in step.buttons)

    def points():
        return {name: row["points"] for name, row in plant.snapshot()["queues"]["alert"]["containers"].items()}

    before = points()
    wanted = {**before, "n1": before["n1"] - 100, "n2": before["n2"] + 100}
    plan = plant.ask("queues/alert/points", points=wanted)
    carry_out(plant, plan)
    wait(lambda: points() == wanted)
    carry_out(plant, plant.ask(f"plans/{plan['id']}/roll-back"))
    wait(lambda: points() == before)


def carry_out(plant, plan):
    plant.ask(f"plans/{plan['id']}/approve", hash=plan["hash"])
    wait(lambda: plant.answer(f"plans/{plan['id']}")["state"] == "done")


def do_step_8(plant, step):
    publish = read_steps(plant.place / "README.md")[2].commands[0]
    wait(lambda: plant.snapshot()["queues"]["alert"]["waiting_events"] == 0)
    before = count_processed(plant)
    plant.run_command(publish)
    killed = wait(lambda: plant.read_process_id("n2"))
    (command,) = step.commands
    plant.run_command(f"{command} {killed}")
    wait(lambda: plant.read_process_id("n2") not in (None, killed))
    wait(lambda: count_processed(plant) == before + 50_000)


def count_processed(plant):
    """Events of the newcomer whose effect is stored; an event with two effects would count twice."""
    with closing(sqlite3.connect(plant.data / "handled.sqlite3")) as database:
        return database.execute("SELECT count(*) FROM handled WHERE queue = 'alert' AND type = 'login'").fetchone()[0]


def do_step_9(plant, step):
    assert "notifications" in plant.read_page("/alerts/").lower()
    (command,) = [command for command in step.commands if command.startswith("kill")]
    plant.run_command(f"{command} {plant.read_process_id('n2')}")

    def find_alert():
        rows = plant.answer("alerts")["alerts"]
        return next((row for row in rows if row["labels"].get("node") == "n2"), None)

    alert = wait(find_alert)
    address, headers = f"/api/v1/alerts/{alert['id']}", {"X-CSRFToken": plant.api.cookies["csrftoken"]}
    plant.api.post(f"{address}/acknowledge", json={}, headers={**headers, "Referer": plant.url}).raise_for_status()
    (runbook,) = set(re.findall(r"/help/operate/alerts/[\w-]+/", plant.read_page(f"/alerts/{alert['id']}/")))
    assert "<h1" in plant.read_page(runbook)
    plant.sign_in()
    plant.ask("processes/n2/restart", at_once=True)
    wait(lambda: find_alert() is None)


def do_step_10(plant, step):
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
    assert set(plant.answer("snapshot", at=at)["nodes"]) == set(NODES)
    assert plant.read_page(f"/timeline/?at={at}")
