"""A real Flink job on two slots, rescaled by a loop of Weir through REST when its load steps up, and back."""

from datetime import UTC, datetime
from itertools import groupby

import pytest

from tests.waiting import until
from tests.workers.loops import PARALLELISM, ensured
from tests.workers.plants.flink_cluster import JOB, Load, NoFlinkError, cluster, environment
from workers.control import engine
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.watch import PlantWatch
from workers.plants.models import RegisteredPlant
from workers.plants.registry import find_topology
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(390)]
LOW, HIGH = 0.2, 2.5  # tasks that the load keeps busy
START_PER_SECOND, WARM_EVENTS = 1_000.0, 12_000  # a cold virtual machine takes ten times as long


@pytest.fixture
def flink(tmp_path):
    try:
        found = environment()
    except NoFlinkError as error:
        pytest.skip(str(error))
    with cluster(found, tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def load(tmp_path):
    made = Load(tmp_path / "came", START_PER_SECOND)
    yield made
    made.close()


def test_a_flink_job_is_rescaled_by_a_loop_when_its_load_steps_up_and_back(
    flink, load, tmp_path, control, plant_topology
):
    flink.submit(JOB, str(tmp_path / "came"))
    RegisteredPlant.objects.create(name="flink", kind="flink", url=flink.url, options={"job": "hashes"})
    watch = PlantWatch(observe_seconds=1.0)
    plant = LocalPlant(control, others=watch)
    ensured(control, PARALLELISM)
    loop = Loop.objects.get(name="parallelism_queueing/plant:flink")
    loop.mode = Loop.Mode.AUTO
    loop.parameters = {"bound_seconds": 2.0, "maximum": 2, "bottleneck_threshold": 0.8, "only_changes": True}
    loop.interval_seconds, loop.guard = 2.0, {"cooldown_seconds": 15.0}
    loop.save()

    def look():
        snapshot = plant.observe()
        row = snapshot.plants.get("flink")
        return find_topology(snapshot, "flink") if row and row.state == "seen" else None

    def busy_operator():
        topology = look()
        return topology and next(
            (each for each in topology.operators.values() if "Calc" in each.name and each.measure("service_seconds")),
            None,
        )

    def history(snapshot):
        """Return the sections once the cluster reports both rescales; the job's start counts as one, too."""
        sections = snapshot.plants["flink"].sections
        rows = [row for each in sections if each.title == "Rescales" for row in each.rows]
        return sections if sum(row[2] == "completed" for row in rows) >= 3 else None

    def warm(operator):
        return operator if operator and operator.measure("executions") >= WARM_EVENTS else None

    def ticked(parallelism):
        engine.tick(Loop.objects.get(pk=loop.pk), plant, datetime.now(UTC), control)
        found = busy_operator()
        return found is not None and found.parallelism == parallelism

    try:
        operator = until(lambda: warm(busy_operator()), 60.0, 1.0)
        assert operator.parallelism == 1
        load.per_second = HIGH / operator.measure("service_seconds")
        until(lambda: ticked(2), 90.0, 2.0)
        load.per_second = LOW / operator.measure("service_seconds")
        until(lambda: ticked(1), 120.0, 2.0)
        shown = {section.title: section for section in until(lambda: history(plant.observe()), 30.0, 1.0)}
    finally:
        watch.close()
    acted = LedgerEntry.objects.filter(loop=loop, applied=True).order_by("id")
    # An order is repeated until the cluster has followed it.
    ordered = [entry.action["tasks"][operator.name] for entry in acted]
    assert [tasks for tasks, _ in groupby(ordered)] == [2, 1]
    assert all(entry.error == "" for entry in acted)
    assert shown["Checkpoints"].rows and "completed" in shown["Checkpoints"].about
    assert {row[0] for row in shown["Back-pressure"].rows} >= {operator.name}
    assert not shown["Exceptions"].rows
