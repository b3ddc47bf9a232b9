"""The rebalancing loop on real servers: it measures, moves, and sees whether it helped."""

from datetime import timedelta

import pytest
from django.db import transaction

from queues import projection
from queues.models import Node
from tests.queues.points import set_points
from tests.races import another_thread, until_another_waits
from tests.waiting import MAX_SECONDS
from tests.workers.loops import JOBS, PLANT, ensured
from workers.control.ledger import ledger
from workers.control.tick import finish, resolve_setting
from workers.models import LedgerEntry, Loop, Plan
from workers.placement import plans, plant_sensors, proposals

pytestmark = pytest.mark.django_db
UNEVEN = {"n1": 700, "n2": 200, "n3": 100}


@pytest.fixture
def plant(plant):
    set_points(plant.control, "alert", UNEVEN)
    ensured(plant.control, (*JOBS, *PLANT), plant.topology())
    return plant


def test_a_busy_node_is_relieved_by_the_fewest_points_and_the_effect_is_judged(plant):
    assert plant.flow(10).nodes["n1"].state == "BUSY"
    entry = plant.tick("rebalancing")
    entry.refresh_from_db()
    assert (entry.applied, entry.error, entry.verdict) == (True, "", "checking")
    plan = Plan.objects.get()
    assert (plan.state, plan.entry, plan.approvals[0]["by"], plan.kind) == ("approved", entry, "loop", "rebalance")
    assert plan.owner is None
    moved = sum(move["points"] for move in plan.moves)
    assert 60 <= moved <= 70
    plant.execute()
    assert plant.points()["n1"] == 700 - moved
    snapshot = plant.flow(60)
    assert snapshot.nodes["n1"].utilisation <= 0.7
    assert ledger.judge_due(plant.now, snapshot) == [entry.pk]
    judged = LedgerEntry.objects.get(pk=entry.pk)
    assert judged.verdict == "effective", judged.outcome
    assert judged.outcome["before"]["worst_utilisation"] > 0.75


def test_a_decision_that_is_applied_again_after_a_crash_has_one_plan(plant):
    plant.flow(10)
    entry = plant.tick("rebalancing")
    LedgerEntry.objects.update(applied=False)
    loop = Loop.objects.get(law="rebalancing")
    setting = resolve_setting(loop, [], plant.plant.observe(), plant.now)
    finish(LedgerEntry.objects.get(), setting, loop, plant.plant, plant.now)
    assert Plan.objects.count() == 1
    entry.refresh_from_db()
    assert entry.applied


def test_while_a_plan_is_being_executed_the_loop_waits(plant):
    plant.flow(10)
    plant.tick("rebalancing")
    plant.flow(14)
    entry = plant.tick("rebalancing")
    assert (entry.action, entry.limited_by) == (None, "stale measurement")
    assert "is being executed" in entry.reason


@pytest.mark.thorough
def test_advice_is_a_plan_for_a_person_and_the_same_advice_is_given_once(plant, django_user_model):
    Loop.objects.filter(law="rebalancing").update(mode="advise")
    plant.flow(10)
    assert "(advice only): " in plant.tick("rebalancing").reason
    plan = Plan.objects.get()
    assert (plan.state, plan.owner) == ("proposed", None)
    plant.execute()
    assert plant.points() == UNEVEN
    plant.flow(61)
    plant.tick("rebalancing")
    user = django_user_model.objects.create(username="desk-2")
    snapshot = plant.flow(1)
    newest = plans.open_plans(plant.now)[-1]
    assert [each.pk for each in plans.open_plans(plant.now)] == [newest.pk]
    plans.approve(newest, newest.hash, user, "Do so.", snapshot=snapshot, now=plant.now)
    plant.execute()
    assert plant.points()["n1"] < 700


@pytest.mark.django_db(transaction=True)
def test_a_newer_decision_ends_no_plan_that_a_person_is_just_approving(plant, django_user_model):
    Loop.objects.filter(law="rebalancing").update(mode="advise")
    snapshot = plant.flow(10)
    entry, user = plant.tick("rebalancing"), django_user_model.objects.create(username="desk-2")
    plan = Plan.objects.get()
    newer = LedgerEntry.objects.get(pk=entry.pk)
    newer.pk, newer.action = None, {"moves": [{**plan.moves[0], "points": plan.moves[0]["points"] + 1}]}
    newer.save(force_insert=True)
    cooled_down = plant.now + timedelta(seconds=newer.parameters["guard"]["cooldown_seconds"] + 1)
    with another_thread() as call:
        with transaction.atomic():
            plans.approve(plan, plan.hash, user, "Do so.", snapshot=snapshot, now=plant.now)
            made = call(proposals.from_decision, newer, snapshot, cooled_down, approved=False)
            until_another_waits()
        assert made.result(MAX_SECONDS).state == "proposed"
    plan.refresh_from_db()
    assert (plan.state, plan.note) == ("approved", "")


@pytest.mark.thorough
def test_other_advice_is_a_plan_only_once_the_cool_down_is_over(plant):
    Loop.objects.filter(law="rebalancing").update(mode="advise")
    plant.flow(10)
    plant.tick("rebalancing")
    plans.reject(Plan.objects.get(), None, "Not tonight.", now=plant.now)
    plant.flow(20)
    assert plant.tick("rebalancing").action is not None, "what it would do is in the ledger all the same"
    assert Plan.objects.count() == 1
    plant.flow(45)
    plant.tick("rebalancing")
    assert Plan.objects.filter(state="proposed").count() == 1


def test_advice_that_no_longer_fits_is_an_error_of_its_entry_and_not_of_the_tick(plant):
    Loop.objects.filter(law="rebalancing").update(mode="advise")
    plant.flow(10)
    Node.objects.filter(name__in=("n2", "n3")).update(cordoned=True)
    entry = plant.tick("rebalancing")
    entry.refresh_from_db()
    assert "cordoned" in entry.error
    assert not Plan.objects.exists()


def test_a_nodes_own_threshold_is_what_it_is_kept_below(plant):
    Node.objects.filter(name="n1").update(busy_threshold=0.4, toobusy_threshold=0.5)
    projection.project(plant.control)
    plant.flow(10)
    plant.tick("rebalancing")
    plant.execute()
    assert plant.flow(5).nodes["n1"].raw < 0.4


def test_a_node_in_doubt_stops_every_move(plant):
    plant.flow(10)
    plant.flow(2, silent=("n3",))
    entry = plant.tick("rebalancing")
    assert entry.action is None
    assert "n3 has missed two heartbeats" in entry.reason


def test_a_containers_load_is_what_it_causes_in_events_and_in_the_servers_time(plant):
    snapshot = plant.flow(10)
    rows = snapshot.queues["alert"].containers
    assert rows["n1"].load == pytest.approx(0.77, abs=0.01)
    assert rows["n2"].load == pytest.approx(0.22, abs=0.01)
    assert rows["n1"].server_time_share > 0
    sensed = plant_sensors.observe_rebalancing({}, snapshot, None, plant.wall_seconds)
    rates = {queue["name"]: queue["rate"] for queue in sensed.observation["queues"]}
    assert rates["alert"] == pytest.approx(1100, rel=0.02)
    assert sensed.measured.invalid is None
