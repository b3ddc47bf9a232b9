"""Publishing over HTTP: JSON lines or an Arrow stream in, 202 with counts out."""

import atexit
import functools
import math
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BytesIO
from typing import Annotated, Any, TypedDict

import pyarrow as pa
import redis
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, UnreadablePostError
from ninja import Status

from common.errors import BadInput, MalformedEvent, NoContainerAvailable
from common.stored_document import Events, describe
from console.accounts.access import require_permission
from console.accounts.tokens import Quota, get_actor_quota
from console.api.ingestion.body_limit import format_size_error
from console.api.request.answers import Router
from console.api.request.authentication import actor_for
from console.api.request.refusals import RETRY_AFTER_SECONDS, RefusedError
from console.connections.control_server import control
from queues import throttling
from queues.durability import NAMES as DURABILITY_NAMES
from queues.durability import SUMMARY as DURABILITY_HELP
from queues.events.arrow_stream import read_events
from queues.events.lines import EventLines, Rejection, merge_batches
from queues.publishing.client import Client, PublishResult
from workers.observability.spans import note, span

router = Router(tags=["events"])

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
        raise RefusedError(400, "body", f"was interrupted ({error}). Send it again.") from None
    return unpack_body(body, limit_bytes) if encoding == "gzip" or body[:2] == GZIP else body


def unpack_body(body: bytes, limit_bytes: int) -> bytes:
    """Decompress a gzip body, reading no further than its limit. Raises `RefusedError`."""
    try:
        plain = _unpack(memoryview(body), limit_bytes)
    except zlib.error as error:
        raise RefusedError(400, "body", f"is not complete gzip data ({error}).") from None
    if plain[:2] == GZIP:
        raise RefusedError(400, "body", "is compressed twice. Compress it once.")
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
                raise RefusedError(413, "body", f"decompresses to more than {limit_bytes} bytes. Send less.")
            if members > MAX_MEMBERS:
                raise RefusedError(413, "body", (f"has more than {MAX_MEMBERS} gzip members. Compress it once."))
            data = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise RefusedError(400, "body", "is not complete gzip data (it ends early).")
    return plain


def get_publisher_client() -> Client:
    """Return this process's producer, of settings.REDIS_URL: one client for all requests, created by the first one."""
    return _get_client(settings.REDIS_URL)


@functools.lru_cache(maxsize=4)
def _get_client(url: str) -> Client:
    # Each request is checked exactly (`_check_throttling`), and no request waits.
    client = Client(url, producer="api", when_throttled="ignore")
    atexit.register(client.close)
    return client


# The last two are what a plain `curl --data-binary` and a client without a content type send.
JSON_LINES = (
    "application/x-ndjson",
    "application/jsonl",
    "application/json",
    "text/plain",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
)
ARROW = ("application/vnd.apache.arrow.stream",)
# Limits of a request, so that it costs at most 2 s of CPU and 256 MB whatever it contains.
# WEIR_MAX_BODY_BYTES bounds a body of Arrow; JSON, which is parsed character by character, has its own bound.
MAX_EVENTS = 100_000
MAX_LINES = 50_000  # a line may have to be read twice, once for itself
MAX_LINES_BYTES = 16 * 2**20
MAX_CONTAINERS = 250_000
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON_LINES[0]: {"schema": {"type": "string"}, "example": '{"type": "ordered", "value": 3.5}\n'},
            ARROW[0]: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
Batches = Iterable[pa.RecordBatch]


class PublishedEvents(TypedDict):
    """The stored events of a body."""

    published: Annotated[Events, describe("Number of stored events.")]
    blocks: int
    by_container: Annotated[dict[str, int], describe("Number of events by node.")]
    rerouted: Annotated[Events, describe("Number of events stored in a different container than the points selected.")]
    durability: Annotated[str, describe(DURABILITY_HELP, values=DURABILITY_NAMES)]
    rejected: Annotated[Events, describe("Number of malformed lines that were skipped.")]
    errors: Annotated[list[Rejection], describe("The first 20 malformed lines.")]


@router.post("/queues/{queue}/events", summary="Publish events", openapi_extra=BODY)
def publish_events(
    request: HttpRequest, queue: str, strict: bool = False
) -> Annotated[Status[PublishedEvents], {202: PublishedEvents, 400: PublishedEvents}]:
    """Store events: JSON lines or an Arrow stream, with or without gzip.

    `published` counts the stored events.

    A body contains at most 100,000 events in 32 MiB of Arrow, or 50,000 in 16 MiB of JSON lines (of 250,000 objects and
    lists), decompressed. A malformed line is counted, listed (the first 20), and skipped; with `strict=1`, or in an
    Arrow stream, the first one rejects the whole body with 400 and nothing is published. 404 lists the known queues,
    413 the maximum size; 429 (quota, throttled) and 503 (paused, no node accepts events) have Retry-After.
    """
    actor = actor_for(request, "events.publish")
    require_permission(actor, "events.publish", [queue])
    quota = get_actor_quota(actor)
    client = get_publisher_client()
    client.admit(queue)
    read = _select_publish_function(request.content_type)
    _check_throttling(queue)
    sent_bytes = _admit_bytes(request, quota)
    body = body_of(request)
    events = 0
    try:
        with span("publish"):
            note({"weir.queue": queue, "weir.body_bytes": len(body)})
            answer = read(client, queue, body, strict)
            events = answer.value["published"] + answer.value["rejected"]
            note({"weir.events": events})
        return answer
    finally:
        # A rejected body has also cost its reading. A failed count does not change the answer: a producer
        # that retries would store everything twice.
        with suppress(redis.RedisError):
            quota.charge(events, max(0, len(body) - sent_bytes))


def _admit_bytes(request: HttpRequest, quota: Quota) -> int:
    """Count the bytes before the body is checked. Raises `RefusedError` 429 if the quota is used up."""
    sent_bytes = int(request.META.get("CONTENT_LENGTH") or 0)
    if seconds := quota.wait_seconds(sent_bytes):
        message = (
            f"of this token is {quota.events_per_second:,} events/s and {quota.bytes_per_second:,} bytes/s; "
            f"it is used up. Send again in {seconds} s."
        )
        raise RefusedError(429, "quota", message, seconds)
    return sent_bytes


def _select_publish_function(content_type: str | None) -> Callable[[Client, str, bytes, bool], Status[Any]]:
    if content_type in ARROW:
        return _publish_arrow
    if not content_type or content_type in JSON_LINES:
        return _publish_lines
    known = ", ".join((JSON_LINES[0], *ARROW))
    raise RefusedError(415, "content-type", f"must be one of {known}, not {content_type}.")


def _check_throttling(queue: str) -> None:
    if seconds := throttling.load_left_seconds(control(), queue):
        message = f"{queue} is throttled. Wait and send again."
        raise RefusedError(429, "queue", message, max(1, math.ceil(seconds)))


def _publish_lines(client: Client, queue: str, body: bytes, strict: bool) -> Status[Any]:
    _check_size(body)
    lines = EventLines(BytesIO(body), format="jsonl", strict=strict)
    try:
        batches = list(lines) if strict else lines  # all of it before anything is published
    except MalformedEvent as error:
        raise RefusedError(400, error.field, error.message) from None
    counts = _publish(client, queue, batches)
    client.count_rejected(queue, lines.rejected)
    errors = lines.rejections
    if not counts["published"]:
        # None of it was an event: an error of the sender, not an accepted body.
        errors = errors or [Rejection(1, "the body is empty. Send JSON lines.")]
        return Status(400, {**counts, "rejected": lines.rejected, "errors": errors})
    return Status(202, {**counts, "rejected": lines.rejected, "errors": errors})


def _check_size(body: bytes) -> None:
    """Raise `RefusedError` 413 for a body that is too large.

    It is measured before lines are read: their cost depends not only on their bytes.
    """
    containers = body.count(b"{") + body.count(b"[")
    for most, count, what in (
        (MAX_LINES_BYTES, len(body), "bytes of JSON lines"),
        (MAX_LINES, body.count(b"\n"), "lines"),
        (MAX_CONTAINERS, containers, "JSON objects and lists"),
    ):
        if count > most:
            message = f"must have at most {most} {what}, decompressed. Send the events in several requests."
            raise RefusedError(413, "body", message)


def _publish_arrow(client: Client, queue: str, body: bytes, strict: bool) -> Status[Any]:
    now_us = round(time.time() * 1_000_000)
    try:
        batches = list(read_events(body, now_us, MAX_EVENTS))  # all of it before anything is published
    except MalformedEvent as error:
        raise RefusedError(400, error.field, error.message) from None
    counts = _publish(client, queue, merge_batches(batches))
    return Status(202, {**counts, "rejected": 0, "errors": []})


def _publish(client: Client, queue: str, batches: Batches) -> dict[str, Any]:
    """Publish; return the counts of what was stored. Raises `RefusedError` 503 if no container takes the rest."""
    try:
        return _build_publish_summary(client.publish_batches(queue, batches))
    except NoContainerAvailable as error:
        # Stored events stay stored, so the answer has the number that was stored before the failure.
        stored = error.stored if isinstance(error.stored, PublishResult) else PublishResult()
        raise RefusedError(503, "queue", str(error), RETRY_AFTER_SECONDS, _build_publish_summary(stored)) from None
    except BadInput as error:
        raise RefusedError(400, error.field, error.message) from None


def _build_publish_summary(published: PublishResult) -> dict[str, Any]:
    return {
        "published": published.events,
        "blocks": published.blocks,
        "by_container": dict(published.by_container),
        "rerouted": published.rerouted,
        "durability": published.durability,
    }
