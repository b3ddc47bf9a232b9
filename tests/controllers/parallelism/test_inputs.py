"""What the parallelism laws see of a topology: rates and times of what they may set, nothing else."""

from dataclasses import replace

import pytest

from controllers import catalog
from controllers.framework.law import decide_next, start_state
from controllers.parallelism import joint_law, queueing_law
from controllers.parallelism.inputs import compute_source_per_second, list_steered_paths
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
    assert list_steered_paths(topology) == (("hosts", "sites"),)


def test_rates_are_of_all_tasks_and_service_times_of_an_event(topology):
    row = joint_law.observe(topology).operators["hosts"]
    assert row.rate_per_second == 40.0
    assert row.service_seconds == pytest.approx(0.015)  # 300 of 10 ms, 100 of 30 ms
    assert row.backlog_events == 80.0  # 40 a second wait for 2 s
    assert compute_source_per_second(topology) == 40.0


def test_what_waits_is_as_it_was_counted_also_when_nothing_comes_any_more(topology):
    """By Little's law alone a load that has ended leaves nothing, whatever waits."""
    ended = MeasuredOperator("sites", "operator", 2, waiting=112.0, tasks=(task(0, 0.4, executions=12.0),) * 2)
    seen = replace(topology, operators={**topology.operators, "sites": ended})
    assert joint_law.observe(seen).operators["sites"].backlog_events == 112.0
    assert MeasuredTopology.from_document(seen.to_document()).operators["sites"].waiting == 112.0
    before = seen.to_document()
    del before["operators"]["sites"]["waiting"]  # of an older Weir
    assert MeasuredTopology.from_document(before).operators["sites"].waiting is None


def decide(made, parameters, topology):
    values = catalog.read_parameters(made.LAW, parameters)
    seen = made.observe(topology)
    catalog.check_observation(made.LAW, values, seen)
    return decide_next(made.LAW, values, start_state(made.LAW, values), seen)[1]


def test_a_backlog_that_a_load_has_left_is_worked_off_before_tasks_go():
    queue = MeasuredOperator("queue", "source", 1, 1, 1, "a queue", tasks=({"outputs": 0.0},))
    measured = task(0, 0.4, executions=12.0, latency_seconds=0.0)
    pool = MeasuredOperator("pool", "operator", 2, 1, 100, waiting=112.0, tasks=(measured,) * 2)
    seen = MeasuredTopology("app", 100.0, 10.0, {"queue": queue, "pool": pool}, (Link("queue", "pool", 61.0),))
    quick = {"deadline_seconds": 2.0, "pause_seconds": 0.0, "window_seconds": 2.0, "maximum": 16}
    decision = decide(joint_law, {"bound_seconds": 1.0, **quick}, seen)
    assert decision.action is not None and decision.action["tasks"]["pool"] > 2, decision.reason


def test_what_failed_at_the_sources_is_a_rate_and_not_known_where_no_source_counts_it(topology):
    assert joint_law.observe(topology).failed_per_second is None
    source = MeasuredOperator("source", "source", 1, fixed="a source", failed=250.0)
    counted = replace(topology, operators={**topology.operators, "source": source})
    assert joint_law.observe(counted).failed_per_second == 25.0


@pytest.mark.parametrize("made", [queueing_law, joint_law])
def test_the_laws_decide_on_what_was_measured_and_hold_on_an_operator_that_was_not(topology, made):
    decision = decide(made, {"bound_seconds": 5.0}, topology)
    assert decision.limited_by != "unmeasured"
    assert decision.action is None or set(decision.action["tasks"]) == {"hosts", "sites"}
    # Without arrivals, an operator is measured.
    idle = MeasuredOperator("sites", "operator", 3, tasks=(task(0, None),) * 3)
    decision = decide(made, {"bound_seconds": 5.0}, replace(topology, operators={**topology.operators, "sites": idle}))
    assert decision.limited_by != "unmeasured"
    assert made is joint_law or decision.action["tasks"]["sites"] == 1
    gone = MeasuredOperator("sites", "operator", 1)
    decision = decide(made, {}, replace(topology, operators={**topology.operators, "sites": gone}))
    assert decision.action is None and decision.limited_by == "unmeasured" and "sites was not" in decision.reason


@pytest.mark.parametrize("made", [queueing_law, joint_law])
@pytest.mark.parametrize(("arrivals", "wanted"), [(10, 2), (30_000, 6)])
def test_no_law_wants_what_its_plant_refuses(topology, made, arrivals, wanted):
    """It would be refused at each tick, and the tasks would stay as they are for ever."""
    sites = MeasuredOperator("sites", "operator", 4, 2, 6, tasks=(task(arrivals / 4, 0.010),) * 4)
    links = tuple(replace(link, latency_seconds=0.0) for link in topology.links)
    seen = replace(topology, operators={**topology.operators, "sites": sites}, links=links)
    assert decide(made, {"bound_seconds": 1.0}, seen).action["tasks"]["sites"] == wanted
