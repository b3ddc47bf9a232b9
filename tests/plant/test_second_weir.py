"""A second Weir, with a database and control server of its own, steers the first through its control API."""

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest

from bench.plant.running_plant import RunningPlant
from tests.waiting import until
from tests.workers.loops import PARALLELISM, ensured
from workers.control import engine
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.watch import PlantWatch
from workers.plants.models import RegisteredPlant
from workers.plants.registry import find_topology
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.django_db, pytest.mark.timeout(1200)]
VARIABLE = "WEIR_FIRST_TOKEN"


@pytest.fixture
def token(plant):
    """A token of the first Weir, for the second."""
    made = plant.manage("token", "second", "--role", "operator")
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["token"])


def tasks_in_force(plant: RunningPlant) -> dict[str, int]:
    """What the first plant's pipeline says itself."""
    rows = (plant.snapshot() or {})["pipeline"]["applications"]
    return {
        f"{application}/{name}": row["parallelism"]
        for application, each in rows.items()
        for name, row in each["operators"].items()
    }


def first_entry_after(plant: RunningPlant, law: str, after: float) -> dict[str, object]:
    """The newest decision of the first plant's own loop, once it was made after a moment."""
    rows = (plant.snapshot() or {})["loops"]
    loop = next(row for name, row in rows.items() if name.startswith(f"{law}/"))
    return loop if (loop["at"] or 0.0) > after else {}


def test_a_loop_of_the_second_sets_tasks_of_the_first_which_go_on_without_a_restart(
    plant, token, control, plant_topology, monkeypatch
):
    measured = "the pipeline's operators are measured"
    plant.wait_until(
        lambda snapshot: any(
            each["seconds"]
            for application in (snapshot["pipeline"].get("applications") or {}).values()
            for each in application["operators"].values()
        ),
        90.0,
        measured,
    )
    before = plant.snapshot()["pipeline"]["applications"]
    monkeypatch.setenv(VARIABLE, token)
    RegisteredPlant.objects.create(
        name="first", kind="weir", url=f"{plant.url}/control/main/v1", secret_environment=VARIABLE
    )
    watch = PlantWatch(observe_seconds=1.0)
    second = LocalPlant(control, others=watch)
    ensured(control, PARALLELISM)
    loop = Loop.objects.get(name="parallelism_queueing/plant:first")
    loop.mode, loop.interval_seconds = Loop.Mode.AUTO, 1.0
    loop.parameters = {"bound_seconds": 60.0, "minimum": 3, "maximum": 4, "only_changes": True}
    loop.save()

    def set_by_the_second():
        row = second.observe().plants["first"]
        if row.state == "seen" and not row.error:
            engine.tick(Loop.objects.get(pk=loop.pk), second, datetime.now(UTC), control)
        found = tasks_in_force(plant)
        return bool(found) and set(found.values()) == {3}

    try:
        until(set_by_the_second, 60.0, 1.0)
        entry = LedgerEntry.objects.filter(loop=loop, applied=True).latest("id")
        assert set(entry.action["tasks"].values()) == {3} and entry.error == ""
        # The first says who steers, and its own loops hold.
        held_at = plant.snapshot()["at"]
        assert plant.snapshot()["steered_by"]["holder"] == "token:second"
        own = until(lambda: first_entry_after(plant, "parallelism_queueing", held_at), 20.0, 0.5)
        assert "token:second controls the tasks" in own["reason"]
        assert find_topology(second.observe(), "first").holder is None  # to the second it is its own
        with closing(plant.log_in()) as client:
            audited = client.get("/api/v1/audit", params={"action": "plant.scale"}).json()
        assert "token:second" in str(audited)
    finally:
        watch.close()
    after = plant.snapshot()["pipeline"]["applications"]
    for name, row in after.items():
        assert row["state"] == "running"
        assert row["batch"] > before[name]["batch"]  # the same run went on counting
