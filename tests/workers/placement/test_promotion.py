"""A node that stays away gets its replica as its primary: once for each loss, and by the newest recovery only."""

import pytest

from queues.models import Node, Queue, TopologyRevision
from workers.placement import promotion, recovery

pytestmark = pytest.mark.django_db
REPLICA = "redis://127.0.0.1:1/0"


class RecordedPair:
    """Records for which URL servers were aligned."""

    aligned: list[str] = []

    def align(self, spec, queues):
        self.aligned.append(spec.url)
        return ""


@pytest.fixture
def plant(plant, monkeypatch):
    """A plant whose node n3 has a replica that is complete."""
    plant.pass_seconds(2)
    RecordedPair.aligned = []
    monkeypatch.setattr(promotion, "can_replace_primary", lambda spec: True)
    monkeypatch.setattr(promotion, "ReplicaPair", RecordedPair)
    Node.objects.filter(name="n3").update(replica_url=REPLICA)
    Queue.objects.filter(name="alert").update(durability="replicated")
    yield plant
    for server in plant.servers.values():  # which other tests use, too
        server.client().config_set("appendfsync", "no", "no-appendfsync-on-rewrite", "yes")


def recover(plant, seconds):
    for _ in range(seconds):
        snapshot = plant.pass_seconds(1, silent=("n3",))
        recovery.recover(plant.control, snapshot, plant.now)


def test_a_node_that_is_away_for_less_than_ten_seconds_keeps_its_primary(plant):
    recover(plant, 8)
    assert Node.objects.get(name="n3").promotions == 0


def test_the_replica_of_a_lost_node_becomes_its_primary_once(plant):
    url = Node.objects.get(name="n3").url
    recover(plant, 20)
    spec = plant.topology().nodes["n3"]
    assert (spec.url, spec.replica_url, spec.promotions) == (REPLICA, url, 1)
    assert set(RecordedPair.aligned) == {REPLICA}


def test_a_node_without_durable_queues_keeps_its_primary_with_its_newest_events(plant):
    Queue.objects.update(durability="memory")
    recover(plant, 20)
    assert Node.objects.get(name="n3").promotions == 0


def test_a_replica_that_lacks_events_is_not_promoted(plant, monkeypatch):
    monkeypatch.setattr(promotion, "can_replace_primary", lambda spec: False)
    recover(plant, 20)
    assert Node.objects.get(name="n3").promotions == 0


def test_a_recovery_that_was_overtaken_promotes_nothing(plant):
    TopologyRevision.objects.update(recovery_fence=9)
    assert promotion.promote_replicas({"n3"}, plant.control, plant.now, 8) == []
    assert Node.objects.get(name="n3").promotions == 0
