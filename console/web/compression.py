"""Answers compressed with gzip, each as one member, even streams.

Django's own middleware makes a member of every piece of an asynchronous stream; gzip(1) and httpx read them all,
browsers only the first, so that a download ended after its header. Here a stream is one member, flushed after each
piece, so that each piece is sent at once.

A length must not reveal a secret (BREACH): the header has a file name of random length, as Django's does.
"""

import asyncio
import secrets
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers

MAX_PADDING_BYTES = 100
# From this size on a piece is compressed outside of the event loop.
LARGE_BYTES = 64 * 1024
_MAGIC, _DEFLATE, _FILE_NAME, _UNKNOWN_SYSTEM = b"\x1f\x8b", b"\x08", b"\x08", b"\xff"


class Member:
    """One gzip member (RFC 1952), made piece by piece: `begin`, `add` …, `end`."""

    def __init__(self, padding: str = "") -> None:
        self._padding = padding.encode("ascii")
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._checksum = self._bytes = 0

    def begin(self) -> bytes:
        no_time, no_level = bytes(4), bytes(1)
        fixed = _MAGIC + _DEFLATE + _FILE_NAME + no_time + no_level + _UNKNOWN_SYSTEM
        return fixed + self._padding + b"\0"

    def add(self, piece: bytes) -> bytes:
        """Return the piece completely compressed: a reader can decompress it at once."""
        self._checksum = zlib.crc32(piece, self._checksum)
        self._bytes += len(piece)
        return self._deflate.compress(piece) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        size = self._bytes & 0xFFFFFFFF
        return self._deflate.flush() + self._checksum.to_bytes(4, "little") + size.to_bytes(4, "little")


class OneMember(GZipMiddleware):
    """Replaces Django's GZipMiddleware, but handles complete answers in the same way."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not isinstance(response, StreamingHttpResponse):
            return super().process_response(request, response)
        if response.has_header("Content-Encoding"):
            return response
        patch_vary_headers(response, ("Accept-Encoding",))
        if not takes_gzip(request.headers.get("Accept-Encoding", "")):
            return response
        member = Member(build_padding(secrets.randbelow(MAX_PADDING_BYTES) + 1))
        pieces: Any = response.streaming_content
        response.streaming_content = (
            _compress_pieces(pieces, member) if response.is_async else _synchronous(pieces, member)
        )
        del response.headers["Content-Length"]
        response.headers["Content-Encoding"] = "gzip"
        return response


def takes_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding permits gzip (`gzip;q=0` does not)."""
    for part in accepted.split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() in ("gzip", "x-gzip"):
            return weight.replace(" ", "").rstrip("0.") not in ("q=",)
    return False


def build_padding(characters: int) -> str:
    return secrets.token_hex((characters + 1) // 2)[:characters]


def _synchronous(pieces: Iterator[bytes], member: Member) -> Iterator[bytes]:
    yield member.begin()
    for piece in pieces:
        yield member.add(piece)
    yield member.end()


async def _compress_pieces(pieces: AsyncGenerator[bytes], member: Member) -> AsyncIterator[bytes]:
    yield member.begin()
    async with aclosing(pieces) as open_pieces:
        async for piece in open_pieces:
            yield (await asyncio.to_thread(member.add, piece) if len(piece) > LARGE_BYTES else member.add(piece))
    yield member.end()
