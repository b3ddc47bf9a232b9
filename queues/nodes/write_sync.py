"""Sets a node's server so that it syncs each write before it replies, while a durable queue has a container there.

A server that Weir starts doesn't sync its file, since `queues.nodes.file_sync` does so every second. With `appendfsync
always`, it syncs once for all writes of one turn of its loop, and replies afterwards. During a rewrite of its file, it
must sync, too.
"""

from collections.abc import Iterable
from typing import Any

import redis

from common.errors import BadInput
from queues.durability import DURABILITIES
from queues.nodes.addresses import add_login
from queues.topology import NodeSpec, QueueSpec

SYNCED = {"appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
APPEND_ONLY = "appendonly"
CHECK_TIMEOUT_SECONDS = 1.0


class WriteSync:
    """The settings of one server, and those that it had before Weir changed them."""

    def __init__(self) -> None:
        self._former: dict[str, str] = {}

    def align(self, node: redis.Redis, queues: Iterable[QueueSpec]) -> str:
        """Set the server for the queues with a container on the node; return why it can't sync, or "".

        Restores the former settings when the last durable queue is gone. Raises redis-py's errors.
        """
        durable = sorted(queue.name for queue in queues if queue.waits_for_disk)
        if not durable:
            if self._former:
                _configure(node, self._former)
                self._former = {}
            return ""
        current: Any = node.config_get(APPEND_ONLY, *SYNCED)
        if current.get(APPEND_ONLY) != "yes":
            return f"the server keeps no append-only file, which durable queues need ({', '.join(durable)})"
        wrong = {name: current.get(name, "") for name, value in SYNCED.items() if current.get(name) != value}
        if wrong:
            _configure(node, {name: SYNCED[name] for name in wrong})
            self._former = {**wrong, **self._former}
        return ""


def check_nodes(durability: str, nodes: Iterable[NodeSpec]) -> None:
    """Raise `BadInput` if a queue can't have this durability, as a node has no append-only file or no replica.

    Skips nodes that don't respond: such a node acknowledges nothing until it syncs its writes.
    """
    required = DURABILITIES[durability]
    for spec in nodes if required.waits else ():
        if required.replicas and not spec.replica_url:
            raise BadInput(
                "durability",
                f"can't be {durability}: node {spec.name} has no replica. Name one in WEIR_NODE_REPLICAS and run "
                "manage.py seed, or move the queue's points off the node.",
            )
        if _has_append_only_file(spec.url) is False:
            raise BadInput(
                "durability",
                f"can't be {durability}: the server of node {spec.name} keeps no append-only file. Start it with "
                "`appendonly yes`, or move the queue's points off the node.",
            )


def _has_append_only_file(url: str) -> bool | None:
    """Return whether a server keeps an append-only file; None if it does not respond."""
    options = {"socket_timeout": CHECK_TIMEOUT_SECONDS, "socket_connect_timeout": CHECK_TIMEOUT_SECONDS}
    with redis.Redis.from_url(add_login(url), retry=None, **options) as node:
        try:
            return bool(node.info("persistence")["aof_enabled"])
        except (redis.RedisError, OSError):
            return None


def _configure(node: redis.Redis, settings: dict[str, str]) -> None:
    first, *others = [part for pair in settings.items() for part in pair]
    node.config_set(first, *others)
