"""What the parallelism laws see of a topology: rates and times of what they may set, nothing else."""

from dataclasses import replace

import pytest

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.parallelism.inputs import (
    build_joint_observation,
    compute_source_per_second,
    list_steered_paths,
    observe_queueing,
)
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology


def task(inputs, service_seconds, **more):
    measured = {"inputs": inputs, "executions": inputs, "service_seconds": service_seconds}
    return measured | {"latency_seconds": 0.2} | more


@pytest.fixture
def topology():
    operators = [
        MeasuredOperator("source", "source", 1, fixed="a source"),
        MeasuredOperator("rules", "operator", 2, fixed="declared"),
        MeasuredOperator("hosts", "operator", 3, tasks=(task(300, 0.010), task(100, 0.030), task(0, None))),
        MeasuredOperator("sites", "operator", 1, tasks=(task(50, 0.001),)),
        MeasuredOperator("alert", "operator", 1, fixed="sent for"),
        MeasuredOperator("desk", "operator", 1, fixed="sent for"),
    ]
    links = [
        Link("source", "rules", 0.5),
        Link("rules", "hosts", 2.0),
        Link("hosts", "sites", 0.0),
        Link("sites", "alert", 0.1),
        Link("sites", "desk", 0.1),
    ]
    return MeasuredTopology("main", 100.0, 10.0, {each.name: each for each in operators}, tuple(links))


def test_only_ways_between_what_can_be_set_are_seen_and_each_once(topology):
    assert len(topology.paths) == 2
    assert list_steered_paths(topology) == [["hosts", "sites"]]


def test_rates_are_of_all_tasks_and_service_times_of_an_event(topology):
    row = build_joint_observation(topology)["operators"]["hosts"]
    assert row["rate_per_second"] == 40.0
    assert row["service_seconds"] == pytest.approx(0.015)  # 300 of 10 ms, 100 of 30 ms
    assert row["backlog_events"] == 80.0  # 40 a second wait for 2 s
    assert compute_source_per_second(topology) == 40.0


def test_what_waits_is_as_it_was_counted_also_when_nothing_comes_any_more(topology):
    """By Little's law alone a load that has ended leaves nothing, whatever waits."""
    ended = MeasuredOperator("sites", "operator", 2, waiting=112.0, tasks=(task(0, 0.4, executions=12.0),) * 2)
    seen = replace(topology, operators={**topology.operators, "sites": ended})
    assert build_joint_observation(seen)["operators"]["sites"]["backlog_events"] == 112.0
    assert MeasuredTopology.from_document(seen.to_document()).operators["sites"].waiting == 112.0
    before = seen.to_document()
    del before["operators"]["sites"]["waiting"]  # of an older Weir
    assert MeasuredTopology.from_document(before).operators["sites"].waiting is None


def test_a_backlog_that_a_load_has_left_is_worked_off_before_tasks_go():
    queue = MeasuredOperator("queue", "source", 1, 1, 1, "a queue", tasks=({"outputs": 0.0},))
    measured = task(0, 0.4, executions=12.0, latency_seconds=0.0)
    pool = MeasuredOperator("pool", "operator", 2, 1, 100, waiting=112.0, tasks=(measured,) * 2)
    seen = MeasuredTopology("app", 100.0, 10.0, {"queue": queue, "pool": pool}, (Link("queue", "pool", 61.0),))
    made = catalog.get_law("parallelism_joint")
    quick = {"deadline_seconds": 2.0, "pause_seconds": 0.0, "window_seconds": 2.0, "maximum": 16}
    parameters = catalog.read_parameters(made, {"bound_seconds": 1.0, **quick})
    observed = catalog.read_observation(made, build_joint_observation(seen))
    _, decision = decide_next(made, parameters, start_state(made, parameters), observed)
    assert decision.action is not None and decision.action["tasks"]["pool"] > 2, decision.reason


def test_what_failed_at_the_sources_is_a_rate_and_not_known_where_no_source_counts_it(topology):
    assert build_joint_observation(topology)["failed_per_second"] is None
    source = MeasuredOperator("source", "source", 1, fixed="a source", failed=250.0)
    counted = replace(topology, operators={**topology.operators, "source": source})
    assert build_joint_observation(counted)["failed_per_second"] == 25.0


@pytest.mark.parametrize(
    ("law", "see"), [("parallelism_queueing", observe_queueing), ("parallelism_joint", build_joint_observation)]
)
def test_the_laws_take_what_is_seen_and_decide_on_it(topology, law, see):
    made = catalog.get_law(law)
    parameters = catalog.read_parameters(made, {"bound_seconds": 5.0})
    observed = catalog.read_observation(made, see(topology))
    catalog.check_observation(made, parameters, observed)
    _, decision = decide_next(made, parameters, start_state(made, parameters), observed)
    assert decision.limited_by != "unmeasured"
    assert decision.action is None or set(decision.action["tasks"]) == {"hosts", "sites"}


@pytest.mark.parametrize(
    ("law", "see"), [("parallelism_queueing", observe_queueing), ("parallelism_joint", build_joint_observation)]
)
@pytest.mark.parametrize(("arrivals", "wanted"), [(10, 2), (30_000, 6)])
def test_no_law_wants_what_its_plant_refuses(topology, law, see, arrivals, wanted):
    """It would be refused at each tick, and the tasks would stay as they are for ever."""
    tasks = (task(arrivals / 4, 0.010),) * 4
    sites = MeasuredOperator("sites", "operator", 4, 2, 6, tasks=tasks)
    fed = {**topology.operators, "sites": sites}
    links = tuple(replace(link, latency_seconds=0.0) for link in topology.links)
    made = catalog.get_law(law)
    parameters = catalog.read_parameters(made, {"bound_seconds": 1.0})
    seen = see(MeasuredTopology("main", 100.0, 10.0, fed, links))
    observed = catalog.read_observation(made, seen)
    _, decision = decide_next(made, parameters, start_state(made, parameters), observed)
    assert decision.action["tasks"]["sites"] == wanted


@pytest.mark.parametrize(
    ("law", "see"), [("parallelism_queueing", observe_queueing), ("parallelism_joint", build_joint_observation)]
)
def test_an_operator_to_which_nothing_came_needs_the_fewest_tasks(topology, law, see):
    tasks = (task(0, None), task(0, None), task(0, None))
    idle = {**topology.operators, "sites": MeasuredOperator("sites", "operator", 3, tasks=tasks)}
    made = catalog.get_law(law)
    parameters = catalog.read_parameters(made, {"bound_seconds": 5.0})
    observed = catalog.read_observation(made, see(MeasuredTopology("main", 100.0, 10.0, idle, topology.links)))
    _, decision = decide_next(made, parameters, start_state(made, parameters), observed)
    assert decision.limited_by != "unmeasured"
    if law == "parallelism_queueing":
        assert decision.action["tasks"]["sites"] == 1


@pytest.mark.parametrize(
    ("law", "see"), [("parallelism_queueing", observe_queueing), ("parallelism_joint", build_joint_observation)]
)
def test_an_operator_that_was_not_measured_lets_the_law_hold(topology, law, see):
    idle = {**topology.operators, "sites": MeasuredOperator("sites", "operator", 1)}
    unmeasured = MeasuredTopology("main", 100.0, 10.0, idle, topology.links)
    made = catalog.get_law(law)
    parameters = catalog.read_parameters(made, {})
    observed = catalog.read_observation(made, see(unmeasured))
    _, decision = decide_next(made, parameters, start_state(made, parameters), observed)
    assert decision.action is None and "sites" in decision.reason
