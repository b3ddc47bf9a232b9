"""The twin ticks the shipped loops as a plant does; without a database (no test here asks for one)."""

import pytest

from controllers.shedding.ladder import LAW as LADDER
from queues.topology import Capacity, NodeSpec, QueueSpec, Topology
from workers.control.kinds.registry import KINDS, get_kind
from workers.models import LedgerEntry, Loop
from workers.placement.plant_sensors import check_measurement
from workers.twin import balance
from workers.twin.simulated_container import SimulatedContainer
from workers.twin.simulated_plant import STARTS_AT, SimulatedPlant
from workers.twin.twin import Twin

QUEUE, NODE, HOST = "orders", "n1", "jobs@twin"


@pytest.fixture
def plant():
    queue = QueueSpec(QUEUE, "jobs", {NODE: 1_000}, minimum_containers=1, events_per_worker=50)
    nodes = {NODE: NodeSpec(NODE, "", Capacity(1_000.0))}
    return SimulatedPlant(Topology(1, nodes, {QUEUE: queue}), {HOST: 4})


def pass_seconds(twin, seconds, per_second=0.0):
    """Let events arrive at a rate, and return the newest snapshot."""
    for _ in range(seconds):
        twin.plant.container(QUEUE, NODE).insert(per_second, twin.plant.clock())
        twin.pass_time()
    return twin.plant.observe()


def test_loops_start_with_the_defaults_of_their_kind(plant):
    [loop] = Twin(plant, ["worker_rate"]).loops.values()
    kind = get_kind("worker_rate")
    assert (loop.name, loop.interval_seconds) == (f"worker_rate/{QUEUE}/{NODE}", kind.interval_seconds)
    assert (loop.mode, loop.parameters["events_per_worker"]) == (Loop.Mode.AUTO, 50)


def test_a_loop_ticks_at_its_interval_on_a_snapshot_of_the_same_second(plant):
    twin = Twin(plant, [LADDER.name])
    pass_seconds(twin, 30, per_second=100.0)
    times = [entry.at.timestamp() - STARTS_AT.timestamp() for entry in twin.entries]
    assert times == [pytest.approx(second + 0.4) for second in (1, 6, 11, 16, 21, 26)]
    assert {round(entry.observation["age_seconds"], 3) for entry in twin.entries} == {0.2}


def test_an_action_reaches_the_plant_and_shows_in_the_next_snapshot(plant):
    twin = Twin(plant, ["worker_rate"], parameters={"worker_rate": {"upper_limit": 60.0}})
    snapshot = pass_seconds(twin, 5, per_second=100.0)
    assert snapshot.queues[QUEUE].containers[NODE].waiting_to_run
    assert snapshot.loops[f"worker_rate/{QUEUE}/{NODE}"].entry


def test_a_loop_in_advise_changes_nothing(plant):
    twin = Twin(plant, ["worker_rate"], modes={"worker_rate": "advise"})
    snapshot = pass_seconds(twin, 5, per_second=1_000.0)
    assert any(entry.action for entry in twin.entries)
    assert snapshot.queues[QUEUE].containers[NODE].waiting_to_run == 0


def test_a_loop_with_nothing_to_do_rests(plant):
    twin = Twin(plant, ["worker_rate"])
    pass_seconds(twin, 60)
    assert 3 <= len(twin.entries) <= 8


def test_rates_and_states_are_those_of_the_observer(plant):
    snapshot = pass_seconds(Twin(plant, []), 20, per_second=950.0)
    row, node = snapshot.queues[QUEUE].containers[NODE], snapshot.nodes[NODE]
    assert (row.in_per_second, row.load) == (950.0, 0.95)
    assert (node.state, node.age_seconds, node.stale) == ("TOOBUSY", 0.0, False)


def test_a_silent_node_goes_offline_after_three_beats(plant):
    twin = Twin(plant, [])
    pass_seconds(twin, 5)
    plant.nodes[NODE].silent = True
    assert [pass_seconds(twin, 1).nodes[NODE].state for _ in range(3)][1:] == ["NORMAL", "OFFLINE"]


def test_a_pool_that_is_not_kept_returns_to_its_start_size(plant):
    twin = Twin(plant, [])
    plant.resize_pool(HOST, 9)
    assert pass_seconds(twin, 1).hosts[HOST].slots == 9
    assert pass_seconds(twin, 70).hosts[HOST].slots == 4


def test_a_throttled_queue_is_open_again_after_the_time(plant):
    twin, shares = Twin(plant, []), []
    plant.throttle_queue(QUEUE, 2.5)
    for _ in range(4):
        shares.append(plant.compute_throttled_share(QUEUE))
        pass_seconds(twin, 1)
    assert shares == [1.0, 1.0, 0.5, 0.0]


def test_the_oldest_event_is_the_first_that_was_not_removed():
    row = SimulatedContainer()
    row.insert(10, at=100.0)
    row.insert(10, at=103.0)
    assert row.remove(10) == 10
    assert row.build_counters(105.0).oldest_seconds == 2.0
    assert row.remove(50) == 10
    assert row.build_counters(105.0).oldest_seconds is None


@pytest.fixture
def cluster():
    """Three nodes, of which the first has most of a queue."""
    queue = QueueSpec(QUEUE, "jobs", {"n1": 900, "n2": 100})
    nodes = {name: NodeSpec(name, "", Capacity(1_000.0)) for name in ("n1", "n2", "n3")}
    return SimulatedPlant(Topology(1, nodes, {QUEUE: queue}))


def publish_by_points(twin, seconds, per_second):
    """Let events of the queue arrive by its points; workers remove them at once. Return the newest snapshot."""
    plant = twin.plant
    for _ in range(seconds):
        for node, points in plant.topology.queue(QUEUE).live_points.items():
            plant.container(QUEUE, node).insert(per_second * points / 1_000, plant.clock())
            plant.container(QUEUE, node).remove(per_second)
        twin.pass_time()
    return plant.observe()


def test_a_decision_about_points_is_carried_out_as_a_plan(cluster):
    twin = Twin(cluster, ["rebalancing"])
    snapshot = publish_by_points(twin, 60, per_second=900.0)
    assert max(node.utilisation for node in snapshot.nodes.values()) < 0.7
    assert sum(snapshot.queues[QUEUE].containers[name].points for name in ("n1", "n2")) == 1_000
    assert cluster.plans.made and not cluster.plans.open


def test_a_plan_ends_when_another_one_has_moved_the_points_of_its_queue(cluster):
    twin, move = Twin(cluster, []), {"queue": QUEUE, "from": "n1", "to": "n3", "points": 500}
    for _ in range(2):
        cluster.move_points(LedgerEntry(at=STARTS_AT, action={"moves": [move]}, parameters={}))
    pass_seconds(twin, 2)
    assert cluster.topology.queue(QUEUE).live_points == {"n1": 400, "n2": 100, "n3": 500}
    assert not cluster.plans.open


def test_loops_that_move_points_wait_for_a_plan_that_is_being_executed(cluster):
    twin = Twin(cluster, ["rebalancing"])
    publish_by_points(twin, 1, per_second=900.0)
    snapshot = cluster.publish({})
    assert check_measurement(snapshot, cluster.clock()).invalid == "plan 1 is being executed"


def test_a_node_that_is_emptied_gives_its_waiting_events_to_the_others(cluster):
    queue = QueueSpec(QUEUE, "jobs", {"n1": 500, "n2": 250, "n3": 250})
    cluster.topology = Topology(1, cluster.topology.nodes, {QUEUE: queue})
    for name in queue.points:
        cluster.container(QUEUE, name).insert(40, cluster.clock())
    quick = {"node_scaling": {"quiet_decisions": 1}}
    snapshot = pass_seconds(Twin(cluster, ["node_scaling"], modes={"node_scaling": "auto"}, parameters=quick), 200)
    rows = snapshot.queues[QUEUE].containers
    assert len(rows) == 2
    assert sum(row.waiting_events for row in rows.values()) == 120
    assert sum(row.inserted_events for row in rows.values()) == 80  # a transfer is no arrival


@pytest.mark.parametrize("mode", ["auto", "advise"])
@pytest.mark.parametrize("law", sorted(KINDS))
def test_the_loops_of_every_law_tick_without_a_database(law, mode):
    nodes = {name: NodeSpec(name, "") for name in ("n1", "n2")}
    points = {"n1": 500, "n2": 500}
    queues = {QUEUE: QueueSpec(QUEUE, "jobs", points), balance.QUEUE: QueueSpec(balance.QUEUE, "pipeline", points)}
    plant = SimulatedPlant(Topology(1, nodes, queues), {HOST: 4})
    declaration = balance.DECLARATION.format(name=balance.APPLICATION, queue=balance.QUEUE, replicas=2)
    application = plant.add_application(declaration)
    plant.ordinary_weights[QUEUE] = 1_000.0
    twin = Twin(plant, [law], modes={law: mode})
    for _ in range(65):
        for queue in queues:
            plant.container(queue, "n1").insert(2_000.0, plant.clock())
        application.dispatch(2_000.0, plant.get_controls(balance.APPLICATION))
        for replica in application.declared.replicas:
            application.finish_replica_batch(replica, 1_000.0, 0.5, 1.0)
        application.finish_batch(0.1)
        twin.pass_time()
    assert twin.loops and twin.loops.keys() == twin.last_entries.keys()
    assert [entry.error for entry in twin.entries if entry.error] == []


def test_the_weight_of_a_fair_queue_follows_the_number_of_its_keys(cluster):
    cluster.ordinary_weights[QUEUE], cluster.active_keys[QUEUE] = 1_000.0, 40
    twin = Twin(cluster, ["fairness"])
    cluster.published["shop", QUEUE] = 1.0
    pass_seconds(twin, 30)
    assert cluster.ordinary_weights == {QUEUE: 40.0}
    cluster.active_keys[QUEUE] = 400
    pass_seconds(twin, 300)
    assert cluster.ordinary_weights[QUEUE] == pytest.approx(400.0, rel=0.25)
