"""Plans carried out on real servers: step by step, over crashes, stopped, rolled back."""

import time
from datetime import timedelta
from functools import partialmethod
from itertools import count

import pytest

from common.errors import NodeUnavailable
from common.stored_document import replace_fields
from queues import keys, projection
from queues.models import Container, Node
from queues.segments.dead_letters import DeadLetters
from queues.topology import Topology
from tests.queues.points import set_points
from tests.queues.samples import batch_of, blocks_of
from tests.waiting import until
from tests.workers.loops import JOBS, ensured
from tests.workers.placement.plan_plant import loaded
from workers import tasks
from workers.coordination.leases import Lease
from workers.models import Loop, Plan
from workers.placement import execution, plans, proposals, recovery

pytestmark = pytest.mark.django_db
EVEN = {"n1": 334, "n2": 333, "n3": 333}


def approved(plan, plant, user, snapshot):
    return plans.approve(plan, plan.hash, user, "As shown.", snapshot=snapshot, now=plant.now)


def by_hand(plant, user, points=None, queue="alert"):
    snapshot = plant.pass_seconds(3)
    wanted = points or {"n1": 200, "n2": 467, "n3": 333}
    plan = proposals.propose_hand(queue, wanted, user, snapshot=snapshot, now=plant.now)
    return approved(plan, plant, user, snapshot)


def drained(plant, user, node="n3"):
    snapshot = loaded(plant.pass_seconds(3), {})
    plan = proposals.propose_drain(node, user, "New disk.", snapshot=snapshot, now=plant.now)
    return approved(plan, plant, user, snapshot)


def advance(plan, plant):
    done = execution.advance(plan, plant.control, plant.now)
    plant.pass_seconds(1)
    return done


def projected(plant):
    return Topology.from_json(plant.control.get(keys.TOPOLOGY))


def test_an_approved_plan_moves_its_points_and_the_topology_says_so(plant, user):
    plan = advance(by_hand(plant, user), plant)
    assert (plan.state, plan.note) == ("done", "")
    assert projected(plant).queue("alert").live_points == {"n1": 200, "n2": 467, "n3": 333}
    assert [step["state"] for step in plan.progress] == ["done"]
    assert plans.compute_progress_share(plan) == 1.0
    assert advance(plan, plant).ended_at == plan.ended_at


def test_a_node_without_points_keeps_a_container_until_it_is_empty_and_settled(plant, user):
    plant.segment("alert", "n3").publish(blocks_of(40))
    plan = advance(by_hand(plant, user, {"n1": 500, "n2": 500}), plant)
    assert plan.state == "done"
    assert projected(plant).queue("alert").points["n3"] == 0
    execution.tidy(plant.control, plant.pass_seconds(20), plant.now)
    assert projected(plant).queue("alert").points["n3"] == 0
    held = plant.segment("alert", "n3").claim("w1", 1000, 60.0)
    plant.segment("alert", "n3").acknowledge([block.entry_id for block in held])
    execution.tidy(plant.control, plant.pass_seconds(1), plant.now)
    assert "n3" not in projected(plant).queue("alert").points


def test_an_empty_container_is_retired_once_late_flushes_must_have_come_and_comes_back_for_a_later_one(plant, user):
    advance(by_hand(plant, user, {"n1": 500, "n2": 500}), plant)
    execution.tidy(plant.control, plant.pass_seconds(5), plant.now)
    assert "n3" in projected(plant).queue("alert").points
    execution.tidy(plant.control, plant.pass_seconds(6), plant.now)
    assert "n3" not in projected(plant).queue("alert").points
    plant.segment("alert", "n3").publish(blocks_of(8))
    execution.tidy(plant.control, plant.pass_seconds(2), plant.now)
    assert projected(plant).queue("alert").points["n3"] == 0
    assert plant.pass_seconds(1).queues["alert"].containers["n3"].waiting_events == 8


def test_a_tick_that_dies_in_a_step_leaves_nothing_of_it_and_the_next_goes_on(plant, user, monkeypatch):
    plan = by_hand(plant, user)
    project = projection.project

    def dies(*arguments):
        project(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(projection, "project", dies)
    with pytest.raises(KeyboardInterrupt):
        execution.advance(plan, plant.control, plant.now)
    monkeypatch.undo()
    plan.refresh_from_db()
    assert plant.points() == EVEN
    assert plan.progress[0]["points_moved"] == 0
    assert advance(plan, plant).state == "done"
    assert plant.points()["n2"] == 467


def test_while_the_control_server_is_away_nothing_moves_and_the_plan_waits(plant, user, monkeypatch, control_server):
    plan = by_hand(plant, user)

    def away(*_):
        raise NodeUnavailable("The control server is not responding; nothing was changed.")

    monkeypatch.setattr(projection, "project", away)
    waiting = execution.advance(plan, plant.control, plant.now)
    assert (waiting.state, "is not responding" in waiting.note) == ("running", True)
    assert plant.points() == EVEN
    monkeypatch.undo()
    assert advance(plan, plant).state == "done"


def test_two_ticks_at_once_do_the_work_of_one(plant, user):
    plan = by_hand(plant, user)
    with Lease(plant.control, f"plan:{plan.pk}", 5.0):
        assert execution.advance(plan, plant.control, plant.now).state == "approved"
    assert plant.points() == EVEN


def test_points_that_have_moved_between_approval_and_execution_void_the_plan(plant, user):
    plan = by_hand(plant, user)
    set_points(plant.control, "alert", {"n1": 500, "n2": 500})
    assert advance(plan, plant).state == "void"
    assert plant.points() == {"n1": 500, "n2": 500}


def test_a_target_that_was_closed_between_approval_and_execution_voids_the_plan(plant, user):
    plan = by_hand(plant, user)
    Node.objects.filter(name="n2").update(cordoned=True)
    plan = advance(plan, plant)
    assert (plan.state, "n2 is cordoned" in plan.note) == ("void", True)
    assert plant.points() == EVEN


def test_a_stopped_plan_makes_no_further_step(plant, user):
    plan = drained(plant, user)
    execution._Step(plan.pk, 5, plant.control, plant.now)._begin()
    plans.stop(plan, user, "Not now.", now=plant.now)
    assert advance(plan, plant).state == "stopped"
    assert plant.points() == EVEN


def test_a_drained_node_ends_empty_with_every_event_elsewhere_once(plant, user):
    plant.segment("alert", "n3").publish(blocks_of(400))
    plant.segment("process", "n3").publish(blocks_of(40))
    plan = advance(drained(plant, user), plant)
    assert plan.state == "done", plan.note
    assert Node.objects.get(name="n3").drained
    assert projected(plant).get_node("n3").drained
    assert not projected(plant).has_points("n3")
    found = plant.ids()
    assert found["n3"] == []
    assert sorted(found["n1"] + found["n2"]) == sorted(f"e{row}" for row in range(400))
    assert sum(step["blocks"] for step in plan.progress) == 110
    assert plant.pass_seconds(1).nodes["n3"].state == "IDLE"


def test_a_drain_of_a_node_on_which_a_queue_is_made_meanwhile_ends_and_says_which(plant, user):
    plan = drained(plant, user)
    projection.create_queue(plant.control, "orders", "jobs")
    for _ in range(3):
        advance(plan, plant)
    plan.refresh_from_db()
    assert (plan.state, plan.note) == (
        "failed",
        "n3 has points of orders that were added after the plan was created. Return it to service, then drain it.",
    )
    assert not plans.list_running_plans().exists()


def test_a_drain_waits_for_workers_and_for_the_pipeline_and_says_so(plant, user):
    plant.segment("alert", "n3").publish(blocks_of(8))
    plant.segment("telemetry", "n3").publish(blocks_of(8))
    held = plant.segment("alert", "n3").claim("w1", 4, 60.0)
    plan = advance(drained(plant, user), plant)
    assert plan.state == "running"
    assert "Workers hold 1 block of alert on n3." in plan.note
    assert "The pipeline still has to read 2 blocks of telemetry on n3." in plan.note
    assert 0.5 < plans.compute_progress_share(plan) < 1
    plant.segment("alert", "n3").acknowledge([block.entry_id for block in held])
    plant.segment("telemetry", "n3").trim("+")
    assert advance(plan, plant).state == "done"


def test_dead_letters_leave_a_drained_node_too(plant, user):
    segment = plant.segment("alert", "n3")
    segment.publish(blocks_of(4))
    (held,) = segment.claim("w1", 100, 60.0)
    segment.move_to_dead_letters(held, "w1", [(batch_of(2), "no")])
    assert advance(drained(plant, user), plant).state == "done"
    elsewhere = [DeadLetters(plant.segment("alert", node)).read() for node in ("n1", "n2", "n3")]
    assert [sum(each.batch.num_rows for each in letters) for letters in elsewhere][2] == 0
    assert sum(each.batch.num_rows for letters in elsewhere for each in letters) == 2


def test_letters_that_find_no_room_hold_up_no_queue_behind_theirs(plant, user, nodes):
    letters = DeadLetters(plant.segment("alert", "n3"))
    letters.add("1-0", "w", "a" * 32, [(batch_of(2), "no")])
    plan = drained(plant, user)
    plant.segment("telemetry", "n3").publish(blocks_of(8))
    for node in ("n1", "n2"):
        nodes[node].client().config_set("maxmemory", 1)
    plan = advance(plan, plant)
    assert plan.state == "running" and "is full" in plan.note
    assert "The pipeline still has to read 2 blocks of telemetry on n3." in plan.note
    for node in ("n1", "n2"):
        nodes[node].client().config_set("maxmemory", 2**28)
    plant.segment("telemetry", "n3").trim("+")
    assert advance(plan, plant).state == "done"


def test_a_tick_ends_in_time_where_each_block_takes_long_and_the_next_goes_on(plant, user):
    plant.segment("alert", "n3").publish(blocks_of(80))
    letters = DeadLetters(plant.segment("process", "n3"))
    letters.add("1-0", "w", "a" * 32, [(batch_of(1), "no")])
    seconds = count()  # each time somebody asks, a second has passed
    plan = execution.advance(drained(plant, user), plant.control, plant.now, lambda: next(seconds))
    assert 1 <= sum(step["blocks"] for step in plan.progress) <= execution.PASS_SECONDS
    assert (plan.state, len(letters.read())) == ("running", 1)
    assert "n3 still has to transfer" in plan.note
    plant.pass_seconds(1)
    assert advance(plan, plant).state == "done"
    found = plant.ids()
    assert sorted(found["n1"] + found["n2"]) == sorted(f"e{row}" for row in range(80))


def test_the_lease_of_a_plan_is_renewed_while_it_waits_for_nodes(plant, user, monkeypatch):
    plan = drained(plant, user)
    monkeypatch.setattr(Lease, "keep_renewed", partialmethod(Lease.keep_renewed, every_seconds=0.001))
    key, empty = keys.LEASE.build(f"plan:{plan.pk}"), execution.empty_container

    def waits(topology, queue, *arguments):
        if queue == "alert":
            plant.control.pexpire(key, 3_600_000)
            until(lambda: 0 < plant.control.pttl(key) <= execution.LEASE_SECONDS * 1_000)
        return empty(topology, queue, *arguments)

    monkeypatch.setattr(execution, "empty_container", waits)
    assert advance(plan, plant).state == "done"


def test_a_container_whose_marked_blocks_take_long_keeps_no_other_from_its_own(plant, user):
    for queue in ("alert", "process"):
        plant.segment(queue, "n3").publish(blocks_of(20))
        plant.segment(queue, "n3").depart({"n1": 1}, 5, 10**9)
    snapshot, seconds = plant.pass_seconds(2), count()
    assert execution.settle(plant.topology(), snapshot, lambda: next(seconds)) < 10
    left = [plant.segment(queue, "n3").measure()["leaving_blocks"] for queue in ("alert", "process")]
    assert min(left) > 0 and max(left) < 5
    assert execution.settle(plant.topology(), snapshot) == sum(left)


def test_a_transfer_is_throttled_by_bytes_per_second_however_often_it_is_ticked(plant, user):
    blocks = blocks_of(400)
    plant.segment("alert", "n3").publish(blocks)
    plan = drained(plant, user)
    size = len(blocks[0].data)
    Plan.objects.filter(pk=plan.pk).update(bytes_per_second=10 * size)
    first = execution.advance(plan, plant.control, plant.now)
    again = execution.advance(plan, plant.control, plant.now)
    assert sum(step["bytes"] for step in again.progress) == sum(step["bytes"] for step in first.progress)
    later = execution.advance(plan, plant.control, plant.now + timedelta(seconds=60))
    assert sum(step["bytes"] for step in later.progress) <= 33 * size
    assert later.state == "running"


def test_a_drain_goes_on_when_the_node_was_away_in_between(plant, user, nodes):
    plant.segment("alert", "n3").publish(blocks_of(400))
    plan = drained(plant, user)
    Plan.objects.filter(pk=plan.pk).update(bytes_per_second=20_000)
    advance(plan, plant)
    nodes["n3"].kill()
    assert "is not responding" in execution.advance(plan, plant.control, plant.now).note
    nodes["n3"].start()
    Plan.objects.filter(pk=plan.pk).update(bytes_per_second=10**9)
    plant.pass_seconds(1)
    assert advance(plan, plant).state == "done"
    found = plant.ids()
    assert sorted(found["n1"] + found["n2"] + found["n3"]) == sorted(f"e{row}" for row in range(400))


def test_a_drain_of_a_node_that_stays_away_ends_so_that_the_loops_move_points_again(plant, user):
    plant.segment("alert", "n3").publish(blocks_of(400))
    plan = drained(plant, user)
    Plan.objects.filter(pk=plan.pk).update(bytes_per_second=20_000)
    advance(plan, plant)
    Node.objects.filter(name="n3").update(offline_since=plant.now - timedelta(seconds=30))
    assert advance(plan, plant).state == "running"
    Node.objects.filter(name="n3").update(offline_since=plant.now - timedelta(seconds=61))
    ended = advance(plan, plant)
    assert ended.state == "failed" and "n3 is OFFLINE" in ended.note
    assert not plans.list_running_plans().exists()


def test_blocks_of_a_drain_that_was_stopped_in_the_middle_arrive_all_the_same(plant, user):
    plant.segment("alert", "n3").publish(blocks_of(40))
    plan = drained(plant, user)
    execution._Step(plan.pk, 5, plant.control, plant.now)._move_points(
        execution._Step(plan.pk, 5, plant.control, plant.now)._begin()
    )
    rows = plant.segment("alert", "n3").depart({"n1": 1, "n2": 1}, 4, 10**9)
    plant.segment("alert", rows[0].target).receive("n3", rows[0])
    plans.stop(plan, user, "Not now.", now=plant.now)
    execution.tidy(plant.control, plant.pass_seconds(2), plant.now)
    found = plant.ids()
    assert sorted(found["n1"] + found["n2"] + found["n3"]) == sorted(f"e{row}" for row in range(40))
    assert len(found["n3"]) == 24
    assert plant.segment("alert", "n3").measure()["leaving_blocks"] == 0


def test_what_was_moved_can_be_rolled_back_once(plant, user):
    plan = advance(by_hand(plant, user), plant)
    snapshot = plant.pass_seconds(1)
    back = proposals.roll_back(plan, user, "It was wrong.", snapshot=snapshot, now=plant.now)
    assert (back.kind, back.state, back.undoes) == ("roll-back", "proposed", plan)
    advance(approved(back, plant, user, snapshot), plant)
    assert plant.points() == EVEN
    assert Plan.objects.get(pk=plan.pk).state == "rolled-back"
    with pytest.raises(ValueError, match="rolled-back"):
        proposals.roll_back(plan, user, "Again.", snapshot=snapshot, now=plant.now)


def test_a_roll_back_of_a_drain_takes_the_node_into_use_again(plant, user):
    plan = advance(drained(plant, user), plant)
    snapshot = plant.pass_seconds(1)
    back = proposals.roll_back(plan, user, "The disk is fine.", snapshot=snapshot, now=plant.now)
    assert advance(approved(back, plant, user, snapshot), plant).state == "done"
    assert not Node.objects.get(name="n3").drained
    assert plant.points() == EVEN


def test_a_container_that_drains_keeps_its_manager_and_gets_workers_until_it_goes(plant, user, broker):
    plant.segment("alert", "n3").publish(blocks_of(8))
    advance(by_hand(plant, user, {"n1": 500, "n2": 500}), plant)

    def managed():
        loops = ensured(plant.control, JOBS, plant.topology())
        return {loop.target["node"] for loop in loops if "alert" in loop.name}

    assert managed() == {"n1", "n2", "n3"}
    assert plant.plant.start_workers("alert", "n3", 1, ["w1"]) == ["w1"]
    held = plant.segment("alert", "n3").claim("w1", 100, 60.0)
    plant.segment("alert", "n3").acknowledge([block.entry_id for block in held])
    execution.tidy(plant.control, plant.pass_seconds(12), plant.now)
    assert managed() == {"n1", "n2"}


def test_the_tasks_of_the_clock_carry_plans_out_and_tidy_up_behind_them(plant, user):
    def published():
        snapshot = replace_fields(plant.pass_seconds(1), at=time.time())
        plant.control.set(keys.SNAPSHOT, snapshot.to_json())

    tasks.advance()  # nobody has looked yet, and nothing is to do
    plan = by_hand(plant, user, {"n1": 500, "n2": 500})
    published()
    tasks.advance()
    assert Plan.objects.get(pk=plan.pk).state == "done"
    expired = proposals.propose_hand("alert", EVEN, user, snapshot=plant.pass_seconds(1), now=plant.now)
    Container.objects.filter(points=0).update(draining_since=plant.now)
    published()
    tasks.upkeep()
    assert "n3" not in projected(plant).queue("alert").points
    assert Plan.objects.get(pk=expired.pk).state == "void"
    assert Loop.objects.filter(law="rebalancing").exists()


@pytest.mark.thorough
def test_a_node_that_was_to_rest_and_is_needed_again_ends_its_plan(plant, user):
    """Another node is lost while a worker holds a block of it: recovery gives it points."""
    plant.segment("alert", "n3").publish(blocks_of(8))
    plant.segment("alert", "n3").claim("w1", 4, 60.0)
    snapshot = loaded(plant.pass_seconds(3), {})
    found = proposals._plan_emptying("n3", plant.topology(), snapshot, plant.now, proposals._compute_decision)
    plan = proposals._propose(Plan.Kind.RELEASE, found, None, "Idle.", snapshot, plant.now, empties="n3")
    plans.record_approval(plan, "loop", "Idle.", plant.now)
    assert execution.advance(plan, plant.control, plant.now).state == "running"
    assert "n3" not in plant.points()
    for _ in range(16):
        recovery.recover(plant.control, plant.pass_seconds(1, ("n1",)), plant.now)
        execution.advance_all(plant.control, plant.now)
    plan.refresh_from_db()
    assert plan.state == "failed" and "the load requires the node" in plan.note
    for _ in range(75):  # a minute after its return n1 gets its points back
        recovery.recover(plant.control, plant.pass_seconds(1), plant.now)
        execution.advance_all(plant.control, plant.now)
    assert plant.points().get("n1", 0) > 0
