"""The websocket `/live/`: a snapshot first, then deltas; closed when its user loses access.

Its address may contain: `of`, a view of the snapshot (`console.live.view`), `packed=1` for messages in zlib's format,
and `after=SEQ&at=TIME`, the snapshot that the browser has: then the deltas since then come first, if they are still
available.

Websockets are only accepted from our own pages: browsers send cookies with requests of any page. The open sockets of a
person, and of a process, are limited.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary

import orjson
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from common.errors import BadInput
from common.parsing import parse_option_whole_number, read_number
from console.accounts.access import Actor, parse_bearer_secret
from console.accounts.authentication import authenticate_connection, run_in_thread
from console.live.fanout import Listener, get_fanout
from console.live.view import find_view
from console.web.asgi_types import Application, Receive, Scope, Send

TRY_LATER = 1013
TOO_MANY = 4429


class NoPlace(Exception):  # noqa: N818
    """A limit is reached: the close code, and the reason in words."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class Places:
    """The open sockets of this process, each with its person (None: not known yet)."""

    def __init__(self) -> None:
        self._holders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def enter(self, socket: object) -> None:
        """Take a place in the process, before anything else is done for the socket. Raises `NoPlace`."""
        limit = settings.WEIR_LIVE_SOCKETS
        if len(self._holders) >= limit:
            raise NoPlace(TRY_LATER, f"This console has {limit} live connections, the maximum. Try again later.")
        self._holders[socket] = None

    def claim(self, socket: object, person: object) -> None:
        """Assign the socket to this person. Raises `NoPlace`."""
        limit = settings.WEIR_LIVE_SOCKETS_PER_PERSON
        if sum(holder == person for holder in self._holders.values()) >= limit:
            raise NoPlace(TOO_MANY, f"You have {limit} live connections, the maximum. Close a page.")
        self._holders[socket] = person

    def leave(self, socket: object) -> None:
        self._holders.pop(socket, None)


PLACES = Places()  # of this process


class SameOrigin:
    """Rejects a handshake whose Origin is not the requested host; without an Origin a token is required."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
        if is_ours(headers):
            await self.application(scope, receive, send)
        else:
            await refuse(scope, receive, send)


def is_ours(headers: dict[str, str]) -> bool:
    host = headers.get("host", "")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    origin = headers.get("origin")
    if origin is None:
        # Not a browser, so no cookie was attached without the user's intention; a token identifies the caller.
        return parse_bearer_secret(headers.get("authorization")) is not None
    try:
        parts = urlsplit(origin)
    except ValueError:  # such as http://[
        return False
    # A page over http may have been modified on the way: if our cookies require https, so does an origin.
    schemes = ("https",) if settings.SESSION_COOKIE_SECURE else ("http", "https")
    return parts.scheme in schemes and parts.netloc.lower() == host.lower()


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Deny the handshake: the server answers 403."""
    await receive()
    await send({"type": "websocket.close", "code": 4403})


log = logging.getLogger(__name__)
RECHECK_SECONDS = 30.0  # a thousand sockets query the database 33 times a second
NOT_LOGGED_IN = 4401
NOT_ALLOWED = 4403
NOT_UNDERSTOOD = 4400
UNANSWERED = 1011  # of the protocol: an internal error
MAX_UNANSWERED = 4
TOO_BIG = 1009
# The server has the same limit (console.embedded.processes): longer messages are not even read.
MAX_FRAME_BYTES = 4096
MAX_REASON_BYTES = 123  # of the protocol: a longer one is a server error


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc] # channels has no types
    """Accepts only `{"ask": "snapshot"}`.

    Close codes: 4401 login required, 4403 role missing, 4400 bad request, 4429 too many sockets of this person, 1013
    too many in all, 1009 a frame over 4 KiB, 1011 the permission can't be checked.
    """

    channel_layer_alias = "none"  # the fan-out replaces it

    def __init__(self, recheck_seconds: float = RECHECK_SECONDS) -> None:
        super().__init__()
        self.recheck_seconds = recheck_seconds
        self.listener: Listener | None = None
        self.closing = False
        self.tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        # Accepted even if closed at once: a rejected handshake could not send the reason to the page.
        await self.accept()
        try:
            PLACES.enter(self)
            if (actor := await self._find_allowed_actor()) is None:
                return
            PLACES.claim(self, actor.account.pk)
            wanted = parse_query(self.scope.get("query_string", b""))
        except NoPlace as limit:
            await self.close(limit.code, limit.reason)
            return
        except BadInput as error:
            await self.close(NOT_UNDERSTOOD, str(error))
            return
        self.fanout = get_fanout()
        self.listener = await self.fanout.join(**wanted)
        self.tasks = [asyncio.create_task(self._deliver(self.listener)), asyncio.create_task(self._recheck())]

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.listener is None or self.closing:
            return
        if len(text_data.encode() if text_data is not None else bytes_data or b"") > MAX_FRAME_BYTES:
            await self.close(TOO_BIG, "A message must have at most 4,096 bytes.")
            return
        with suppress(orjson.JSONDecodeError):
            if text_data is not None and orjson.loads(text_data) == {"ask": "snapshot"}:
                self.fanout.answer(self.listener)
                return
        await self.close(NOT_UNDERSTOOD, 'Send {"ask": "snapshot"}; no other message is supported.')

    async def close(self, code: int | None = None, reason: str | None = None) -> None:
        """Close the socket once. A second close, as after two bad messages in a row, would be a server error."""
        if self.closing:
            return
        self.closing = True
        PLACES.leave(self)
        with suppress(OSError):  # already disconnected
            await super().close(
                code, None if reason is None else reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
            )

    async def disconnect(self, code: int) -> None:
        PLACES.leave(self)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.listener is not None:
            await self.fanout.leave(self.listener)

    async def _deliver(self, listener: Listener) -> None:
        # If a socket breaks while we write, the server calls `disconnect`: nothing more to do.
        with suppress(OSError):
            while True:
                message = await listener.take_next()
                if isinstance(message, bytes):
                    await self.send(bytes_data=message)
                else:
                    await self.send(text_data=message)

    async def _recheck(self) -> None:
        """Check the permission again.

        A logout, a revoked token, or a lost role closes the socket within RECHECK_SECONDS. An unreachable database is
        queried again; after MAX_UNANSWERED failures in a row the socket is closed.
        """
        unanswered = 0
        while unanswered < MAX_UNANSWERED:
            await asyncio.sleep(self.recheck_seconds)
            try:
                if await self._find_allowed_actor() is None:
                    return
                unanswered = 0
            except Exception as error:  # any error, since nobody else would check again
                log.warning("the permission to read live figures could not be checked: %s", error)
                unanswered += 1
        await self.close(UNANSWERED, "Your permission can't be checked; reconnect.")

    async def _find_allowed_actor(self) -> Actor | None:
        """Return the actor who may watch; None if there is none, and the socket is closed."""
        actor: Actor = await run_in_thread(self._identify_actor)()
        if actor.may("plant.view"):
            return actor
        if actor.user is None:
            await self.close(NOT_LOGGED_IN, "Log in again.")
        else:
            await self.close(NOT_ALLOWED, "This requires the role viewer.")
        return None

    def _identify_actor(self) -> Actor:
        headers = dict(self.scope["headers"])
        authorization = headers.get(b"authorization")
        session_key = self.scope.get("cookies", {}).get(settings.SESSION_COOKIE_NAME)
        address = (self.scope.get("client") or (None,))[0]
        return authenticate_connection(
            session_key, None if authorization is None else authorization.decode("latin1"), address
        )


def parse_query(query: bytes) -> dict[str, Any]:
    """Return what the address requests, in the form of `Fanout.join`. Raises `BadInput` for an unknown view."""
    given = {name: values[-1] for name, values in parse_qs(query.decode("latin1")).items()}
    after = None
    with suppress(KeyError, ValueError):
        after = (parse_option_whole_number(given["after"]), read_number(given["at"], "at"))
    return {"view": find_view(given.get("of", "whole")), "packed": given.get("packed") == "1", "after": after}
