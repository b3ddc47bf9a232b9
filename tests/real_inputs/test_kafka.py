"""Kafka clusters as they are shared: some groups, topics and partitions can't be read; the others can."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from workers.plants.foreign.kafka.cluster import KafkaCluster
from workers.plants.foreign.kafka.group_lag import NOT_COMMITTED
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import PlantUnavailable

DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
GROUP_ERRORS = (
    DENIED,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
)
END = 100


def settled(answer):
    """A question that was answered, or failed with this code of Kafka."""
    future = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(answer)
    return future


class SharedCluster:
    """Topic `orders` with two partitions. committed: group → partition → offset, or an error's code;
    topics, partitions, described: name → an error's code, for what can't be read.
    """

    def __init__(self, committed, topics=None, partitions=None, described=None, listing=(), begin=0, others=()):
        self.other_groups = others
        self.committed, self.failing_topics = committed, topics or {}
        self.failing_partitions, self.failing_groups = partitions or {}, described or {}
        self.listing, self.begin = listing, begin

    def list_topics(self, timeout):
        def topic(error=None, count=2):
            return SimpleNamespace(error=error, partitions=dict.fromkeys(range(count)))

        topics = {"orders": topic()}
        topics |= {name: topic(KafkaError(code), 0) for name, code in self.failing_topics.items()}
        return SimpleNamespace(brokers={}, topics=topics)

    def describe_topics(self, topics, request_timeout):
        return {name: settled(SimpleNamespace(topic_id=f"id-{name}")) for name in topics.topic_names}

    def list_consumer_groups(self, request_timeout):
        valid = [SimpleNamespace(group_id=name) for name in self.committed]
        errors = [KafkaError(code) for code in self.listing]
        return settled(SimpleNamespace(valid=valid, errors=errors))

    def list_groups(self, timeout):
        classic = [SimpleNamespace(id=name, state="Empty", protocol_type="", error=None) for name in self.committed]
        return [*classic, *self.other_groups]

    def describe_consumer_groups(self, names, request_timeout):
        answer = SimpleNamespace(state=SimpleNamespace(name="EMPTY"), members=[])
        return {name: settled(self.failing_groups.get(name, answer)) for name in names}

    def list_consumer_group_offsets(self, asked, request_timeout):
        [group] = asked
        committed = self.committed[group.group_id]
        if isinstance(committed, int):
            return {group.group_id: settled(committed)}
        rows = [
            SimpleNamespace(
                topic=topic,
                partition=number,
                offset=-1001 if isinstance(offset, KafkaError) else offset,
                error=offset if isinstance(offset, KafkaError) else None,
            )
            for (topic, number), offset in committed.items()
        ]
        return {group.group_id: settled(SimpleNamespace(topic_partitions=rows))}

    def list_offsets(self, asked, request_timeout):
        found = {}
        for partition, spec in asked.items():
            end = isinstance(spec, type(OffsetSpec.latest())) and spec._value == OffsetSpec.latest()._value
            answer = SimpleNamespace(offset=END if end else self.begin, timestamp=-1)
            code = self.failing_partitions.get((partition.topic, partition.partition))
            found[TopicPartition(partition.topic, partition.partition)] = settled(code or answer)
        return found


def plant_of(cluster, **options):
    plant = KafkaPlant(PlantAddress(name="events", url="kafka://broker.example", options=options))
    plant._cluster._client = cluster
    return plant


def said_of(plant):
    return "\n".join(str(row[0]) for section in plant.list_sections() for row in section.rows)


ORDERS = {("orders", 0): 90, ("orders", 1): 95}


@pytest.mark.parametrize("code", GROUP_ERRORS)
def test_a_group_that_can_not_be_read_is_named_and_hides_no_other(code):
    plant = plant_of(SharedCluster({"billing": ORDERS, "secret": code}))
    plant.get_topology()
    assert plant.get_details().groups["billing"].lag_events == 15
    assert plant.get_details().groups["secret"].lag_events is None
    assert f"Group secret can't be read: {KafkaError(code).name()}" in said_of(plant)
    assert "billing" not in said_of(plant)


@pytest.mark.parametrize("code", GROUP_ERRORS)
def test_a_group_that_can_not_be_described_keeps_its_lag(code):
    plant = plant_of(SharedCluster({"billing": ORDERS, "audit": ORDERS}, described={"audit": code}))
    plant.get_topology()
    assert {name: (group.state, group.lag_events) for name, group in plant.get_details().groups.items()} == {
        "billing": ("empty", 15),
        "audit": ("unknown", 15),
    }


def unlisted(name, state, protocol_type="", error=None):
    return SimpleNamespace(id=name, state=state, protocol_type=protocol_type, error=error and KafkaError(error))


@pytest.mark.parametrize(
    "share",
    [unlisted("jobs", "Dead"), unlisted("jobs", "", error=KafkaError.GROUP_ID_NOT_FOUND)],
    ids=["older broker", "newer broker"],
)
def test_a_share_group_is_named_as_such_and_has_no_lag(share):
    others = [share, unlisted("connect-cluster", "Stable", "connect")]
    plant = plant_of(SharedCluster({"billing": ORDERS}, others=others))
    plant.get_topology()
    assert list(plant.get_details().groups) == ["billing"]
    assert "Group jobs is a share group or a Streams group (Kafka 4)." in said_of(plant)
    assert "connect-cluster" not in said_of(plant)


def test_a_share_group_that_the_options_name_is_not_read_as_a_consumer_group():
    cluster = SharedCluster({"billing": ORDERS, "jobs": KafkaError.GROUP_ID_NOT_FOUND})
    cluster.list_groups = lambda timeout: [unlisted("jobs", "Dead")]
    cluster.list_consumer_groups = lambda request_timeout: settled(SimpleNamespace(valid=[], errors=[]))
    plant = plant_of(cluster, groups="billing,jobs")
    plant.get_topology()
    assert list(plant.get_details().groups) == ["billing"]
    assert "Group jobs can't be read" not in said_of(plant)


def test_a_cluster_of_which_nothing_answers_is_silent():
    plant = plant_of(SharedCluster({"one": KafkaError._TIMED_OUT, "two": KafkaError._TRANSPORT}))
    with pytest.raises(PlantUnavailable):
        plant.get_topology()


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_topic_that_can_not_be_read_is_named_and_hides_no_group(code):
    plant = plant_of(SharedCluster({"billing": ORDERS}, topics={"payroll": code}))
    plant.get_topology()
    assert plant.get_details().groups["billing"].lag_events == 15
    assert f"Topic payroll can't be read: {KafkaError(code).name()}" in said_of(plant)


@pytest.mark.parametrize("code", [KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_partition_whose_committed_offset_can_not_be_read_is_named(code):
    committed = {**ORDERS, ("payroll", 0): KafkaError(code)}
    plant = plant_of(SharedCluster({"billing": committed}))
    plant.get_topology()
    assert plant.get_details().groups["billing"].lag_events == 15
    assert f"Group billing on topic payroll can't be read: {KafkaError(code).name()}" in said_of(plant)


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._TIMED_OUT])
def test_a_partition_whose_end_can_not_be_read_leaves_the_others_their_lag(code):
    plant = plant_of(SharedCluster({"billing": ORDERS}, partitions={("orders", 0): code}))
    plant.get_topology()
    group = plant.get_details().groups["billing"]
    assert (group.lag_events, group.at_least) == (5, True)
    assert "Partition 0 of topic orders can't be read" in said_of(plant)


def test_an_inspection_says_which_groups_can_not_be_read(monkeypatch):
    from workers.plants.foreign.kafka import kafka_plant

    monkeypatch.setattr(KafkaCluster, "_open_client", lambda self: self._client)
    shared = SharedCluster({"billing": ORDERS, "secret": DENIED})
    monkeypatch.setattr(KafkaCluster, "__init__", _with_client(shared, KafkaCluster.__init__))
    found = kafka_plant.inspect(PlantAddress(name="events", url="kafka://broker.example"))
    assert any("Group secret can't be read: GROUP_AUTHORIZATION_FAILED" in said for said in found.said)
    assert any(said.startswith("billing: 15 events") for said in found.said)


def _with_client(client, initialize):
    def begin(self, *arguments, **options):
        initialize(self, *arguments, **options)
        self._client = client

    return begin


def test_a_group_that_committed_nothing_yet_has_no_lag_and_names_the_reset_policy():
    """Kafka says -1001 for it."""
    plant = plant_of(SharedCluster({"billing": {("orders", 0): -1001, ("orders", 1): 95}}))
    plant.get_topology()
    group = plant.get_details().groups["billing"]
    assert group.lag_events == 5
    assert [row.lag_events for row in group.partitions] == [5]
    assert "reset policy" in NOT_COMMITTED
