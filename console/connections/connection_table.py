"""The open connections of a web process, within its limits and deadlines.

| limit | what happens |
|---|---|
| a request head takes longer than MAX_HEAD_SECONDS | the server answers 408 and closes the connection |
| a closed connection keeps its last bytes for longer than MAX_CLOSING_SECONDS | the server resets it |
| an address, or the process, has its maximum of connections | see below |

A new connection at a limit takes the place of the connection that has waited longest for the rest of its request, of
the same address or, for the limit of the process, of the address that has the most of these. If every connection is
being answered, the server resets the new one. Trusted proxies bring many clients, so only the limit of the process
holds for them, and their connections are never replaced.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from console.connections.client_addresses import Network, is_within, normalize_address

MAX_HEAD_SECONDS = 10.0
MAX_CLOSING_SECONDS = 30.0
SWEEP_SECONDS = 1.0
# Files that a process needs besides its connections: databases, servers, logs, and connections being accepted.
RESERVED_FILES = 256
MIN_CONNECTIONS = 64


def compute_connection_limit(wanted: int, open_files: int) -> int:
    """Return how many connections fit below the limit of open files."""
    return max(MIN_CONNECTIONS, min(wanted, open_files - RESERVED_FILES))


@dataclass(eq=False)
class Connection:
    """An open connection. expire: answers 408 and closes it."""

    transport: asyncio.Transport
    address: str
    is_limited: bool
    expire: Callable[[], None]
    head_since: float | None = None
    closing_since: float | None = None


class ConnectionTable:
    """The connections of one process. clock: seconds that never jump."""

    def __init__(
        self, max_connections: int, max_per_address: int, trusted: Sequence[Network], clock: Callable[[], float]
    ) -> None:
        self.max_connections, self.max_per_address = max_connections, max_per_address
        self._trusted, self._clock = tuple(trusted), clock
        self._connections: dict[asyncio.Transport, Connection] = {}
        self._counts: Counter[str] = Counter()
        # Of each address, the connections whose request is not whole: the longest waiting first.
        self._waiting: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, transport: asyncio.Transport, peer: str, expire: Callable[[], None]) -> None:
        """Add a new connection, or reset it where a limit leaves no room."""
        counted = normalize_address(peer)
        is_limited = bool(counted) and not is_within(peer, self._trusted)
        connection = Connection(transport, counted, is_limited, expire)
        if not self._make_room(connection):
            transport.abort()
            return
        self._connections[transport] = connection
        self._counts[counted] += 1
        self._wait_for_head(connection)

    def record_awaited_head(self, transport: asyncio.Transport) -> None:
        """Note that a connection waits for its next request."""
        if (connection := self._connections.get(transport)) is not None:
            self._stop_waiting(connection)
            self._wait_for_head(connection)

    def record_received_head(self, transport: asyncio.Transport) -> None:
        """Note that a request's head is whole: its body has a deadline of its own (BodyLimit)."""
        if (connection := self._connections.get(transport)) is not None:
            connection.head_since = None

    def request_received(self, transport: asyncio.Transport) -> None:
        """Note that a request is whole, and is being answered."""
        if (connection := self._connections.get(transport)) is not None:
            connection.head_since = None
            self._stop_waiting(connection)

    def leave(self, transport: asyncio.Transport) -> None:
        """Remove a connection that has ended."""
        connection = self._connections.pop(transport, None)
        if connection is None:
            return
        self._stop_waiting(connection)
        self._counts[connection.address] -= 1
        if not self._counts[connection.address]:
            del self._counts[connection.address]

    def sweep(self) -> None:
        """Close the connections whose deadline has passed."""
        now = self._clock()
        for connection in tuple(self._connections.values()):
            if connection.transport.is_closing():
                if connection.closing_since is None:
                    connection.closing_since = now
                elif now - connection.closing_since > MAX_CLOSING_SECONDS:
                    connection.transport.abort()
            elif connection.head_since is not None and now - connection.head_since > MAX_HEAD_SECONDS:
                connection.head_since = None
                connection.expire()

    def _make_room(self, connection: Connection) -> bool:
        """Return whether there is room for one more connection, replacing one if necessary."""
        if connection.is_limited and self._counts[connection.address] >= self.max_per_address:
            return self._replace(self._waiting.get(connection.address))
        if len(self._connections) < self.max_connections:
            return True
        return self._replace(max(self._waiting.values(), key=len, default=None))

    def _replace(self, waiting: dict[Connection, None] | None) -> bool:
        if not waiting:
            return False
        longest = next(iter(waiting))
        self.leave(longest.transport)
        longest.transport.abort()
        return True

    def _wait_for_head(self, connection: Connection) -> None:
        connection.head_since = self._clock()
        if connection.is_limited:
            self._waiting.setdefault(connection.address, {})[connection] = None

    def _stop_waiting(self, connection: Connection) -> None:
        waiting = self._waiting.get(connection.address)
        if waiting is not None and connection in waiting:
            del waiting[connection]
            if not waiting:
                del self._waiting[connection.address]
