"""The types of Redis replies in Weir: bytes.

redis-py's own types allow text as well, which only a connection with `decode_responses` gets.
"""

from collections.abc import Sequence
from typing import Protocol, cast

import redis

Fields = dict[bytes, bytes]
"""A hash, or the fields of a stream's entry."""

Entries = list[tuple[bytes, Fields]]
"""A range of a stream: the id and the fields of each entry."""

Key = str | bytes


class BytesClient(Protocol):
    """The reading commands of a client whose replies are bytes."""

    def get(self, name: Key) -> bytes | None: ...
    def mget(self, keys: Key | Sequence[Key], *args: Key) -> list[bytes | None]: ...
    def getrange(self, key: Key, start: int, end: int) -> bytes: ...
    def hget(self, name: Key, key: Key) -> bytes | None: ...
    def hgetall(self, name: Key) -> Fields: ...
    def hkeys(self, name: Key) -> list[bytes]: ...
    def hmget(self, name: Key, keys: Sequence[Key]) -> list[bytes | None]: ...
    def hvals(self, name: Key) -> list[bytes]: ...
    def smembers(self, name: Key) -> set[bytes]: ...
    def xrange(self, name: Key, min: Key = "-", max: Key = "+", count: int | None = None) -> Entries: ...
    def xrevrange(self, name: Key, max: Key = "+", min: Key = "-", count: int | None = None) -> Entries: ...


def expect_bytes(client: redis.Redis) -> BytesClient:
    """Return the same client, with the types of its replies: `expect_bytes(control).hgetall(key)`."""
    return cast(BytesClient, client)
