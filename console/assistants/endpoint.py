"""`/mcp`: assistants over streamable HTTP, each request separately, by an API token and never by a session.

Only POST is answered: a GET of the protocol waits for events without a limit, and there are none. Each request has its
own thread, as Django's have: a slow tool does not delay others. The protocol's library is imported with the first
request: most consoles have no assistants.
"""

from asgiref.sync import ThreadSensitiveContext
from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.utils import timezone

from console.accounts import authentication
from console.accounts.access import Actor, claim_place, parse_bearer_secret
from console.api.request.calls import InProcess
from console.assistants.tools import Tools
from console.web.asgi_types import Application, Message, Receive, Scope, Send
from console.web.refusal import RequestRefused, refuse

PATH = "/mcp"
NO_TOKEN = "must be an API token (Bearer …). Create a token in Settings or with manage.py token."
FROM_A_PAGE = "must not be sent: this endpoint is not for browsers."
POST_ALONE = "must be POST: there is no event stream."
UNANSWERED = "The token can't be checked: the database is not responding."


class AssistantEndpoint:
    """Wraps an application, and answers at PATH itself."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].rstrip("/") != PATH:
            await self.application(scope, receive, send)
            return
        async with ThreadSensitiveContext():
            try:
                if scope["method"] != "POST":
                    raise RequestRefused(405, POST_ALONE, field="method")
                if any(name == b"origin" for name, _ in scope["headers"]):
                    raise RequestRefused(403, FROM_A_PAGE, field="origin")
                # It is admitted at the end of its body, so its token is not checked before.
                body = await _read_body(receive)
                actor = None if body is None else await database_sync_to_async(_authenticate_caller)(scope)
            except RequestRefused as refusal:
                await refuse(scope, send, refusal)
                return
            if body is None or actor is None:
                return  # nobody waits for the answer any more
            from console.assistants.server import serve

            await serve(Tools(InProcess(actor)), scope, _build_body_receiver(body, receive), send)


def _authenticate_caller(scope: Scope) -> Actor:
    """Return the actor of the token. Raises `RequestRefused`."""
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
    address = (scope.get("client") or (None,))[0]
    try:
        actor = authentication.authenticate_token(
            parse_bearer_secret(headers.get("authorization")), timezone.now(), address
        )
    except authentication.TooManyFailures as error:
        raise RequestRefused(429, str(error), error.seconds, "authorization") from None
    except DatabaseError:
        raise RequestRefused(503, UNANSWERED, 2, "") from None
    if actor is None:
        raise RequestRefused(401, NO_TOKEN, field="authorization")
    claim_place(scope, actor.user)
    return actor


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole body, up to the sender's limit; None if the sender has disconnected.

    Raises `RequestRefused`, which the library would not pass on.
    """
    pieces = []
    while (message := await receive())["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
    return None


def _build_body_receiver(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body, and then what follows it."""
    given = False

    async def receive_once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_once
