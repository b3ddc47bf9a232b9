"""Waits for new entries of containers, so that the dispatcher doesn't query all nodes at short intervals.

Each node has a connection with a blocking read of its containers. If nothing has arrived when a wait ends, the reads
continue, and a later wait returns immediately once an entry has arrived. A node that does not answer delays no wait.
"""

import selectors
import socket
import time
from collections.abc import Callable, Mapping

import redis

from queues import keys
from queues.nodes.addresses import add_login

READ_SECONDS = 1.0  # duration of a read without entries; a wait returns when it ends
TIMEOUT_SECONDS, CONNECT_SECONDS = 1.0, 0.3
RETRY_SECONDS = 1.0  # how long a node that did not answer is left out


class ArrivalWatch:
    """The blocking reads of all nodes. Not thread-safe."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._monotonic, self._sleep = monotonic, sleep
        self._clients: dict[str, redis.Redis] = {}
        self._reads: dict[str, redis.Connection] = {}
        self._retry_at: dict[str, float] = {}

    def await_entry(self, known: Mapping[str, Mapping[str, str]], seconds: float) -> bool:
        """Return True once a node has a newer entry than the known entries, or False after `seconds`.

        known: URL of the node → queue → ID of the newest known entry. It can also return True earlier.
        """
        with selectors.DefaultSelector() as selector:
            for url, after in known.items():
                if (reading := self._start_read(url, after)) is not None:
                    selector.register(reading, selectors.EVENT_READ)
            if not selector.get_map():
                self._sleep(seconds)
                return False
            return bool(selector.select(seconds))

    def _start_read(self, url: str, after: Mapping[str, str]) -> socket.socket | None:
        """Return the socket of the read of a node, and start the read unless it continues; None: no answer."""
        if self._monotonic() < self._retry_at.get(url, 0.0):
            return None
        connection = self._reads.get(url)
        try:
            if connection is None:
                connection = self._connect(url)
            elif connection.can_read(0):
                connection.read_response()
            else:
                return _get_socket(connection)
            streams = [keys.SEGMENT.build(queue) for queue in after]
            block_ms = round(READ_SECONDS * 1000)
            connection.send_command("XREAD", "COUNT", 1, "BLOCK", block_ms, "STREAMS", *streams, *after.values())
        except (redis.RedisError, OSError):
            self._retry_at[url] = self._monotonic() + RETRY_SECONDS
            self._end_read(url)
            return None
        return _get_socket(connection)

    def _connect(self, url: str) -> redis.Connection:
        timeouts = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": TIMEOUT_SECONDS}
        client = redis.Redis.from_url(add_login(url), retry=None, **timeouts)
        self._clients[url] = client
        self._reads[url] = client.connection_pool.get_connection()
        return self._reads[url]

    def _end_read(self, url: str) -> None:
        if (connection := self._reads.pop(url, None)) is not None:
            connection.disconnect()
        if (client := self._clients.pop(url, None)) is not None:
            client.close()

    def close(self) -> None:
        for url in list(self._clients):
            self._end_read(url)


def _get_socket(connection: redis.Connection) -> socket.socket | None:
    own: socket.socket | None = connection._sock  # redis-py can wait for one connection only
    return own
