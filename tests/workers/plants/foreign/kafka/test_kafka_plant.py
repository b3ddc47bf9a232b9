"""Groups of a real broker: how far behind they are, and what is not lag."""

import time

import pytest

from common.errors import BadInput
from tests.workers.plants.foreign.kafka.broker import tansu
from workers.documents.consumer_groups import ConsumerGroup, PartitionLag
from workers.plants.foreign.adapters import list_kinds
from workers.plants.foreign.kafka import cluster, group_lag
from workers.plants.foreign.kafka.cluster import KafkaCluster
from workers.plants.foreign.kafka.group_lag import Offsets
from workers.plants.foreign.kafka.kafka_plant import MAX_LINKS, NOT_SET, KafkaPlant, build_topology, describe_left_out
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import PlantUnavailable


@pytest.fixture(scope="module")
def broker():
    with tansu() as running:
        yield running


@pytest.fixture
def topic(broker, request):
    name = f"t-{abs(hash(request.node.nodeid)) % 10**9}"
    broker.create(name, 2)
    return name


def plant_of(broker, clock=time.time, **options):
    return KafkaPlant(PlantAddress(name="events", url=broker.url, options=options), clock)


def seen(plant, group):
    plant.get_topology()
    return plant.get_details().groups[group]


def group(*topics, lag_seconds=0.0):
    shown = topics[: group_lag.MAX_SHOWN]
    rows = [PartitionLag(topic=each, partition=0, lag_events=1, lag_seconds=lag_seconds) for each in shown]
    return ConsumerGroup(topics=list(topics), partitions=rows)


@pytest.mark.parametrize("others", [1, 199])
def test_of_a_large_cluster_those_furthest_behind_are_seen_and_it_is_said_what_is_not(others):
    partitions = {f"t{number}": 1 for number in range(5_000)}
    groups = {"all": group(*partitions)}
    groups |= {f"g{number}": group("late", lag_seconds=9.0) for number in range(others)}
    partitions["late"] = 1
    topology = build_topology("events", 5.0, groups, partitions)
    assert len(topology.links) == MAX_LINKS
    assert len([link for link in topology.links if link.source == "topics/late"]) == others
    assert len(topology.operators) == len(groups) + MAX_LINKS - others + 1
    beyond = 5_000 + others - MAX_LINKS
    assert f"{beyond:,} of {5_000 + others:,} pairs" in describe_left_out(groups, partitions)
    assert f" and {beyond:,} topics are left out" in describe_left_out(groups, partitions)
    assert describe_left_out({"one": group("t1")}, partitions) == ""


def test_a_group_is_a_plants_operator_behind_its_topics_and_can_not_be_set(broker, topic):
    broker.publish(topic, 10)
    broker.publish(topic, 5, partition=1)
    broker.commit(f"{topic}-a", topic, 4)
    plant = plant_of(broker, groups=f"{topic}-*")
    topology = plant.get_topology()
    assert set(topology.operators) == {f"topics/{topic}", f"groups/{topic}-a"}
    assert topology.operators[f"topics/{topic}"].parallelism == 2
    assert [(link.source, link.target) for link in topology.links] == [(f"topics/{topic}", f"groups/{topic}-a")]
    group = plant.get_details().groups[f"{topic}-a"]
    assert (group.lag_events, group.partition_count) == (6, 2)
    with pytest.raises(BadInput, match=NOT_SET):
        plant.set_parallelism({f"groups/{topic}-a": 3})
    with pytest.raises(BadInput, match="nobody"):
        plant.set_parallelism({"nobody": 3})


def test_how_old_waiting_events_are_is_known_from_the_first_observation(broker, topic):
    broker.publish(topic, 15)
    broker.commit(f"{topic}-a", topic, 7)
    appended = time.time()
    for age in (20.0, 3_600.0, 86_400.0):  # by a clock that is ahead
        plant = plant_of(broker, lambda ahead=age: time.time() + ahead, groups=f"{topic}-a")
        for _ in range(3):  # a few questions per observation
            group = seen(plant, f"{topic}-a")
        assert group.lag_events == 8
        assert not group.at_least
        assert group.lag_seconds == pytest.approx(time.time() + age - appended, rel=0.05)


def test_resets_deletes_and_topics_made_anew_leave_no_phantom_lag(broker, topic):
    broker.publish(topic, 40)
    broker.commit(f"{topic}-a", topic, 10)
    plant = plant_of(broker, groups=f"{topic}-a")
    assert seen(plant, f"{topic}-a").lag_events == 30
    broker.reset(f"{topic}-a", topic, 40)
    assert seen(plant, f"{topic}-a").lag_events == 0
    broker.reset(f"{topic}-a", topic, 0)
    assert seen(plant, f"{topic}-a").lag_events == 40
    broker.delete(topic)
    gone = seen(plant, f"{topic}-a")
    assert (gone.lag_events, gone.lag_seconds) == (None, None)
    broker.create(topic, 2)
    broker.publish(topic, 7)
    broker.commit(f"{topic}-a", topic, 35)
    seen(plant, f"{topic}-a")
    anew = seen(plant, f"{topic}-a")
    assert (anew.lag_events, anew.lag_seconds) == (0, 0.0)
    assert anew.partitions[0].said == group_lag.BEYOND


class Wide(KafkaCluster):
    """One topic with this many partitions, of which a group has read each; 5 events wait in each."""

    def __init__(self, partitions):
        super().__init__(PlantAddress(name="events", url="kafka://broker.example"), clock=lambda: 5.0)
        self.partitions = [("orders", number) for number in range(partitions)]

    def _read_topics(self):
        return {"orders": len(self.partitions)}

    def _group_names(self):
        return ["billing"]

    def _describe_groups(self, names):
        return {"billing": ("empty", ())}

    def _load_committed(self, names, topics):
        return {"billing": dict.fromkeys(self.partitions, 10)}

    def _read_offsets(self):
        return dict.fromkeys(self._asked, Offsets(0, 15))


@pytest.mark.parametrize(("most", "lag", "at_least"), [(4, 20, False), (3, 15, True)])
def test_a_group_of_more_partitions_than_are_followed_is_as_far_behind_at_least(monkeypatch, most, lag, at_least):
    monkeypatch.setattr(cluster, "MAX_PARTITIONS", most)
    wide, lags = Wide(4), group_lag.GroupLags()
    for _ in range(2):
        lags.follow(wide.read())
        for partition in wide._asked:
            lags.get_history(partition)._times, lags.get_history(partition)._ends = [1.0, 5.0], [10, 15]
    found = lags.list_groups()["billing"]
    assert (found.lag_events, found.at_least) == (lag, at_least)
    assert (found.in_per_second is None) is at_least
    assert wide.left == 4 - most
    plant = KafkaPlant(PlantAddress(name="events", url="kafka://broker.example"))
    plant._cluster = wide
    plant._ask_of_the_past = lambda: None
    plant.get_topology()
    said = [row for section in plant.list_sections() for row in section.rows]
    found = [f"{wide.left} of the partitions", f"observes the first {most:,} by name"] if at_least else []
    assert len(said) == at_least and all(each in said[0][0] for each in found)


def test_a_broker_that_is_away_is_silent_and_says_so_in_time(broker, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "2")
    nobody = PlantAddress(name="events", url="kafka://127.0.0.1:1099")
    with pytest.raises(PlantUnavailable, match="events can't be reached"):
        KafkaPlant(nobody).get_topology()


def test_a_broker_that_may_not_be_reached_is_not_connected_to(settings):
    settings.WEIR_EGRESS_ALLOW = ""
    with pytest.raises(PlantUnavailable, match="which is not allowed"):
        KafkaPlant(PlantAddress(name="events", url="kafka://127.0.0.1:9092")).get_topology()


def test_what_is_found_is_said_before_anything_is_registered(broker, topic):
    broker.publish(topic, 10)
    broker.commit(f"{topic}-a", topic, 4)
    found = list_kinds()["kafka"].run_inspection(
        PlantAddress(name="events", url=broker.url, options={"groups": f"{topic}-a"})
    )
    assert any(said.startswith(f"{topic}-a: 6 events, ") for said in found.said)
    assert all(part.fixed for part in found.parts)
    assert "attach the system that runs them" in found.needs[0]
