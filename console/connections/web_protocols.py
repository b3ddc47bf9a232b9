"""uvicorn's protocols, with the deadlines and limits of `ConnectionTable` and a maximum size of a head.

uvicorn itself waits for the rest of a request head without a limit, accepts any number of connections, and reads a head
of any size.
"""

import asyncio
import resource
import time
from functools import cache
from typing import Any

from django.conf import settings
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from console.connections.connection_table import SWEEP_SECONDS, ConnectionTable, compute_connection_limit

MAX_HEAD_BYTES = 64 * 1024
BODY_HEADERS = (b"content-length", b"transfer-encoding")
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@cache
def get_connection_table() -> ConnectionTable:
    """Return this process's connections, with the limits of its settings."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ConnectionTable(
        compute_connection_limit(settings.WEIR_CONNECTIONS, open_files),
        settings.WEIR_CONNECTIONS_PER_ADDRESS,
        settings.WEIR_TRUSTED_PROXIES,
        time.monotonic,
    )


class _Sweeps:
    """Sweeps the table each SWEEP_SECONDS while it has connections."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start, unless sweeps are already running."""
        if self._timer is None:
            self._timer = loop.call_later(SWEEP_SECONDS, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        table = get_connection_table()
        table.sweep()
        if len(table):
            self.begin(loop)


SWEEPS = _Sweeps()  # of this process


class HttpProtocol(HttpToolsProtocol):
    """An HTTP connection of the web process."""

    head_bytes = 0  # bytes of an incomplete head
    parsed_bytes = 0  # of the head that was parsed last, or is being parsed
    has_head = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        get_connection_table().enter(self.transport, self.client[0] if self.client else "", self.expire)
        SWEEPS.begin(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        get_connection_table().leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.has_head:
            self.head_bytes += len(data)
        super().data_received(data)
        if not self.has_head and self.head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response(f"The request head must have at most {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.has_head, self.parsed_bytes = False, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Accept a header.

        Headers after a chunked body ("trailers") are dropped: proxies, lines, and limits have judged the request by its
        head.
        """
        if self.has_head:
            return
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """Accept a complete head.

        At any Upgrade the parser stops, and would take the body for the next request, which no proxy has seen. Such a
        request therefore has no body, and unless it becomes a websocket it is the last one of its connection. Raises
        `ValueError`.
        """
        self.has_head, self.head_bytes = True, 0
        is_upgrade = self.parser.should_upgrade()
        if is_upgrade and any(name in BODY_HEADERS and value != b"0" for name, value in self.headers):
            raise ValueError("a request with an Upgrade header must not have a body")
        get_connection_table().record_received_head(self.transport)
        super().on_headers_complete()
        if is_upgrade and not self._should_upgrade():
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.has_head = False
        if self.cycle is not None and not self.cycle.response_complete:
            get_connection_table().request_received(self.transport)

    def on_response_complete(self) -> None:
        is_next_queued = bool(self.pipeline)
        super().on_response_complete()
        if not is_next_queued:
            get_connection_table().record_awaited_head(self.transport)

    def handle_websocket_upgrade(self) -> None:
        get_connection_table().record_awaited_head(self.transport)  # the handshake has the same deadline
        super().handle_websocket_upgrade()

    def expire(self) -> None:
        """Close a connection whose request head is late."""
        if self.head_bytes:
            self.transport.write(LATE)
        self.transport.close()

    def _count(self, size_bytes: int) -> None:
        """Count bytes of a head. Raises `ValueError`, for which uvicorn answers 400."""
        self.parsed_bytes += size_bytes
        if self.parsed_bytes > MAX_HEAD_BYTES:
            raise ValueError("the request head is too large")


class SocketProtocol(WebSocketsSansIOProtocol):
    """A websocket, which keeps the place of its HTTP connection."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.accept":
            get_connection_table().request_received(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        get_connection_table().leave(self.transport)
        super().connection_lost(exc)
