"""The durability of a queue: where its events are stored when a publish is acknowledged.

| durability | acknowledged when | lost if a host loses power |
|---|---|---|
| memory | the server has written the events to its file | up to about one second of acknowledged events |
| disk | the server has synced its file to its disk | nothing |
| replicated | in addition, the node's replica has synced its own file | nothing, even if one of the two disks is lost |

Everything else that must not be lost waits in the same way: a block or dead letter that moves to another node is
removed from the first node only when the second node has stored it with the queue's durability. The reasons are in
docs/understand/decisions/0025-durability-per-queue.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MEMORY, DISK, REPLICATED = "memory", "disk", "replicated"


@dataclass(frozen=True)
class Durability:
    """A durability with its promise and its price, as people read them.

    disks, replicas: how many local disks and replicas must have a write before it is acknowledged.
    """

    name: str
    disks: int
    replicas: int
    promise: str
    price: str

    @property
    def waits(self) -> bool:
        """Return whether a write is acknowledged only after a sync."""
        return self.disks > 0


DURABILITIES: Mapping[str, Durability] = {
    durability.name: durability
    for durability in (
        Durability(
            MEMORY,
            0,
            0,
            "Acknowledged when the node's server has the events. A power failure can lose the last two seconds.",
            "The highest rate.",
        ),
        Durability(
            DISK,
            1,
            0,
            "Acknowledged when the events are on the node's disk. A power failure loses no events.",
            "Each flush waits for the disk, and so do the other queues of its nodes.",
        ),
        Durability(
            REPLICATED,
            1,
            1,
            "Acknowledged when the events are on the disks of the node and its replica. A lost disk loses no events.",
            "Each flush waits for two disks and the network. Each node needs a replica on another host.",
        ),
    )
}
NAMES = tuple(DURABILITIES)
SUMMARY = "Where events are stored when a publish is acknowledged."


def get_durability_on_node(durability: str, has_replica: bool) -> str:
    """Return the durability of a queue on a node.

    The replica of a node may become its primary, and would not have what only the node's own disk has.
    """
    return REPLICATED if has_replica and DURABILITIES[durability].waits else durability
