"""A flush: all blocks for one node in one MULTI, written straight to the socket.

The protocol is encoded here, not by the general client: a big payload then goes from Arrow's buffer to the socket
without a copy, and the small pieces around it are joined.
"""

from collections.abc import Sequence
from typing import Any

import redis

from queues import keys
from queues.events.block import EncodedBlock

JOIN_BELOW_BYTES = 16_384
_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


class Flush:
    """The commands of one flush: MULTI, one XADD per block, three HINCRBY, EXEC."""

    def __init__(self, queue: str, blocks: Sequence[EncodedBlock]) -> None:
        self.blocks = blocks
        self._stream = _encode_bulk_string(keys.SEGMENT.build(queue).encode())
        self._counters = _encode_bulk_string(keys.COUNTERS.build(queue).encode())

    def build_pieces(self) -> list[Any]:
        """Return the bytes to send, in order."""
        pieces: list[Any] = []
        pending = bytearray(_MULTI)
        head = b"*11\r\n$4\r\nXADD\r\n" + self._stream + b"$1\r\n*\r\n$1\r\ni\r\n"
        for block in self.blocks:
            size = len(block.data)
            pending += (
                head
                + _encode_bulk_string(block.block_id.encode())
                + b"$1\r\nn\r\n"
                + _encode_bulk_string(b"%d" % block.events)
            )
            pending += b"$1\r\nt\r\n" + _encode_bulk_string(b"%d" % block.newest_time_us) + b"$1\r\nd\r\n$%d\r\n" % size
            if size < JOIN_BELOW_BYTES:
                pending += block.data
            else:
                pieces += (bytes(pending), block.data)
                pending = bytearray()
            pending += b"\r\n"
        pieces.append(bytes(pending + self._encode_counts() + _EXEC))
        return pieces

    def send(self, node: redis.Redis) -> None:
        """Send it and read every reply.

        Raises redis-py's errors; all except a rejection drop the connection.
        """
        connection: Any = node.connection_pool.get_connection()  # redis-py types nothing below the client
        try:
            connection.send_packed_command(self.build_pieces(), check_health=False)
            self._read(connection)
        except redis.ResponseError:
            raise
        except BaseException:
            # A reply may still be under way: no other caller may read it as its own.
            connection.disconnect()
            raise
        finally:
            node.connection_pool.release(connection)

    def _read(self, connection: Any) -> None:
        """Read the replies: +OK, a +QUEUED (or a rejection) for each command, and the results."""
        refusal: redis.ResponseError | None = None
        for _ in range(len(self.blocks) + 5):
            try:
                reply = connection.read_response()
            except redis.ResponseError as error:
                # The first rejection says why; EXEC's own error only says that there was one.
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        for part in reply:
            if isinstance(part, Exception):
                raise part

    def _encode_counts(self) -> bytes:
        added = {
            b"inserted_events": sum(block.events for block in self.blocks),
            b"inserted_blocks": len(self.blocks),
            b"inserted_bytes": sum(len(block.data) for block in self.blocks),
        }
        head = b"*4\r\n$7\r\nHINCRBY\r\n" + self._counters
        return b"".join(
            head + _encode_bulk_string(name) + _encode_bulk_string(b"%d" % count) for name, count in added.items()
        )


def _encode_bulk_string(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)
