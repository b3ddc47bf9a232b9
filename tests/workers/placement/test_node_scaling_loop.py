"""The loop that takes nodes into use and releases them: what it decides becomes plans."""

import pytest

from queues import projection
from queues.models import Node
from tests.queues.points import set_points
from tests.queues.samples import blocks_of
from tests.workers.loops import JOBS, PLANT, ensured
from workers.models import Loop, Plan
from workers.placement import plans
from workers.steering import overrides

pytestmark = pytest.mark.django_db


@pytest.fixture
def plant(plant):
    """Node scaling is in auto and decides at once."""
    ensured(plant.control, (*JOBS, *PLANT), plant.topology())
    Loop.objects.filter(law="node_scaling").update(mode="auto", parameters={"quiet_decisions": 1})
    return plant


@pytest.mark.thorough
def test_by_default_it_advises_and_takes_its_time(plant):
    Loop.objects.all().delete()
    ensured(plant.control, (*JOBS, *PLANT), plant.topology())
    loop = Loop.objects.get(law="node_scaling")
    assert (loop.mode, loop.target) == ("advise", {})
    for _ in range(9):
        skip(plant, 60)
        assert plant.tick("node_scaling").action is None
    assert plant.tick("node_scaling") is not None


def test_when_most_nodes_are_busy_an_idle_one_is_taken_into_use(plant):
    for queue in ("alert", "process", "telemetry"):
        set_points(plant.control, queue, {"n1": 500, "n2": 500})
    snapshot = plant.flow(10, 1600)
    assert snapshot.nodes["n3"].state == "IDLE"
    entry = plant.tick("node_scaling")
    assert entry.action["use"] == ["n3"]
    plan = Plan.objects.get()
    assert (plan.kind, plan.state, plan.entry) == ("use", "approved", entry)
    assert {move["to"] for move in plan.moves} == {"n3"}
    plant.execute()
    snapshot = plant.flow(5, 1600)
    assert all(node.raw < 0.7 for node in snapshot.nodes.values())


def test_a_node_the_others_can_do_without_is_released_the_least_capable_first_and_emptied(plant):
    Node.objects.filter(name="n2").update(capacity_events_per_second=500.0)
    projection.project(plant.control)
    plant.segment("alert", "n2").publish(blocks_of(40))
    plant.flow(5, 100)
    entry = plant.tick("node_scaling")
    assert entry.action["release"] == ["n2"]
    plan = Plan.objects.get()
    assert (plan.kind, plan.empties) == ("release", "n2")
    (done,) = plant.execute()
    assert done.state == "done", done.note
    assert "n2" not in plant.points()
    assert plant.segment("alert", "n2").measure()["length_blocks"] == 0
    # Released is not drained: it is idle, and may be taken into use again.
    assert not Node.objects.get(name="n2").drained
    assert plant.pass_seconds(1).nodes["n2"].state == "IDLE"


def test_nothing_is_released_for_the_calm_of_a_paused_queue(plant, user):
    plant.flow(5, 10)
    pause = overrides.set_override(
        queue="alert",
        name="consumption",
        value="paused",
        minutes=30,
        reason="a disk is changed",
        owner=user,
        now=plant.now,
        control=plant.control,
    )
    plant.flow(2, 10)
    entry = plant.tick("node_scaling")
    assert entry.action is None and "events are held back" in entry.reason
    overrides.end(pause, by=user, now=plant.now, control=plant.control)
    plant.flow(2, 10)
    assert plant.tick("node_scaling").action["release"]


def advise(plant, quiet_decisions=1):
    Loop.objects.filter(law="node_scaling").update(
        mode="advise", parameters={"quiet_decisions": quiet_decisions}, guard={"cooldown_seconds": 600.0}
    )


def skip(plant, seconds):
    """Time passes of which nobody sees anything; then two seconds that all see."""
    plant._monotonic += seconds
    plant.wall_seconds += seconds
    plant.flow(2, 5)


def an_hour(plant):
    """Node scaling ticks each minute on an idle plant, and proposals expire in their time."""
    entries = []
    for _ in range(60):
        skip(plant, 58)
        plans.void_due(plant.now)
        entries.append(plant.tick("node_scaling"))
    return entries


@pytest.mark.slow
def test_an_idle_plant_watched_for_an_hour_proposes_a_release_once(plant):
    advise(plant)
    plant.flow(5, 5)
    entries = an_hour(plant)
    (plan,) = Plan.objects.all()
    assert (plan.kind, plan.state) == ("release", "void")
    assert "'release" in entries[-1].reason and "not approved" in entries[-1].reason
    assert [entry.action for entry in entries[30:]] == [None] * 30


def test_a_rejected_release_is_proposed_again_only_when_the_plant_has_changed(plant):
    advise(plant)
    plant.flow(5, 5)
    plant.tick("node_scaling")
    plans.reject(Plan.objects.get(), None, "The nights are short.", now=plant.now)
    skip(plant, 700)
    assert plant.tick("node_scaling").action is None
    Node.objects.filter(name="n1").update(capacity_events_per_second=2_000.0)
    projection.project(plant.control)
    skip(plant, 60)
    assert plant.tick("node_scaling").action["release"]
    assert Plan.objects.filter(state="proposed").count() == 1


def test_a_cordoned_node_that_is_heard_is_not_lost_and_keeps_its_points(plant):
    Node.objects.filter(name="n1").update(cordoned=True)
    projection.project(plant.control)
    before = plant.points()
    for _ in range(3):
        plant.flow(5, 10)
        assert plant.tick("node_scaling").action is None
        plant.execute()
    assert plant.points() == before and not Plan.objects.exists()
