"""Oversized bodies are refused before they are read: Django would spool all of it first."""

from typing import Any

import orjson


class BodyTooLargeError(Exception):
    """The body went over the limit while it was read."""


class BodyLimit:
    """Answers 413 as soon as a request announces, or has sent, more than `limit_bytes`."""

    def __init__(self, application: Any, limit_bytes: int) -> None:
        self.application = application
        self.limit_bytes = limit_bytes

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if _announced_bytes(scope) > self.limit_bytes:
            await refuse(send, self.limit_bytes)
            return
        try:
            await self.application(scope, _counted(receive, self.limit_bytes), send)
        except BodyTooLargeError:
            # Django reads the whole body before it answers, so nothing has been sent yet.
            await refuse(send, self.limit_bytes)


def _announced_bytes(scope: dict[str, Any]) -> int:
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    return int(announced) if announced.isdigit() else 0


def _counted(receive: Any, limit_bytes: int) -> Any:
    read_bytes = 0

    async def counting() -> dict[str, Any]:
        nonlocal read_bytes
        message = await receive()
        if message["type"] == "http.request":
            read_bytes += len(message.get("body", b""))
            if read_bytes > limit_bytes:
                raise BodyTooLargeError
        return message

    return counting


def too_large_message(limit_bytes: int) -> str:
    return f"body takes at most {limit_bytes} bytes; send the events in several requests."


async def refuse(send: Any, limit_bytes: int) -> None:
    body = orjson.dumps({"errors": {"body": [too_large_message(limit_bytes)]}})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # what is still on its way is not read
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
