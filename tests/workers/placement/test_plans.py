"""A plan is approved as it was shown, once, in time, and only while the plant is still the one it was for."""

from datetime import timedelta

import pytest

from common.errors import BadInput
from common.stored_document import convert_to_plain, replace_fields
from queues import keys, projection
from queues.durability import DISK
from queues.models import Node, Queue
from queues.topology import Topology
from tests.queues.points import set_points
from tests.workers.loops import JOBS, PLANT, ensured
from tests.workers.placement.plan_plant import loaded
from tests.workers.snapshots import snapshot_of
from workers.models import Loop, Plan
from workers.placement import moves, plans, proposals
from workers.steering import overrides
from workers.steering.overrides import Expiry

pytestmark = pytest.mark.django_db
EVEN = {"n1": 334, "n2": 333, "n3": 333}


@pytest.fixture
def snapshot(plant):
    return plant.pass_seconds(3)


def by_hand(plant, user, snapshot, points=None):
    wanted = points or {"n1": 200, "n2": 467, "n3": 333}
    return proposals.propose_hand("alert", wanted, user, snapshot=snapshot, now=plant.now, reason="A test.")


def busy(plant):
    """n1 is over BUSY by what alert causes there."""
    set_points(plant.control, "alert", {"n1": 700, "n2": 200, "n3": 100})
    loads = {
        "alert": {"n1": 0.7, "n2": 0.2, "n3": 0.1},
        "process": {"n1": 0.1, "n2": 0.1, "n3": 0.1},
        "telemetry": {"n1": 0.0, "n2": 0.0, "n3": 0.0},
    }
    return loaded(plant.pass_seconds(3), loads)


def test_points_of_a_durable_queue_do_not_move_to_a_node_without_an_append_only_file(plant, user, snapshot):
    Queue.objects.filter(name="alert").update(durability=DISK)
    server = plant.servers["n2"].client()
    server.config_set("appendonly", "no")
    try:
        with pytest.raises(BadInput, match="the server of node n2 keeps no append-only file"):
            by_hand(plant, user, snapshot)
    finally:
        server.config_set("appendonly", "yes")
    assert not Plan.objects.exists()
    assert by_hand(plant, user, snapshot).state == Plan.State.PROPOSED


def test_points_by_hand_become_a_plan_and_change_nothing_yet(plant, user, snapshot):
    plan = by_hand(plant, user, snapshot)
    assert (plan.kind, plan.state, plan.owner) == ("hand", "proposed", user)
    assert plan.moves == [{"queue": "alert", "from": "n1", "to": "n2", "points": 134}]
    assert plan.base == {"alert": EVEN}
    assert plan.hash == moves.digest(moves.read(plan.moves), plan.base_revision)
    assert plant.points() == EVEN
    assert plan.after["n1"]["points"] == plan.before["n1"]["points"] - 134


def test_a_plan_is_approved_by_its_hash_with_a_reason(plant, user, snapshot):
    plan = by_hand(plant, user, snapshot)
    approved = plans.approve(plan, plan.hash, user, "It is right.", snapshot=snapshot, now=plant.now)
    assert approved.state == "approved"
    assert approved.approvals == [{"by": "desk-2", "reason": "It is right.", "at": plant.now.timestamp()}]


def refusal(call):
    with pytest.raises(BadInput) as caught:
        call()
    return caught.value


def test_another_hash_a_missing_reason_and_a_second_approval_are_refused(plant, user, snapshot):
    plan = by_hand(plant, user, snapshot)

    def approve(hash=plan.hash, reason="It is right."):
        return plans.approve(plan.pk, hash, user, reason, snapshot=snapshot, now=plant.now)

    assert refusal(lambda: approve(hash="0" * 64)).field == "hash"
    assert refusal(lambda: approve(reason=" ")).field == "reason"
    assert Plan.objects.get().state == "proposed"
    approve()
    again = refusal(approve)
    assert (again.field, "is already approved" in again.message) == ("plan", True)
    assert len(Plan.objects.get().approvals) == 1


def test_a_plan_that_nobody_approves_for_five_minutes_is_void(plant, user, snapshot):
    plan = by_hand(plant, user, snapshot)
    late = plant.now + timedelta(seconds=300)
    refused = refusal(lambda: plans.approve(plan, plan.hash, user, "Late.", snapshot=snapshot, now=late))
    assert "expired at" in refused.message
    assert plans.open_plans(late) == []
    assert plans.void_due(plant.now) == 0
    assert plans.void_due(late) == 1
    assert Plan.objects.get().state == "void"


def test_a_plan_is_stale_when_its_queues_points_have_moved_and_only_then(plant, user, snapshot):
    plan = by_hand(plant, user, snapshot)
    set_points(plant.control, "process", {"n1": 500, "n2": 500})
    assert plans.explain_drift(plan) is None
    set_points(plant.control, "alert", {"n1": 500, "n2": 500})
    refused = refusal(lambda: plans.approve(plan, plan.hash, user, "Stale.", snapshot=snapshot, now=plant.now))
    assert "points of queue alert have changed" in refused.message
    assert plans.void_due(plant.now) == 1


def test_a_drain_is_stale_once_a_queue_that_it_does_not_move_has_points_on_its_node(plant, user):
    snapshot = busy(plant)
    plan = proposals.propose_drain("n3", user, "New disk.", snapshot=snapshot, now=plant.now)
    assert plans.explain_drift(plan) is None
    projection.create_queue(plant.control, "orders", "jobs")
    refused = refusal(lambda: plans.approve(plan, plan.hash, user, "Stale.", snapshot=snapshot, now=plant.now))
    assert "Queue orders now has points on n3" in refused.message


@pytest.mark.parametrize("flag", ["drained", "cordoned"])
def test_a_plan_to_a_node_that_was_closed_meanwhile_is_refused(plant, user, snapshot, flag):
    plan = by_hand(plant, user, snapshot)
    Node.objects.filter(name="n2").update(**{flag: True})
    refused = refusal(lambda: plans.approve(plan, plan.hash, user, "Late.", snapshot=snapshot, now=plant.now))
    assert f"n2 is {flag}" in refused.message


@pytest.mark.parametrize(
    ("points", "field"),
    [
        ({"n1": 500, "n2": 499}, "points"),
        ({"n1": 500, "n9": 500}, "points.n9"),
        ({"n1": 1000}, "moves"),
        ({"n1": 1500, "n2": -500}, "points.n1"),
        ({"n1": 500.0, "n2": 500}, "points.n1"),
        (EVEN, "points"),
        ({}, "points"),
    ],
)
def test_points_that_can_not_be_are_refused_by_field_and_leave_no_plan(plant, user, snapshot, points, field):
    assert refusal(lambda: by_hand(plant, user, snapshot, points or {"n1": 0})).field.startswith(field)
    assert not Plan.objects.exists()


def test_balance_now_proposes_what_the_law_finds_with_loads_before_and_after(plant, user):
    plan = proposals.propose_rebalance("band", user, snapshot=busy(plant), now=plant.now)
    assert (plan.kind, plan.law) == ("band", "rebalancing")
    assert plan.before["n1"] == {"utilisation": pytest.approx(0.8), "state": "BUSY", "points": 1368}
    assert plan.after["n1"]["utilisation"] < 0.7
    assert all(row["state"] == "NORMAL" for row in plan.after.values())
    assert sum(row["utilisation"] for row in plan.after.values()) == pytest.approx(1.3, abs=0.001)


def test_what_a_person_overrides_of_the_law_holds_for_plans_too(plant, user):
    ensured(plant.control, (*JOBS, *PLANT), plant.topology())
    document = convert_to_plain(busy(plant))
    for queue in document["queues"].values():
        for row in queue["containers"].values():
            row["load"] *= 0.8
    calm = snapshot_of(document)
    with pytest.raises(BadInput, match="below BUSY"):
        proposals.propose_rebalance("below-busy", user, snapshot=calm, now=plant.now)
    loop = Loop.objects.get(law="rebalancing")
    given = {"name": "busy", "value": 0.5, "owner": user, "reason": "A test.", "minutes": 5}
    overrides.set_override(**given, now=plant.now, loop=loop)
    plan = proposals.propose_rebalance("below-busy", user, snapshot=calm, now=plant.now)
    assert {move["from"] for move in plan.moves} == {"n1"}


def test_nothing_is_planned_on_measurements_in_doubt(plant, user):
    calm = plant.pass_seconds(3)
    doubtful = replace_fields(calm, nodes={**calm.nodes, "n1": replace_fields(calm.nodes["n1"], stale=True)})
    refused = refusal(lambda: proposals.propose_rebalance("band", user, snapshot=loaded(doubtful, {}), now=plant.now))
    assert "n1 has missed two heartbeats" in refused.message


def test_a_drain_takes_every_point_off_the_node(plant, user):
    plan = proposals.propose_drain("n3", user, "New disk.", snapshot=busy(plant), now=plant.now)
    assert (plan.kind, plan.empties) == ("drain", "n3")
    assert plan.after["n3"]["points"] == 0
    assert {move["from"] for move in plan.moves} >= {"n3"}
    assert not Node.objects.get(name="n3").drained


def test_a_node_that_can_not_be_emptied_is_not_drained(plant, user, snapshot):
    Queue.objects.update(minimum_containers=3)
    seen = plant.pass_seconds(1)
    queues = {name: replace_fields(queue, minimum_containers=3) for name, queue in seen.queues.items()}
    snapshot = replace_fields(seen, queues=queues)
    refused = refusal(
        lambda: proposals.propose_drain("n3", user, "New disk.", snapshot=loaded(snapshot, {}), now=plant.now)
    )
    assert refused.field == "node"
    assert not Plan.objects.exists()


@pytest.mark.parametrize(("node", "why"), [("n9", "unknown"), ("n2", "already drained"), ("n1", "OFFLINE")])
def test_a_drain_of_a_node_that_is_not_in_use_is_refused(plant, user, node, why):
    Node.objects.filter(name="n2").update(drained=True)
    silent = plant.pass_seconds(5, silent=("n1",))
    refused = refusal(lambda: proposals.propose_drain(node, user, "New disk.", snapshot=silent, now=plant.now))
    assert why in refused.message


def test_a_node_that_the_plant_has_not_observed_yet_is_not_drained(plant, user, snapshot):
    early = replace_fields(snapshot, nodes={name: row for name, row in snapshot.nodes.items() if name != "n3"})
    refused = refusal(lambda: proposals.propose_drain("n3", user, "New disk.", snapshot=early, now=plant.now))
    assert (refused.field, "not been observed yet" in refused.message) == ("node", True)


def test_a_rejected_plan_can_not_be_approved_and_a_proposed_one_not_be_stopped(plant, user, snapshot):
    plan = by_hand(plant, user, snapshot)
    assert "Only an approved or running" in refusal(lambda: plans.stop(plan, user, "Why not.", now=plant.now)).message
    plans.reject(plan, user, "Not now.", now=plant.now)
    assert (
        "is already rejected"
        in refusal(lambda: plans.approve(plan, plan.hash, user, "Yes.", snapshot=snapshot, now=plant.now)).message
    )
    assert "Rejected by desk-2: Not now." in Plan.objects.get().note


def test_a_cordoned_node_is_projected_and_refused_twice(plant, user):
    now = plant.now
    topology = plans.cordon("n1", True, user, "A look at it.", control=plant.control, now=now)
    assert topology.get_node("n1").cordoned
    for node, on in (("n1", True), ("n2", False), ("n9", True)):
        assert (
            refusal(lambda node=node, on=on: plans.cordon(node, on, user, "x", control=plant.control, now=now)).field
            == "node"
        )
    assert not plans.cordon("n1", False, user, "Well.", control=plant.control, now=now).get_node("n1").cordoned


def test_a_cordon_has_a_user_a_reason_and_an_end_that_the_plant_enforces(plant, user):
    later = plant.now + timedelta(minutes=10)
    plans.cordon("n1", True, user, "A look.", control=plant.control, now=plant.now, expiry=Expiry(minutes=10))
    (held,) = overrides.list_active(plant.now)
    assert (held.node.name, held.value, held.reason, held.owner) == ("n1", "cordoned", "A look.", user)
    assert overrides.expire_due(plant.now, plant.control) == []
    assert Node.objects.get(name="n1").cordoned
    overrides.expire_due(later, plant.control)
    assert not Node.objects.get(name="n1").cordoned
    assert not Topology.from_json(plant.control.get(keys.TOPOLOGY)).get_node("n1").cordoned


def test_the_undo_of_a_cordon_returns_the_node_to_use(plant, user):
    plans.cordon("n1", True, user, "A look.", control=plant.control, now=plant.now)
    (held,) = overrides.list_active(plant.now)
    overrides.undo(held, by=user, now=plant.now, control=plant.control)
    assert not Node.objects.get(name="n1").cordoned


def test_the_law_neither_fills_nor_empties_a_cordoned_node(plant, user):
    Node.objects.filter(name="n3").update(cordoned=True)
    plan = proposals.propose_rebalance("band", user, snapshot=busy(plant), now=plant.now)
    assert all("n3" not in (move["from"], move["to"]) for move in plan.moves)


@pytest.fixture
def another(django_user_model):
    return django_user_model.objects.create(username="desk-3")


def agree(plant, snapshot, plan, who, needed=2):
    return plans.approve(plan.pk, plan.hash, who, "I agree.", snapshot=snapshot, now=plant.now, needed=needed)


def test_of_two_approvals_the_second_is_another_persons(plant, user, another, snapshot):
    plan = by_hand(plant, user, snapshot)
    first = agree(plant, snapshot, plan, user)
    assert (first.state, first.note) == ("proposed", "desk-2 has approved it. Another user has to approve it too.")
    assert "You have already approved" in refusal(lambda: agree(plant, snapshot, plan, user)).message
    assert "You have already approved" in refusal(lambda: agree(plant, snapshot, plan, user, needed=1)).message
    second = agree(plant, snapshot, plan, another)
    assert (second.state, [each["by"] for each in second.approvals]) == ("approved", ["desk-2", "desk-3"])


def test_who_proposed_a_plan_is_not_the_second_to_approve_it(plant, user, another, django_user_model, snapshot):
    plan = by_hand(plant, user, snapshot)
    agree(plant, snapshot, plan, another)
    refused = refusal(lambda: agree(plant, snapshot, plan, user))
    assert (refused.field, "You have proposed this plan" in refused.message) == ("plan", True)
    assert Plan.objects.get().state == "proposed"
    assert agree(plant, snapshot, plan, django_user_model.objects.create(username="desk-4")).state == "approved"


def test_a_first_approval_begins_the_time_anew_and_keeps_the_check_for_drift(plant, user, another, snapshot):
    plan = by_hand(plant, user, snapshot)
    later = plant.now + timedelta(seconds=299)
    plans.approve(plan.pk, plan.hash, user, "I agree.", snapshot=snapshot, now=later, needed=2)
    assert plans.void_due(later + timedelta(seconds=299)) == 0
    set_points(plant.control, "alert", {"n1": 500, "n2": 300, "n3": 200})
    assert "have changed since" in refusal(lambda: agree(plant, snapshot, plan, another)).message
    assert plans.void_due(later + timedelta(seconds=299)) == 1
