"""A body of events as a file: unpacked, and never larger than its limit, however it was packed."""

import gzip
import tempfile
import zlib
from io import BufferedReader, BytesIO
from typing import BinaryIO

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError

from console.api.body_limit import too_large_message
from console.api.refusals import RefusedError

GZIP = b"\x1f\x8b"
UNPACKED_TIMES = 8  # a body may unpack to so many times the limit of what is sent
IN_MEMORY_BYTES = 8 * 2**20
CHUNK_BYTES = 2**20


def body_of(request: HttpRequest) -> BufferedReader:
    """The body as a file that can be read again. Raises RefusedError: 413 too large, 400 broken gzip, 415 an
    encoding we don't know.
    """
    limit_bytes = settings.WEIR_MAX_BODY_BYTES
    # Behind the ASGI application such a body was refused already; another server may not have looked.
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit_bytes:
        raise RefusedError(413, "body", too_large_message(limit_bytes))
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise RefusedError(415, "content-encoding", f"takes gzip or none, not {encoding!r}.")
    try:
        body = request.body
    except RequestDataTooBig:
        raise RefusedError(413, "body", too_large_message(limit_bytes)) from None
    except UnreadablePostError as error:
        raise RefusedError(400, "body", f"broke off ({error}); send it again.") from None
    if encoding == "gzip" or body[:2] == GZIP:
        return BufferedReader(unpacked(body, UNPACKED_TIMES * limit_bytes))
    return BufferedReader(BytesIO(body))


def unpacked(body: bytes, limit_bytes: int) -> BinaryIO:
    """A gzip body unpacked to a temporary file, before anything of it is published."""
    found = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115 - the caller closes it
    try:
        _unpack(body, found, limit_bytes)
    except BaseException:
        found.close()
        raise
    found.seek(0)
    return found


def _unpack(body: bytes, found: BinaryIO, limit_bytes: int) -> None:
    try:
        with gzip.GzipFile(fileobj=BytesIO(body)) as packed:
            while data := packed.read(CHUNK_BYTES):
                if found.tell() + len(data) > limit_bytes:
                    raise RefusedError(413, "body", f"unpacks to more than {limit_bytes} bytes; send less.")
                found.write(data)
    except (OSError, EOFError, zlib.error) as error:
        raise RefusedError(400, "body", f"is not gzip to its end ({error}).") from None
    found.seek(0)
    if found.read(2) == GZIP:
        raise RefusedError(400, "body", "is packed twice; pack it once.")
