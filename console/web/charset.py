"""Only UTF-8 is accepted.

Django decodes addresses and forms by any codec that a caller names (rot13, idna, …), which fails before any middleware
runs, or produces text that can't be stored.
"""

import uuid
from email.message import Message

import orjson

from console.web import problem
from console.web.asgi_types import Application, Receive, Scope, Send

TAKEN = ("utf-8", "utf8", "us-ascii", "ascii")
REFUSAL = {"errors": {"content-type": ["must have the charset utf-8 or none."]}}


class Utf8Only:
    """Answers 415 to a request that names another charset."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if parse_charset(scope) in TAKEN:
            await self.application(scope, receive, send)
        else:
            await _refuse(scope, send)


def parse_charset(scope: Scope) -> str:
    """Return the charset of the content type; utf-8 if it names none."""
    message = Message()
    message["Content-Type"] = dict(scope["headers"]).get(b"content-type", b"").decode("latin1")
    return str(message.get_param("charset", "utf-8")).lower()


async def _refuse(scope: Scope, send: Send) -> None:
    request_id = uuid.uuid4().hex
    body = orjson.dumps(problem.document(415, scope.get("path", ""), request_id, REFUSAL))
    headers = [
        (b"content-type", problem.CONTENT_TYPE.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
    ]
    await send({"type": "http.response.start", "status": 415, "headers": headers})
    await send({"type": "http.response.body", "body": body})
