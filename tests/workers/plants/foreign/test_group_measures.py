"""An operator that reads a log takes its measures from its consumer group, observed at another plant."""

import pytest

from common.errors import BadInput
from controllers.parallelism import inputs, joint_law
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from workers.documents.consumer_groups import ConsumerGroup, PartitionLag
from workers.documents.plants import PlantStatus
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.group_measures import GroupMeasures, parse_groups
from workers.plants.foreign.kind import PlantAddress

DECLARED = """name: shop
sensors:
  web_now: {url: 'http://runner/web', json: replicas}
operators:
  - {name: clients, source: true}
  - {name: web, after: [clients], tasks: web_now}
"""
OPTIONS = {"shop": {"lag": "worker=events/billing"}, "events": {}}


def shop(replicas=2):
    operators = {
        "outside": MeasuredOperator("outside", "source", 1, fixed="outside"),
        "worker": MeasuredOperator("worker", "operator", replicas, 1, 20),
    }
    topology = MeasuredTopology("shop", 5.0, 30.0, operators, (Link("outside", "worker"),))
    return PlantStatus(kind="kubernetes", state="seen", topology=topology.to_document())


def events(state="seen", committed=1_000, **group):
    row = PartitionLag(topic="orders", partition=0, committed=committed, lag_seconds=group.get("lag_seconds"))
    billing = ConsumerGroup(**group, partitions=[row])
    return PlantStatus(kind="kafka", state=state, groups={"billing": billing})


def joined(measures, group, replicas=2):
    """Return the measures at a reading at which the group has just committed."""
    earlier = events(committed=900, **LEVEL)
    for status in (earlier, group):
        found = observed(measures, status, replicas)
    return found


def observed(measures, group, replicas=2):
    return measures.join_groups({"shop": shop(replicas), "events": group}, OPTIONS)["shop"]


BEHIND = {"lag_events": 4_000, "lag_seconds": 40.0, "in_per_second": 120.0, "out_per_second": 100.0}
LEVEL = {"lag_events": 0, "lag_seconds": 0.0, "in_per_second": 60.0, "out_per_second": 60.0}


def test_a_group_that_is_behind_says_how_long_an_event_takes_its_consumers():
    topology = joined(GroupMeasures(), events(**BEHIND))
    worker = topology.operators["worker"]
    assert inputs.compute_rate_per_second(worker, 30.0) == pytest.approx(120.0)
    assert inputs.compute_service_seconds(worker) == pytest.approx(2 / 100.0)
    assert inputs.estimate_backlog_events(topology, worker) == pytest.approx(40.0 * 120.0)
    assert topology.compute_path_latency_seconds(["outside", "worker"]) == pytest.approx(40.0 + 0.02)
    assert topology.operators["outside"].measure("outputs") == pytest.approx(120.0 * 30)


def test_a_group_that_keeps_up_is_known_by_what_it_did_when_it_was_behind():
    measures = GroupMeasures()
    assert inputs.compute_service_seconds(joined(measures, events(**LEVEL)).operators["worker"]) is None
    joined(measures, events(**BEHIND))
    worker = joined(measures, events(**LEVEL), replicas=4).operators["worker"]
    assert inputs.compute_service_seconds(worker) == pytest.approx(0.02)
    assert worker.measure("utilisation") == pytest.approx(60 * 0.02 / 4)


def test_the_lag_between_two_commits_is_no_backlog():
    """By default a consumer commits every 5 s: one that keeps up seemed to be at its limit."""
    measures = GroupMeasures()
    for second in range(60):
        lag, committed = float(second % 5), 60 * (second // 5 * 5)
        group = {**LEVEL, "lag_seconds": lag, "lag_events": round(60 * lag)}
        worker = observed(measures, events(committed=committed, **group)).operators["worker"]
    assert inputs.compute_service_seconds(worker) is None
    for second in range(60):
        lag, committed = 9.0 + second % 5, 50 * (second // 5 * 5)
        group = {**BEHIND, "lag_seconds": lag, "out_per_second": 50.0}
        worker = observed(measures, events(committed=committed, **group)).operators["worker"]
    assert inputs.compute_service_seconds(worker) == pytest.approx(2 / 50.0)


def test_replicas_beyond_the_partitions_neither_help_nor_seem_to_make_events_longer():
    measures = GroupMeasures()
    for _ in range(20):
        worker = joined(measures, events(**BEHIND, partition_count=4), replicas=8).operators["worker"]
    assert inputs.compute_service_seconds(worker) == pytest.approx(4 / 100.0)
    assert (worker.parallelism, worker.maximum) == (8, 4)
    assert joined(GroupMeasures(), events(**BEHIND)).operators["worker"].maximum == 20


def test_a_lag_that_is_only_known_at_least_counts_its_events():
    group = {**BEHIND, "lag_seconds": 3.0, "at_least": True}
    [link] = joined(GroupMeasures(), events(**group)).links
    assert link.latency_seconds == pytest.approx(4_000 / 120.0)


def test_without_the_group_or_while_its_plant_is_stale_nothing_is_measured():
    measures = GroupMeasures()
    for other in (PlantStatus(kind="kafka", state="seen"), events("stale", **BEHIND)):
        worker = joined(measures, other).operators["worker"]
        assert worker.measure("inputs") is None
    assert measures.join_groups({"events": events(**BEHIND)}, OPTIONS) == {}


def measured_itself(outputs, tasks=2, cluster=None):
    operators = {
        "queue celery": MeasuredOperator("queue celery", "source", 1, 1, 1, "a queue", tasks=(outputs,)),
        "celery@one": MeasuredOperator("celery@one", "operator", tasks, 1, 9_000, tasks=({"inputs": 5.0},)),
    }
    links = (Link("queue celery", "celery@one", 0.5),)
    topology = MeasuredTopology("shop", 5.0, 30.0, operators, links)
    status = PlantStatus(kind="celery", state="seen", topology=topology.to_document())
    options = {"shop": {"lag": "celery@one=events/billing"}, "events": {}}
    measures = GroupMeasures()
    for group in (events(committed=900, **LEVEL), cluster or events(**BEHIND)):
        found = measures.join_groups({"shop": status, "events": group}, options)
    return found["shop"]


@pytest.mark.parametrize(("own", "offered"), [(None, 3_600.0), (0.0, 3_600.0), (3_700.0, 3_700.0)])
def test_of_an_operator_with_measures_of_its_own_those_of_its_group_count(own, offered):
    topology = measured_itself({"outputs": own})
    worker = topology.operators["celery@one"]
    assert worker.measure("inputs") == pytest.approx(120.0 * 30)
    assert topology.operators["queue celery"].measure("outputs") == pytest.approx(offered)
    assert [link.latency_seconds for link in topology.links] == [40.0]


@pytest.mark.parametrize("cluster", [events("stale", **BEHIND), PlantStatus(kind="kafka", state="seen")])
def test_of_an_operator_whose_group_is_not_seen_nothing_is_known(cluster):
    """Its own queue may be empty while events wait in the log: it would be shrunk."""
    topology = measured_itself({"outputs": 0.0}, cluster=cluster)
    seen = joint_law.observe(topology).operators["celery@one"]
    assert (seen.rate_per_second, seen.service_seconds) == (None, None)
    assert [link.latency_seconds for link in topology.links] == [None]


def test_an_operator_of_thousands_of_tasks_has_a_hundred_rows_with_the_sums_of_all():
    worker = measured_itself({}, tasks=9_000).operators["celery@one"]
    assert len(worker.tasks) == 100
    assert worker.measure("inputs") == pytest.approx(120.0 * 30)
    assert worker.measure("utilisation") == pytest.approx(1.0)


def test_each_kind_that_runs_consumers_takes_the_lag_of_their_group():
    assert {name for name, kind in list_kinds().items() if "lag" in {option.name for option in kind.options}} == {
        "celery",
        "declared",
        "kubernetes",
    }


@pytest.mark.parametrize(("lag", "is_known"), [("web=events/billing", True), ("clients=events/b", False)])
def test_a_declared_plant_takes_the_lag_of_operators_that_it_declares(lag, is_known):
    options = {"declaration": DECLARED, "lag": lag}
    address = PlantAddress(name="shop", url="", options=options)
    if is_known:
        list_kinds()["declared"].check(address)
        return
    with pytest.raises(BadInput, match="names clients") as refused:
        list_kinds()["declared"].check(address)
    assert refused.value.field == "lag"


@pytest.mark.parametrize("text", ["worker", "worker=events", "=events/billing", "worker=/billing", "worker="])
def test_what_names_no_group_is_refused(text):
    with pytest.raises(BadInput) as refused:
        parse_groups(text)
    assert refused.value.field == "lag"


@pytest.mark.parametrize("seconds", [None, 4.0])
def test_the_duration_of_a_rebalance_is_the_pause_of_a_change(seconds):
    topology = joined(GroupMeasures(), events(**BEHIND, rebalances=3, rebalance_seconds=seconds))
    assert topology.change_pause_seconds == seconds
    assert joint_law.observe(topology).change_pause_seconds == seconds
