"""A flush of a durable queue grows while its node syncs the last one; that of another queue does not."""

from concurrent.futures import Future

from queues.durability import DISK, MEMORY
from queues.events.block import EncodedBlock
from queues.publishing.client import FLUSH_BLOCKS, Publishing
from queues.topology import NodeSpec, QueueSpec, Topology
from tests.queues.samples import blocks_of


class SlowNode:
    """A client with one node, which stores the first flush only when it is told to."""

    def __init__(self, durability):
        queue = QueueSpec("orders", "jobs", {"n1": 1000}, durability=durability)
        self.topology = Topology(1, {"n1": NodeSpec("n1", "redis://127.0.0.1:1/0")}, {"orders": queue})
        self.flushes: list[list[EncodedBlock]] = []
        self.first: Future[Exception | None] = Future()

    def get_topology(self):
        return self.topology

    def choose(self, queue, count, refused=frozenset()):
        return ["n1"] * count

    def launch(self, queue, node, blocks):
        self.flushes.append(blocks)
        if len(self.flushes) == 1:
            return self.first
        stored: Future[Exception | None] = Future()
        stored.set_result(None)
        return stored

    def wait_while_throttled(self, queue): ...

    def count_stored(self, queue, published): ...

    def publish(self, number, stored_at):
        """Publish blocks; the first flush is stored when so many have been made."""

        def make():
            for place, block in enumerate(blocks_of(4 * number)):
                if place == stored_at:
                    self.first.set_result(None)
                yield block

        Publishing(self, "orders").run_blocks(make())
        return [len(flush) for flush in self.flushes]


def test_a_flush_of_a_durable_queue_grows_while_its_node_syncs_the_last_one():
    assert SlowNode(DISK).publish(160, stored_at=100)[:2] == [FLUSH_BLOCKS, 101 - FLUSH_BLOCKS]


def test_flushes_of_other_queues_keep_their_size():
    assert SlowNode(MEMORY).publish(2 * FLUSH_BLOCKS, stored_at=FLUSH_BLOCKS + 1) == [FLUSH_BLOCKS, FLUSH_BLOCKS]
