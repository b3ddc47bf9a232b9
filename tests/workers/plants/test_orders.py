"""Orders at other plants: recorded with who gave them, followed in the snapshot, and loops hold for them."""

from datetime import UTC, datetime

import pytest

from common.errors import BadInput
from common.stored_document import replace_fields
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from queues import keys
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.evidence import Evidence
from workers.control.parts.operators import build_topology_inputs
from workers.documents.plants import PlantStatus, ProofStatus
from workers.documents.snapshot import Snapshot
from workers.plants.holding import PlantHeld, find_holder, hold, release
from workers.plants.memory import MemoryPlant
from workers.plants.models import PlantOrder, RegisteredPlant
from workers.plants.orders import OrderedPlant, OrderWatch, explain_unreached, forget, forget_until, load_orders
from workers.plants.plant import PlantUnavailable

pytestmark = pytest.mark.django_db
NOW = 1_790_000_000.0


@pytest.fixture
def row():
    return RegisteredPlant.objects.create(name="east", kind="weir", url="http://east.example")


def ordered(row, plant, by="loop x", by_loop=True, now=NOW):
    return OrderedPlant(row, plant, by, by_loop, lambda: now)


def status(tasks, age_seconds=1.0, state="seen"):
    operators = {
        "in": MeasuredOperator("in", "source", 1, fixed="a source"),
        "parse": MeasuredOperator("parse", "operator", tasks, 1, 8, tasks=({"utilisation": 0.5},)),
    }
    topology = MeasuredTopology("east", NOW, 10.0, operators, (Link("in", "parse", 0.1),))
    return PlantStatus(kind="weir", state=state, age_seconds=age_seconds, topology=topology.to_document())


def test_what_is_set_is_noted_with_who_set_it_and_the_last_counts(row):
    plant = MemoryPlant(lambda: NOW, [], {"parse": 2, "sink": 2})
    ordered(row, plant).set_parallelism({"parse": 3, "sink": 4})
    ordered(row, plant, "ada", by_loop=False, now=NOW + 5).set_parallelism({"parse": 5})
    found = load_orders()["east"]
    assert {name: (each.tasks, each.by, each.by_loop) for name, each in found.items()} == {
        "parse": (5, "ada", False),
        "sink": (4, "loop x", True),
    }
    assert PlantOrder.objects.get(operator="parse").at == datetime.fromtimestamp(NOW + 5, UTC)


def test_what_the_plant_refuses_was_not_ordered_and_what_may_have_happened_was(row):
    plant = MemoryPlant(lambda: NOW, [], {"parse": 2})
    ordered(row, plant).set_parallelism({"parse": 3})
    with pytest.raises(BadInput):
        ordered(row, plant).set_parallelism({"parse": 999})
    with pytest.raises(BadInput):
        ordered(row, plant).set_parallelism({"parse": 4, "nobody": 1})
    assert {name: each.tasks for name, each in load_orders()["east"].items()} == {"parse": 3}

    class Silent(MemoryPlant):
        def set_parallelism(self, tasks):
            raise PlantUnavailable("late")

    with pytest.raises(PlantUnavailable):
        ordered(row, Silent(lambda: NOW, [], {"parse": 2})).set_parallelism({"parse": 6})
    assert load_orders()["east"]["parse"].tasks == 6


def course(row, watch, tasks, seconds, begin=1, **more):
    for second in range(begin, begin + seconds):
        rows = watch.step({"east": replace_fields(status(tasks), **more)}, NOW + second)
    return rows["east"]


def test_an_order_without_effect_makes_the_loop_hold_and_calls_until_a_person_lets_it_go_on(row):
    plant = MemoryPlant(lambda: NOW, [], {"parse": 2})
    ordered(row, plant).set_parallelism({"parse": 4})
    watch = OrderWatch()
    found = course(row, watch, 2, 15)
    said = "loop x requested 4 tasks for parse, which still has 2: no effect so far"
    assert said in explain_unreached(found)
    snapshot = Snapshot(at=NOW + 16, plants={"east": found})
    measured = build_topology_inputs({"plant": "east"}, snapshot, NOW + 16)[1]
    assert said in measured.invalid
    [reading] = CONDITIONS["order_unreached"].read(Evidence(now=NOW, snapshot=snapshot), 60.0)
    assert (reading.labels, reading.value) == ({"plant": "east"}, 1.0) and said in reading.sentence

    assert forget("east") == 1
    found = course(row, watch, 2, 1, begin=17)
    assert not found.orders and explain_unreached(found) is None
    fresh = Snapshot(at=NOW + 18, plants={"east": found})
    assert build_topology_inputs({"plant": "east"}, fresh, NOW + 18)[1].invalid is None


def test_a_rollout_undoes_no_order_and_a_second_controller_does(row):
    ordered(row, MemoryPlant(lambda: NOW, [], {"parse": 2})).set_parallelism({"parse": 4})
    watch = OrderWatch()
    states = []
    for begin, there, set_to in ((1, 2, 4), (8, 4, 4), (20, 5, 4), (60, 3, 4), (90, 4, 7)):
        found = course(row, watch, there, 7, begin, set_to={"parse": set_to})
        states.append(found.orders["parse"].state)
    assert states == ["pending", "reached", "reached", "reached", "undone"]
    assert "another controller set the tasks to 7" in explain_unreached(found)
    assert course(row, watch, 4, 70, 100, set_to={"parse": 4}).orders["parse"].state == "reached"


def proof(value, within_seconds=90.0):
    return {"parse": ProofStatus(sensor="answering", value=value, within_seconds=within_seconds)}


def test_a_declared_proof_stands_before_the_number_of_tasks_and_has_its_own_time(row):
    ordered(row, MemoryPlant(lambda: NOW, [], {"parse": 2})).set_parallelism({"parse": 4})
    watch = OrderWatch()
    for begin, seconds, value, state in ((1, 60, 0.0, "pending"), (61, 25, None, "pending"), (86, 9, 0.0, "missed")):
        found = course(row, watch, 4, seconds, begin, proofs=proof(value))
        assert found.orders["parse"].state == state, begin
    assert course(row, watch, 4, 1, begin=100, proofs=proof(4.0)).orders["parse"].state == "reached"


def test_an_observer_that_begins_goes_on_from_what_was_published(row):
    ordered(row, MemoryPlant(lambda: NOW, [], {"parse": 2})).set_parallelism({"parse": 4})
    before = course(row, OrderWatch(), 2, 15)
    assert before.orders["parse"].state == "missed"
    after = course(row, OrderWatch(before=lambda: {"east": before}), 2, 1, begin=16)
    assert after.orders["parse"].state == "missed"


def gone(row, watch, seconds, begin):
    """Return the row as `course` does, while the operator is missing."""
    topology = MeasuredTopology("east", NOW, 10.0, {"in": MeasuredOperator("in", "source", 1)}, ())
    for second in range(begin, begin + seconds):
        rows = watch.step({"east": replace_fields(status(2), topology=topology.to_document())}, NOW + second)
    return rows["east"]


def reached(row):
    ordered(row, MemoryPlant(lambda: NOW, [], {"parse": 2})).set_parallelism({"parse": 4})
    watch = OrderWatch()
    assert course(row, watch, 4, 5).orders["parse"].state == "reached"
    return watch


@pytest.mark.parametrize("away_seconds", [0, 60])
def test_an_operator_that_was_started_anew_owes_nothing_that_was_ordered_before(row, away_seconds):
    watch = reached(row)
    if away_seconds:
        assert not gone(row, watch, away_seconds, begin=6).orders
    found = course(row, watch, 2, 20, begin=70, lives={"parse": NOW + 65})
    assert not found.orders and explain_unreached(found) is None
    assert not PlantOrder.objects.exists()
    ordered(row, MemoryPlant(lambda: NOW, [], {"parse": 2}), now=NOW + 91).set_parallelism({"parse": 3})
    found = course(row, watch, 3, 2, begin=92, lives={"parse": NOW + 65})
    assert found.orders["parse"].state == "reached"


def test_what_is_ordered_of_the_new_one_is_not_forgotten_with_what_was_ordered_of_the_old(row):
    watch = reached(row)

    def meanwhile(plant, operator, at):
        ordered(row, MemoryPlant(lambda: NOW, [], {"parse": 2}), now=NOW + 70).set_parallelism({"parse": 3})
        forget_until(plant, operator, at)

    watch._forget_until = meanwhile
    course(row, watch, 2, 1, begin=71, lives={"parse": NOW + 65})
    assert load_orders()["east"]["parse"].tasks == 3


def test_what_was_ordered_of_operators_that_never_come_back_is_not_kept_for_ever(row):
    watch = reached(row)
    found = gone(row, watch, 1, begin=6)
    assert not found.orders and explain_unreached(found) is None
    gone(row, watch, 1, begin=3_000)
    assert PlantOrder.objects.exists()
    gone(row, watch, 1, begin=3_607)
    assert not PlantOrder.objects.exists()


def test_the_holder_keeps_it_longer_only_the_holder_lets_go_and_one_that_says_nothing_more_loses_it(control):
    hold(control, "main", "weir-2", NOW, 30.0)
    assert hold(control, "main", "weir-2", NOW + 20.0, 30.0) == NOW + 50.0
    assert not release(control, "main", "weir-3")
    assert release(control, "main", "weir-2")
    assert find_holder(control, "main") is None
    assert hold(control, "main", "weir-3", NOW, 30.0)
    assert 0 < control.pttl(keys.HOLDER.build("main")) <= 30_000
    control.pexpire(keys.HOLDER.build("main"), 0)
    assert find_holder(control, "main") is None
    assert hold(control, "main", "weir-2", NOW)


@pytest.mark.parametrize("seconds", [1e300, -1e300])
def test_a_time_that_another_plant_says_is_one_that_a_page_can_show(seconds):
    assert datetime.fromtimestamp(PlantHeld("shop", "x", seconds).until, UTC)
