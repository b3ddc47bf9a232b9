"""A lost node: its points are restored on live nodes, its data waits for it, no container is made twice."""

from dataclasses import replace

import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st

from common.stored_document import replace_fields
from queues import points as thousand
from queues import projection
from queues.models import Container, Node, Queue, TopologyRevision
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.queues.points import set_points
from tests.queues.samples import blocks_of
from workers.models import Loop, Plan
from workers.placement import execution, moves, plans, proposals, recovery
from workers.steering import overrides

pytestmark = pytest.mark.django_db
EVEN = {"n1": 334, "n2": 333, "n3": 333}
NODES = [f"n{number}" for number in range(6)]


@pytest.fixture
def plant(plant):
    plant.pass_seconds(2)
    return plant


@pytest.fixture
def soon(monkeypatch):
    """A node is given its points again after 5 s, not after a minute."""
    monkeypatch.setattr(recovery, "RETURN_SECONDS", 5.0)


def recover(plant, seconds, silent=()):
    """A recovery each second, as the clock does it; the last snapshot."""
    for _ in range(seconds):
        snapshot = plant.pass_seconds(1, silent)
        recovery.recover(plant.control, snapshot, plant.now)
        execution.advance_all(plant.control, plant.now)
    return snapshot


def test_a_node_that_is_away_for_less_than_ten_seconds_keeps_its_points(plant):
    recover(plant, 9, silent=("n3",))
    assert plant.points() == EVEN
    assert Node.objects.get(name="n3").offline_since is not None
    recover(plant, 2)
    assert Node.objects.get(name="n3").offline_since is None
    assert not Plan.objects.exists()


@pytest.mark.parametrize("silent_seconds", [1, 8])
def test_points_of_a_node_whose_heartbeat_cannot_be_read_stay_where_they_are(plant, silent_seconds):
    """Also of an agent that was silent while it was restarted in another version."""
    recover(plant, silent_seconds, silent=("n3",))
    for _ in range(40):
        snapshot = plant.pass_seconds(1)
        unreadable = replace_fields(snapshot.nodes["n3"], state=None, stale=True, unreadable="heartbeat.seq: no int")
        snapshot = replace_fields(snapshot, nodes={**snapshot.nodes, "n3": unreadable})
        recovery.recover(plant.control, snapshot, plant.now)
        execution.advance_all(plant.control, plant.now)
    assert plant.points() == EVEN and not Plan.objects.exists()
    assert (Node.objects.get(name="n3").offline_since is None) == (silent_seconds == 1)


def test_the_points_of_a_lost_node_go_to_live_ones_by_a_plan_that_says_why(plant):
    plant.segment("alert", "n3").publish(blocks_of(40))
    recover(plant, 14, silent=("n3",))
    assert plant.points() == {"n1": 501, "n2": 499}
    plan = Plan.objects.get()
    assert (plan.kind, plan.state) == ("restore", "done")
    assert "No report from n3" in plan.reason
    assert plan.title.startswith("Move points off n3 (OFFLINE): 6 moves, ")
    assert plan.approvals[0]["by"] == "recovery"
    for name in ("alert", "process", "telemetry"):
        assert sum(plant.points(name).values()) == 1000


def test_nothing_is_done_on_an_old_snapshot(plant):
    snapshot = plant.pass_seconds(14, silent=("n3",))
    plant.wall_seconds += 4
    assert recovery.recover(plant.control, snapshot, plant.now) is None
    assert Node.objects.get(name="n3").offline_since is None


def test_two_observers_that_see_different_nodes_make_no_container_twice(plant):
    """A split brain: each holds the other's nodes for lost, and both act on what they see."""
    set_points(plant.control, "alert", {"n2": 500, "n3": 500})
    snapshot = plant.pass_seconds(2)
    offline = {name: replace_fields(snapshot.nodes[name], state="OFFLINE") for name in ("n2", "n3")}
    lost = {name: replace_fields(snapshot, nodes={**snapshot.nodes, name: node}) for name, node in offline.items()}
    before = plant.topology()
    made = []
    for name, seen in lost.items():
        found = recovery.plan_restoring(before, {name}, before.nodes.keys() - {name}, {}, {})
        made.append((name, proposals.restore(found, f"{name} is lost.", seen, plant.now)))
    states = [execution.advance(plan, plant.control, plant.now).state for _, plan in made]
    assert states == ["done", "void"]
    assert sum(plant.points().values()) == 1000
    assert Container.objects.filter(queue__name="alert", node__name="n1").count() == 1


@pytest.mark.parametrize("fence", [8, 9])
def test_a_recovery_with_no_greater_number_than_one_that_was_there_writes_nothing(plant, fence):
    """It was paused meanwhile; or two servers that both take themselves for the primary gave one number."""
    snapshot = plant.pass_seconds(5, silent=("n3",))
    assert recovery.note_offline(snapshot, plant.now, 9, plant.control)
    Node.objects.update(offline_since=None)
    assert not recovery.note_offline(snapshot, plant.now, fence, plant.control)
    assert Node.objects.get(name="n3").offline_since is None
    assert TopologyRevision.objects.get().recovery_fence == 9


def topology(queues, closed=()):
    nodes = {name: NodeSpec(name, "redis://x:1/0", drained=name in closed) for name in NODES}
    return Topology(1, nodes, {name: replace(queue, name=name) for name, queue in queues.items()})


def test_a_new_container_is_created_on_the_node_with_the_greater_measured_capacity_at_equal_load():
    lost, *others = NODES
    kept, one, other = others[:3]
    queues = {"a": QueueSpec("a", "jobs", {lost: 400, kept: 600}), "b": QueueSpec("b", "jobs", {one: 500, other: 500})}
    plant = topology(queues, closed=others[3:])
    for slow, fast in ((one, other), (other, one)):
        capacities = {slow: 1_000.0, fast: 2_000.0}
        planned = recovery.plan_restoring(plant, {lost}, others, {"a": 100.0, "b": 1_000.0}, capacities)
        assert {move.target for move in planned} == {fast}


SHARES = st.lists(st.sampled_from(NODES), min_size=1, max_size=6, unique=True).map(thousand.share)
QUEUES = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.builds(
        lambda points, least: QueueSpec("q", "jobs", points, minimum_containers=least), SHARES, st.integers(1, 4)
    ),
    min_size=1,
)


@given(QUEUES, st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)), st.data())
def test_whatever_is_lost_points_stay_a_thousand_on_live_nodes_with_the_minimum_that_is_possible(
    queues, lost, drained, data
):
    plant = topology(queues, drained)
    live = [name for name in NODES if name not in lost]
    rates = {name: data.draw(st.floats(0, 1e6)) for name in queues}
    found = recovery.plan_restoring(plant, lost, live, rates, {})
    open_nodes = [name for name in live if name not in drained]
    if found:
        moves.check(found, plant, lost)
    after = moves.apply_moves(moves.list_live_points(plant), found)
    for name, points in after.items():
        assert sum(points.values()) == 1000
        if not open_nodes:
            assert points == queues[name].live_points
        elif any(node in lost for node in queues[name].live_points):
            heard = [node for node in queues[name].live_points if node in live]
            possible = len(set(heard) | set(open_nodes))
            assert not set(points) & lost or not set(points) - lost - set(heard)
            if not set(points) & lost:
                assert len(points) >= min(queues[name].minimum_containers, possible)
    assert all(move.target in open_nodes for move in found)
    for move in found:
        # A holder that lives gives only where nothing is lost and the queue is below its minimum.
        holders = queues[move.queue].live_points
        assert move.source in lost or len(holders) < queues[move.queue].minimum_containers


def test_a_node_that_is_back_for_long_enough_gets_its_points_again_from_those_who_took_them(plant, soon):
    recover(plant, 14, silent=("n3",))
    assert plant.points() == {"n1": 501, "n2": 499}
    recover(plant, 5)
    assert "n3" not in plant.points()
    recover(plant, 6)
    assert plant.points() == EVEN
    plan = Plan.objects.latest("pk")
    assert (plan.kind, plan.state, plan.approvals[0]["by"]) == ("roll-back", "done", "recovery")
    assert plan.title == "Restore points of n3: 999 points"
    assert plan.reason == "n3 returned 5 s ago."


@pytest.mark.thorough
def test_a_node_that_is_lost_again_waits_for_its_next_return(plant, soon):
    recover(plant, 14, silent=("n3",))
    recover(plant, 3)
    recover(plant, 4, silent=("n3",))
    recover(plant, 4)
    assert "n3" not in plant.points()
    recover(plant, 5)
    assert plant.points() == EVEN


@pytest.mark.parametrize(("own", "overridden"), [("advise", "auto"), ("auto", "advise")])
def test_node_scaling_is_left_to_give_points_back_where_it_acts_whoever_put_it_on_that(
    plant, user, soon, own, overridden
):
    loop = Loop.objects.create(name="node_scaling", law="node_scaling", mode=own, interval_seconds=60)
    given = {"name": "mode", "value": overridden, "owner": user, "reason": "A test."}
    overrides.set_override(**given, minutes=60, now=plant.now, loop=loop)
    recover(plant, 14, silent=("n3",))
    recover(plant, 11)
    assert ("n3" in plant.points()) == (overridden == "advise")


def test_points_are_given_back_also_where_the_database_failed_at_the_plan(plant, soon, monkeypatch):
    def away(*_):
        raise OperationalError("gone")

    recover(plant, 14, silent=("n3",))
    approved = plans.record_approval
    monkeypatch.setattr(plans, "record_approval", away)
    with pytest.raises(OperationalError):
        recover(plant, 9)
    assert not Plan.objects.filter(kind="roll-back").exists()
    monkeypatch.setattr(plans, "record_approval", approved)
    recover(plant, 2)
    assert plant.points() == EVEN


def test_a_recovery_that_dies_behind_its_plan_gives_back_once(plant, soon, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    recover(plant, 14, silent=("n3",))
    note_loss = recovery.note_loss
    monkeypatch.setattr(recovery, "note_loss", dies)
    with pytest.raises(KeyboardInterrupt):
        recover(plant, 9)
    monkeypatch.setattr(recovery, "note_loss", note_loss)
    execution.advance_all(plant.control, plant.now)
    assert plant.points() == EVEN
    set_points(plant.control, "alert", {"n1": 501, "n2": 499})
    recover(plant, 3)
    assert plant.points() == {"n1": 501, "n2": 499}
    assert not recovery.is_due(plant.control, plant.now)


def test_nodes_that_were_lost_together_get_their_points_back_one_after_the_other(plant, soon):
    Queue.objects.update(minimum_containers=1)
    recover(plant, 14, silent=("n2", "n3"))
    assert plant.points() == {"n1": 1000}
    recover(plant, 8, silent=("n3",))
    assert plant.points() == {"n1": 667, "n2": 333}
    recover(plant, 8)
    assert plant.points() == EVEN


@pytest.mark.parametrize("change", [{"drained": True}, {"cordoned": True}])
def test_a_node_that_a_person_keeps_out_gets_nothing_back(plant, soon, change):
    recover(plant, 14, silent=("n3",))
    Node.objects.filter(name="n3").update(**change)
    projection.project(plant.control)
    recover(plant, 9)
    assert "n3" not in plant.points()


def test_points_that_have_moved_on_meanwhile_stay_where_they_are(plant, soon):
    recover(plant, 14, silent=("n3",))
    set_points(plant.control, "alert", {"n1": 900, "n2": 100})
    recover(plant, 9)
    assert plant.points() == {"n1": 733, "n2": 100, "n3": 167}
    assert plant.points("process") == EVEN
