"""Pairs of servers: a node's primary and its replica, which the topology names.

Each server of a pair starts as a replica of the other one (`replicaof` in its configuration). Two replicas of each
other copy nothing, so a server that comes back empty never overwrites the other one. `ReplicaPair` then makes that
server the primary which the topology names, if it has everything that the node has acknowledged to durable queues:

- The mark, a key on the server, counts the promotions of the node. A new primary raises it, and its replica copies it.
- A server without a mark has lost its disk. It waits until the other one is the primary.
- A server with an older mark was replaced. It becomes a replica, and its data is discarded.

A primary that was replaced, and doesn't know it yet, acknowledges nothing to durable queues, since no
replica follows it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis

from queues import keys
from queues.nodes.addresses import add_login
from queues.nodes.write_sync import WriteSync
from queues.topology import NodeSpec, QueueSpec

TIMEOUT_SECONDS = 1.0
DEFAULT_PORT = 6379
LOST_DATA = "the primary has lost its data, which its replica has"
PRIMARY, CONNECTED = b"master", b"connected"


@dataclass(frozen=True)
class PairedServer:
    """The role of a server in a pair. promotions: of its mark, if any; follows: (host, port) of its primary."""

    is_primary: bool
    promotions: int | None
    is_empty: bool
    follows: tuple[str, int] | None
    is_in_sync: bool


class ReplicaPair:
    """The servers of one node. Use it from one thread."""

    def __init__(self) -> None:
        self._write_sync = WriteSync()

    def align(self, spec: NodeSpec, queues: Iterable[QueueSpec]) -> str:
        """Make the servers what the topology says; return why the node isn't replicated now, or "".

        Several processes may do this at the same time.
        """
        with _connect(spec.url) as primary, _connect(spec.replica_url) as replica:
            role, other = _read_role(primary), _read_role(replica)
            if role is None:
                return "the primary is not responding"
            is_current = role.is_primary and role.promotions == spec.promotions
            if not is_current and (problem := _find_obstacle(spec, role, other)):
                return problem
            if not is_current:
                _make_primary(primary, spec.promotions)
            if other is None:
                return "the replica is not responding"
            if other.is_primary and other.promotions is None and not other.is_empty:
                return "the replica has data of another system, so empty it, or correct its address"
            problem = ""
            if other.follows != _parse_place(spec.url):
                problem = _make_replica(replica, spec)
            problem = problem or self._write_sync.align(replica, queues)
            return problem or ("" if other.is_in_sync else "the replica is copying the data of its primary")


def can_replace_primary(spec: NodeSpec) -> bool:
    """Return whether the replica has everything that the node has acknowledged to durable queues.

    A replica that copies the data of its primary keeps its own, with its own mark, until the copy is complete.
    """
    with _connect(spec.replica_url) as replica:
        role = _read_role(replica)
        return role is not None and not role.is_primary and role.promotions == spec.promotions


def _find_obstacle(spec: NodeSpec, role: PairedServer, other: PairedServer | None) -> str:
    """Return why a server must not become the primary of its node, or ""."""
    if role.promotions is not None:
        # One less, if it was promoted and has not raised its mark yet.
        is_newest = role.promotions >= spec.promotions - 1
        return "" if is_newest else "the primary was replaced, and has not copied the data of the new one"
    if other is None:
        return "the primary has no data of this pair, and the replica is not responding"
    return "" if other.promotions is None else LOST_DATA


def _make_primary(server: redis.Redis, promotions: int) -> None:
    """Make a server the primary, and set its mark.

    Both commands are in one packet, so that the mark precedes the writes of clients. A replica accepts no write in a
    transaction.
    """
    with server.pipeline(transaction=False) as pipe:
        pipe.execute_command("REPLICAOF", "NO", "ONE")
        pipe.set(keys.PROMOTIONS, promotions)
        pipe.execute()


def _make_replica(server: redis.Redis, spec: NodeSpec) -> str:
    """Make a server the replica of its node's primary; return why it can't be, or "". Its data is discarded.

    A server that was promoted in the meantime stays a primary: the caller's topology is old.
    """
    with server.pipeline(transaction=True) as pipe:
        pipe.watch(keys.PROMOTIONS)
        mark: Any = pipe.get(keys.PROMOTIONS)
        if mark is not None and int(mark) > spec.promotions:
            return "the replica was promoted in the meantime"
        pipe.multi()
        pipe.execute_command("REPLICAOF", *_parse_place(spec.url))
        try:
            pipe.execute()
        except redis.WatchError:
            return "the replica was promoted in the meantime"
    return ""


def _read_role(server: redis.Redis) -> PairedServer | None:
    """Return the role of a server; None if it does not respond."""
    try:
        kind, *rest = server.role()
        mark: Any = server.get(keys.PROMOTIONS)
        is_primary = kind == PRIMARY
        return PairedServer(
            is_primary=is_primary,
            promotions=None if mark is None else int(mark),
            is_empty=server.dbsize() == 0,
            follows=None if is_primary else (rest[0].decode(), int(rest[1])),
            is_in_sync=not is_primary and rest[2] == CONNECTED,
        )
    except (redis.RedisError, OSError):
        return None


def _parse_place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or DEFAULT_PORT


@contextmanager
def _connect(url: str) -> Iterator[redis.Redis]:
    timeouts = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
    with redis.Redis.from_url(add_login(url), retry=None, **timeouts) as server:
        yield server
