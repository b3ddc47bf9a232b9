"""A message to sockets, encoded once for all of them, and only in the requested forms."""

import zlib
from functools import cached_property
from typing import Any

import orjson

LEVEL = 4  # beyond it a large patch takes twice the time for a few percent


class LiveMessage:
    """A message in JSON, as text or compressed.

    The compressed form is the same bytes in zlib's format (the browser's "deflate"), a fifth as long.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._encoded = orjson.dumps(document)

    @cached_property
    def text(self) -> str:
        return self._encoded.decode()

    @cached_property
    def packed(self) -> bytes:
        return zlib.compress(self._encoded, LEVEL)
