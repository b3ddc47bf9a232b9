"""Requests that are rejected before Django handles them: because of their body, or overload."""

import uuid

import orjson

from console.web import problem
from console.web.asgi_types import Scope, Send


class RequestRefused(Exception):  # noqa: N818
    """The answer to a rejected request. field: its rejected part, "" for all of it."""

    def __init__(self, status: int, message: str, retry_after_seconds: int | None = None, field: str = "body") -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field
        self.retry_after_seconds = retry_after_seconds


# A browser that waits for a page reloads it automatically.
PAGE = b"Weir has too much to do just now. This page tries again by itself.\n"


async def refuse(scope: Scope, send: Send, refusal: RequestRefused) -> None:
    """Answer a rejected request; no middleware has seen it, so the answer gets its id here."""
    request_id = uuid.uuid4().hex
    path = scope.get("path", "")
    for_a_program = path.startswith(problem.PROGRAM_PATHS) or path in problem.PROGRAM_PAGES
    for_a_person = not refusal.field and not for_a_program
    body = PAGE if for_a_person else _document(scope, refusal, request_id)
    headers = [
        (b"content-type", b"text/plain; charset=utf-8" if for_a_person else problem.CONTENT_TYPE.encode()),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # the rest of the body is not read
    ]
    if refusal.retry_after_seconds is not None:
        seconds = str(refusal.retry_after_seconds).encode()
        headers += [(b"retry-after", seconds), *([(b"refresh", seconds)] if for_a_person else [])]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _document(scope: Scope, refusal: RequestRefused, request_id: str) -> bytes:
    said = {"errors": {refusal.field or "request": [refusal.message]}}
    return orjson.dumps(problem.document(refusal.status, scope.get("path", ""), request_id, said))
