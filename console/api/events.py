"""Publishing over HTTP: JSON lines or an Arrow stream in, 202 with counts out."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
from django.http import HttpRequest
from ninja import Router, Status

from console.api.authentication import actor_for
from console.api.body import body_of
from console.api.publisher import publisher
from console.api.refusals import RETRY_AFTER_SECONDS, RefusedError
from console.control_server import control
from queues.block import from_columns
from queues.client import Client, Published
from queues.errors import BadInput, MalformedEvent, NoContainerAvailable
from queues.lines import EventLines
from workers import throttling

router = Router(tags=["events"])
# The last two are what a plain `curl --data-binary` and a client that says nothing send.
JSON_LINES = (
    "application/x-ndjson",
    "application/jsonl",
    "application/json",
    "text/plain",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
)
ARROW = ("application/vnd.apache.arrow.stream",)
THROTTLE_SECONDS = 5
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


@router.post(
    "/queues/{queue}/events",
    response={202: dict[str, Any], 400: dict[str, Any]},
    summary="Publish events",
    openapi_extra=BODY,
)
def publish(request: HttpRequest, queue: str, strict: bool = False) -> Status:
    """Store events: JSON lines or an Arrow stream, gzip or not. What is counted in `published` is stored.

    A malformed line is counted, named (the first 20) and skipped; with `strict=1`, or in an Arrow stream,
    the first one refuses the whole body with 400 and nothing is published. 404 names the known queues, 413
    the size allowed, 429 and 503 say in Retry-After when to try again.
    """
    actor_for(request, "events.publish")
    client = publisher()
    client.topology().queue(queue)
    _throttled(queue)
    read = _reader(request.content_type)
    with body_of(request) as body:
        return read(client, queue, body, strict)


def _reader(content_type: str | None) -> Callable[[Client, str, BinaryIO, bool], Status]:
    if content_type in ARROW:
        return _publish_arrow
    if not content_type or content_type in JSON_LINES:
        return _publish_lines
    known = ", ".join((JSON_LINES[0], *ARROW))
    raise RefusedError(415, "content-type", f"takes {known}, not {content_type}.")


def _throttled(queue: str) -> None:
    left_ms = control().pttl(throttling.KEY.format(queue=queue))
    if left_ms == -2:  # no such key
        return
    seconds = max(1, -(-left_ms // 1000)) if left_ms >= 0 else THROTTLE_SECONDS
    raise RefusedError(429, "queue", f"{queue} admits less for now; wait and send again.", seconds)


def _publish_lines(client: Client, queue: str, body: BinaryIO, strict: bool) -> Status:
    if strict:
        _check_lines(body)
    lines = EventLines(body, format="jsonl")
    counts = _stored(client, queue, lines)
    client.count_rejected(queue, lines.rejected)
    errors = [{"line": each.line, "error": each.error} for each in lines.rejections]
    if not counts["published"]:
        # Nothing of it was an event: that is a mistake of the sender, not an accepted body.
        errors = errors or [{"line": 1, "error": "the body is empty; it takes JSON lines."}]
        return Status(400, {**counts, "rejected": lines.rejected, "errors": errors})
    return Status(202, {**counts, "rejected": lines.rejected, "errors": errors})


def _check_lines(body: BinaryIO) -> None:
    """Read all of it once before anything is published."""
    try:
        for _ in EventLines(body, format="jsonl", strict=True):
            pass
    except MalformedEvent as error:
        raise RefusedError(400, error.field, error.message) from None
    body.seek(0)


def _publish_arrow(client: Client, queue: str, body: BinaryIO, strict: bool) -> Status:
    try:
        for _ in _arrow_batches(body):  # all of it once before anything is published
            pass
    except MalformedEvent as error:
        raise RefusedError(400, error.field, error.message) from None
    except (pa.ArrowException, OSError) as error:
        raise RefusedError(400, "body", f"is not an Arrow stream ({error}).") from None
    body.seek(0)
    counts = _stored(client, queue, _arrow_batches(body))
    return Status(202, {**counts, "rejected": 0, "errors": []})


def _arrow_batches(body: BinaryIO) -> Iterator[pa.RecordBatch]:
    now_us = round(time.time() * 1_000_000)
    with pa.ipc.open_stream(body) as stream:
        for batch in stream:
            yield from_columns(batch, now_us)


def _stored(client: Client, queue: str, batches: Batches) -> dict[str, Any]:
    """Publish; the counts of what was stored. Raises RefusedError 503 when no container takes the rest."""
    try:
        return _counts(client.publish_batches(queue, batches))
    except NoContainerAvailable as error:
        # What is stored stays stored, so the sender hears how much of it was before the rest found no place.
        stored = error.stored if isinstance(error.stored, Published) else Published()
        raise RefusedError(503, "queue", str(error), RETRY_AFTER_SECONDS, _counts(stored)) from None
    except BadInput as error:
        raise RefusedError(400, error.field, error.message) from None


def _counts(published: Published) -> dict[str, Any]:
    return {
        "published": published.events,
        "blocks": published.blocks,
        "by_container": dict(published.by_container),
        "rerouted": published.rerouted,
    }
