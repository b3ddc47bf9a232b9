"""A Deployment follows the lag of its Kafka group, end to end.

The broker is real, the API server is a mock, and consumers read as fast as there are replicas. KEDA's ScaledObject is
paused while the loop controls the Deployment, and restored when the loop releases it.
"""

import threading
import time
from collections import deque
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.waiting import MAX_SECONDS, until
from tests.workers.loops import PARALLELISM, ensured
from tests.workers.plants.foreign.kafka.broker import tansu
from tests.workers.plants.foreign.kubernetes.cluster import DEPLOYMENTS, NAMESPACE, SCALED_OBJECTS, cluster
from workers.control import engine
from workers.models import LedgerEntry, Loop
from workers.plants.foreign.adapters import open_plant
from workers.plants.foreign.kubernetes.autoscalers import PAUSED
from workers.plants.foreign.watch import PlantWatch
from workers.plants.models import RegisteredPlant
from workers.snapshot.local import LocalPlant

pytestmark = [pytest.mark.django_db, pytest.mark.slow, pytest.mark.timeout(170)]
PER_REPLICA, LOW, HIGH, TICK_SECONDS, PARTITIONS = 60.0, 30.0, 150.0, 0.1, 6


class Shop:
    """A producer, and consumers that read PER_REPLICA events per second for each existing replica."""

    def __init__(self, broker, k8s):
        self.broker, self.k8s, self.per_second, self.ended = broker, k8s, HIGH, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        reader = Consumer({"bootstrap.servers": self.broker.address, "group.id": "billing", "log_level": 0})
        due, budget, tick, last = 0.0, 0.0, 0, time.monotonic()
        waiting, committed = (deque(), [0] * PARTITIONS)  # (partition, events): each tick has events of one partition
        while not self.ended.wait(TICK_SECONDS):
            now = time.monotonic()
            elapsed, last = now - last, now
            due += elapsed * self.per_second
            tick, count = tick + 1, int(due)
            self.broker.publish("orders", count, tick % PARTITIONS)
            waiting.append((tick % PARTITIONS, count))
            due -= count
            self.k8s.settle()
            replicas = self.k8s.get(DEPLOYMENTS, "worker")["status"]["replicas"]
            budget = min(budget + elapsed * PER_REPLICA * replicas, float(sum(each for _, each in waiting)))
            while waiting and waiting[0][1] <= budget:
                partition, count = waiting.popleft()
                committed[partition] += count
                budget -= count
            offsets = [TopicPartition("orders", each, at) for each, at in enumerate(committed)]
            reader.commit(offsets=offsets, asynchronous=False)
        reader.close()

    def close(self):
        self.ended.set()
        self.thread.join(MAX_SECONDS)


def test_a_deployment_gets_the_replicas_that_its_groups_lag_asks_for_and_keda_waits_meanwhile(control, plant_topology):
    with ExitStack() as stack:
        broker, k8s = stack.enter_context(tansu()), stack.enter_context(cluster())
        broker.create("orders", PARTITIONS)
        k8s.deployment("worker", 1)
        k8s.scaled_object("worker")
        options = {"namespace": NAMESPACE, "workloads": "worker", "maximum": "6", "lag": "worker=events/billing"}
        RegisteredPlant.objects.create(name="events", kind="kafka", url=broker.url)
        RegisteredPlant.objects.create(name="shop", kind="kubernetes", url=k8s.url, options=options)
        shop = Shop(broker, k8s)
        stack.callback(shop.close)
        watch = PlantWatch(observe_seconds=1.0)
        stack.callback(watch.close)
        plant = LocalPlant(control, others=watch)
        plant.observe()
        ensured(control, PARALLELISM)
        assert not Loop.objects.filter(name__endswith="plant:events").exists()  # nothing can be set there
        loop = Loop.objects.get(name="parallelism_queueing/plant:shop")
        loop.mode = Loop.Mode.AUTO
        loop.parameters = {"bound_seconds": 5.0, "maximum": 6, "only_changes": True}
        loop.interval_seconds, loop.guard = 2.0, {"cooldown_seconds": 10.0}
        loop.save()

        def ticked(replicas):
            engine.tick(Loop.objects.get(pk=loop.pk), plant, datetime.now(UTC), control)
            return replicas(k8s.get(DEPLOYMENTS, "worker")["spec"]["replicas"])

        until(lambda: ticked(lambda count: count >= 3), 60.0, 2.0)  # 150 per second need 2.5
        assert k8s.annotations(SCALED_OBJECTS, "keda-worker")[PAUSED] == "true"
        until(lambda: plant.observe().plants["events"].groups["billing"].lag_seconds < 2.0, 40.0, 1.0)
        shop.per_second = LOW
        until(lambda: ticked(lambda count: count == 1), 60.0, 2.0)
        with open_plant("shop", plant, "chief") as elastic:
            elastic.release()
        assert k8s.annotations(SCALED_OBJECTS, "keda-worker") == {}
    acted = LedgerEntry.objects.filter(loop=loop, applied=True).order_by("id")
    assert all(entry.error == "" for entry in acted)
