"""A Kafka cluster leads Weir to no address that the egress policy refuses, whatever broker it names."""

import gc
import socket
from contextlib import closing

import pytest

from tests.waiting import until
from tests.workers.plants.foreign.kafka.broker import advertising
from workers.plants.foreign.kafka import checked_client
from workers.plants.foreign.kafka.cluster import KafkaCluster
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.foreign.kind import PlantAddress
from workers.plants.plant import PlantUnavailable

READS = 3


class Victim:
    """A server of this host that nobody may be led to; it counts who connects."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0))
        self._server.setblocking(False)
        self.port = self._server.getsockname()[1]

    def connections(self) -> int:
        count = 0
        while True:
            try:
                self._server.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def victim():
    with closing(Victim("127.0.0.2")) as server:
        yield server


@pytest.fixture
def plant(victim, settings, monkeypatch):
    """Of a cluster at an allowed address that names a broker at a refused one."""
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "1")
    settings.WEIR_EGRESS_ALLOW = "127.0.0.1/32"
    with advertising(f"127.0.0.2:{victim.port}") as address:
        plant = KafkaPlant(PlantAddress(name="events", url=f"kafka://{address}"))
        with closing(plant):
            yield plant


def test_a_listed_broker_at_a_refused_address_is_named_and_never_dialed(plant, victim):
    for _ in range(READS):
        with pytest.raises(PlantUnavailable) as refused:
            plant.get_topology()
        assert f"127.0.0.2:{victim.port}" in str(refused.value)
        assert "WEIR_EGRESS_ALLOW" in str(refused.value)
    assert victim.connections() == 0


def test_the_library_dials_no_refused_broker_even_where_metadata_was_not_judged(plant, victim, monkeypatch):
    """As when a coordinator is named that the metadata did not list."""
    monkeypatch.setattr(KafkaCluster, "_check_brokers", lambda *said: None)
    for _ in range(READS):
        with pytest.raises(PlantUnavailable) as refused:
            plant.get_topology()
    assert f"127.0.0.2:{victim.port}" in str(refused.value) and "WEIR_EGRESS_ALLOW" in str(refused.value)
    assert victim.connections() == 0


def test_a_listed_broker_at_an_allowed_address_is_dialed(plant, victim, settings):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    with pytest.raises(PlantUnavailable):
        plant.get_topology()
    until(lambda: victim.connections() > 0)


def test_a_listed_broker_that_a_bound_secret_may_not_reach_is_never_dialed(plant, victim, settings, monkeypatch):
    settings.WEIR_EGRESS_ALLOW = "127.0.0.0/8"
    monkeypatch.setenv("WEIR_SECRET_KAFKA_HOSTS", "127.0.0.1")
    bound = PlantAddress(name="events", url=plant._cluster._address.url, secret_name="WEIR_SECRET_KAFKA")
    with closing(KafkaPlant(bound)) as other:
        with pytest.raises(PlantUnavailable, match="WEIR_SECRET_KAFKA"):
            other.get_topology()
        monkeypatch.setattr(KafkaCluster, "_check_brokers", lambda *said: None)
        with pytest.raises(PlantUnavailable, match="WEIR_SECRET_KAFKA"):
            other.get_topology()
    assert victim.connections() == 0


def test_a_policy_that_was_tightened_holds_for_the_next_connection(settings, monkeypatch):
    monkeypatch.setenv("WEIR_PLANT_TIMEOUT_SECONDS", "1")
    victim = Victim("127.0.0.1")
    with closing(victim), closing(KafkaCluster(PlantAddress(name="e", url="kafka://x"))) as cluster:
        made = {"bootstrap.servers": f"127.0.0.1:{victim.port}", "log_level": 0}
        cluster._client = checked_client.create_checked_client(made, cluster._check_connection)
        until(lambda: _dialed(cluster, victim))
        settings.WEIR_EGRESS_ALLOW = ""
        until(lambda: checked_client.list_refused_connections(cluster._client))
        victim.connections()  # those of before
        with pytest.raises(PlantUnavailable, match="WEIR_EGRESS_ALLOW"):
            cluster._read_topics()
        assert victim.connections() == 0


def _dialed(cluster: KafkaCluster, victim: Victim) -> bool:
    with pytest.raises(PlantUnavailable):
        cluster._read_topics()
    return victim.connections() > 0


def test_a_client_that_ended_leaves_nothing_behind():
    gc.collect()  # clients of earlier tests
    before = len(checked_client._checked)
    client = checked_client.create_checked_client({"bootstrap.servers": "127.0.0.1:1"}, lambda *said: None)
    assert len(checked_client._checked) == before + 1
    del client
    gc.collect()
    assert len(checked_client._checked) == before


@pytest.mark.parametrize("failing", [ValueError("a bug"), OSError("refused")])
def test_a_check_that_fails_lets_nothing_through(failing):
    def check(*said: object) -> None:
        raise failing

    connections = checked_client.RefusedConnections(check)
    assert not connections.allows("b:9092", "127.0.0.1", 9092)
    assert connections.reasons == {"b:9092": str(failing)}
