"""A body of events in memory: decompressed, and never larger than its limit, whatever its compression."""

import zlib

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError

from console.api.ingestion.body_limit import format_size_error
from console.api.request.refusals import RefusedError

GZIP = b"\x1f\x8b"
GZIP_WINDOW = zlib.MAX_WBITS | 16
CHUNK_BYTES = 64 * 1024
MAX_MEMBERS = 1_000  # a gzip file may have several members; each has a cost, even an empty one


def body_of(request: HttpRequest) -> bytes:
    """Return the decompressed body.

    Raises `RefusedError`: 413 too large compressed or decompressed, 400 broken gzip, 415 unknown encoding.
    """
    limit_bytes = settings.WEIR_MAX_BODY_BYTES
    # The ASGI application has already rejected such a body; another server may not have checked it.
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit_bytes:
        raise RefusedError(413, "body", format_size_error(limit_bytes))
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise RefusedError(415, "content-encoding", f"must be gzip or none, not {encoding[:40]!r}.")
    try:
        body = request.body
    except RequestDataTooBig:
        raise RefusedError(413, "body", format_size_error(limit_bytes)) from None
    except UnreadablePostError as error:
        raise RefusedError(400, "body", f"was interrupted ({error}); send it again.") from None
    return unpack_body(body, limit_bytes) if encoding == "gzip" or body[:2] == GZIP else body


def unpack_body(body: bytes, limit_bytes: int) -> bytes:
    """Decompress a gzip body, reading no further than its limit. Raises `RefusedError`."""
    try:
        plain = _unpack(memoryview(body), limit_bytes)
    except zlib.error as error:
        raise RefusedError(400, "body", f"is not complete gzip data ({error}).") from None
    if plain[:2] == GZIP:
        raise RefusedError(400, "body", "is compressed twice; compress it once.")
    return bytes(plain)


def _unpack(body: memoryview, limit_bytes: int) -> bytearray:
    plain = bytearray()
    members, member = 1, zlib.decompressobj(GZIP_WINDOW)
    for start in range(0, len(body), CHUNK_BYTES):
        data = bytes(body[start : start + CHUNK_BYTES])
        while data:
            if member.eof:
                data = data.lstrip(b"\0")  # zeros between and after the members are padding
                if not data:
                    break
                members, member = members + 1, zlib.decompressobj(GZIP_WINDOW)
            plain += member.decompress(data, limit_bytes + 1 - len(plain))
            if len(plain) > limit_bytes:
                raise RefusedError(413, "body", f"decompresses to more than {limit_bytes} bytes; send less.")
            if members > MAX_MEMBERS:
                raise RefusedError(413, "body", (f"has more than {MAX_MEMBERS} gzip members; compress it once."))
            data = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise RefusedError(400, "body", "is not complete gzip data (it ends early).")
    return plain
