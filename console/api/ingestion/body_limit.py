"""Bodies are limited before Django reads them, which would store everything.

Anonymous senders may send STRANGER_BYTES (a login). Larger bodies are read only after authentication, up to the size
that the sender may send to the address. A body must also arrive in time.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError
from django.http import parse_cookie

from common.parsing import parse_digits
from console.accounts.access import Actor
from console.accounts.authentication import authenticate_connection, run_in_thread
from console.accounts.tokens import get_actor_quota
from console.actions.lab.traces import MAX_TRACE_BYTES
from console.input.boundary import MAX_REPORT_BYTES, is_report
from console.web.asgi_types import Application, Message, Receive, Scope, Send
from console.web.refusal import RequestRefused, refuse

STRANGER_BYTES = 64 * 1024
DOCUMENT_BYTES = 2**20  # a form, or the JSON of a declaration
EVENTS = re.compile(r"/api/v1/queues/([^/]+)/events/?")
UPLOADS = "/lab/begin"
# Time limit for a body, extended by what has arrived of it at this rate.
PATIENCE_SECONDS = 20.0
MIN_BYTES_PER_SECOND = 64 * 1024
# Bodies over STRANGER_BYTES that one process handles at once: of all senders, and of one of them.
LARGE_AT_ONCE, LARGE_OF_ONE = 8, 4
ASKING_SECONDS = 5.0  # time limit for authenticating the sender of a body
UNANSWERED = "body can't be accepted now: the database or the control server is not responding."


@dataclass(frozen=True)
class Allowance:
    """A sender (None: anonymous), and how much it may send to an address."""

    most_bytes: int
    sender: str | None = None


Allowed = Callable[[dict[str, Any]], Awaitable[Allowance]]


class BodyLimit:
    """Answers 413 as soon as a request announces, or has sent, more than is allowed.

    Answers 408 if it is too slow, 503 if too many large bodies are being handled, or its sender is not authenticated in
    time. `allowed` may raise `RequestRefused`; without it nobody may send more than `stranger_bytes`.
    """

    def __init__(
        self,
        application: Application,
        stranger_bytes: int = STRANGER_BYTES,
        allowed: Allowed | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        asking_seconds: float = ASKING_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.application = application
        self.stranger_bytes = stranger_bytes
        self.allowed = allowed
        self.patience_seconds, self.asking_seconds = patience_seconds, asking_seconds
        self.clock = clock
        self.large: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(self, scope, receive)
        try:
            announced = dict(scope["headers"]).get(b"content-length", b"0").decode("latin1")
            await body.check_announced(parse_digits(announced, 19) or 0)
            await self.application(scope, body.receive, send)
        except RequestRefused as refusal:
            # Django reads the whole body before it answers, so nothing has been sent yet.
            await refuse(scope, send, refusal)
        finally:
            body.release()


class _Body:
    """The body of one request while it is read."""

    def __init__(self, limit: BodyLimit, scope: Scope, receive: Receive) -> None:
        self._limit, self._scope, self._receive = limit, scope, receive
        self._read_bytes, self._most_bytes = 0, limit.stranger_bytes
        self._began_seconds = limit.clock()
        self._sender: str | None = None
        self._is_asked = self._is_whole = False

    async def check_announced(self, size_bytes: int) -> None:
        """Raise `RequestRefused` for a body that announces too much, before any of it is read."""
        if size_bytes > self._most_bytes:
            await self._ask(size_bytes)

    async def receive(self) -> Message:
        """Return the next message of the server. Raises `RequestRefused`."""
        if self._is_whole:  # the next message is the end of the connection, whenever it arrives
            return await self._receive()
        message = await self._check_deadline()
        if message["type"] == "http.request":
            self._read_bytes += len(message.get("body", b""))
            self._is_whole = not message.get("more_body", False)
            if self._read_bytes > self._most_bytes:
                await self._ask(self._read_bytes)
        return message

    def release(self) -> None:
        """Release the place of the answered request for another large body."""
        if self._sender is not None:
            self._limit.large[self._sender] -= 1
            self._sender = None

    async def _check_deadline(self) -> Message:
        limit = self._limit
        until_seconds = limit.patience_seconds + self._read_bytes / MIN_BYTES_PER_SECOND
        left_seconds = self._began_seconds + until_seconds - limit.clock()
        try:
            if left_seconds <= 0:
                raise TimeoutError  # what arrived in the meantime does not help: it was too late
            async with asyncio.timeout(left_seconds):
                return await self._receive()
        except TimeoutError:
            raise RequestRefused(408, (f"body did not arrive within {until_seconds:.0f} s.")) from None

    async def _ask(self, size_bytes: int) -> None:
        """Determine once the sender and how much it may send."""
        if not self._is_asked and self._limit.allowed is not None:
            self._is_asked = True
            try:
                async with asyncio.timeout(self._limit.asking_seconds):
                    allowance = await self._limit.allowed(self._scope)
            except TimeoutError:  # many may be looked up at once, while a server hangs
                raise RequestRefused(503, UNANSWERED, 2) from None
            self._most_bytes = allowance.most_bytes
            if size_bytes <= self._most_bytes:
                sender, large = allowance.sender or "", self._limit.large
                if large.total() >= LARGE_AT_ONCE or large[sender] >= LARGE_OF_ONE:
                    raise RequestRefused(
                        503, "body: too many large bodies are in progress. Send it again in a moment.", 1
                    )
                self._sender = sender
                large[sender] += 1
        if size_bytes > self._most_bytes:
            raise RequestRefused(413, format_size_error(self._most_bytes))


def format_size_error(limit_bytes: int) -> str:
    return f"body must have at most {limit_bytes} bytes. Send it in several requests."


async def load_allowance(scope: Scope) -> Allowance:
    """Return how much the sender may send to the address. Raises `RequestRefused` if it can't be determined."""
    allowance: Allowance = await run_in_thread(_compute_allowance)(scope)
    return allowance


def _compute_allowance(scope: Scope) -> Allowance:
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
    session_key = parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME)
    address = (scope.get("client") or [None])[0]
    try:
        actor = authenticate_connection(session_key, headers.get("authorization"), address)
        return Allowance(_compute_max_bytes(actor, scope), actor.name) if actor.role else Allowance(STRANGER_BYTES)
    except (DatabaseError, redis.RedisError):
        raise RequestRefused(503, UNANSWERED, 2) from None


def _compute_max_bytes(actor: Actor, scope: Scope) -> int:
    path, posts = scope.get("path", ""), scope.get("method") == "POST"
    queue = EVENTS.fullmatch(path)
    if posts and queue and actor.may("events.publish") and actor.can_access_queues([queue[1]]):
        if seconds := get_actor_quota(actor).wait_seconds(0):
            raise RequestRefused(429, f"The quota of {actor.name} is used up. Send again in {seconds} s.", seconds)
        return int(settings.WEIR_MAX_BODY_BYTES)
    if actor.role == "producer":
        return STRANGER_BYTES
    if posts and is_report(path) and actor.may("alert.report"):
        return MAX_REPORT_BYTES
    if posts and path == UPLOADS and actor.may("lab.run"):
        return DOCUMENT_BYTES + MAX_TRACE_BYTES
    return DOCUMENT_BYTES
