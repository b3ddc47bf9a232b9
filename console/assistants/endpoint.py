"""`/mcp`: assistants over streamable HTTP, each request by itself, by an API token and never by a session.

The library that speaks the protocol is imported with the first request: most consoles have no assistants.
"""

from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from console.accounts import token_failures
from console.accounts.access import Actor, bearer_of
from console.assistants.calls import InProcess
from console.assistants.tools import Tools
from console.web.refusal import RequestRefused, refuse

PATH = "/mcp"
NO_TOKEN = "takes an API token (Authorization: Bearer …); make one in Settings or by manage.py token."
FROM_A_PAGE = "is sent by browsers only; assistants send none."


class AssistantEndpoint:
    """Wraps an application, and answers at PATH itself."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"].rstrip("/") != PATH:
            await self.application(scope, receive, send)
            return
        try:
            actor = await sync_to_async(_actor)(scope)
        except RequestRefused as refusal:
            await refuse(scope, send, refusal)
        else:
            from console.assistants.server import serve

            await serve(Tools(InProcess(actor)), scope, receive, send)


def _actor(scope: dict[str, Any]) -> Actor:
    """Whose token it is. Raises RequestRefused."""
    headers = {name.decode("latin1"): value.decode("latin1") for name, value in scope["headers"]}
    if "origin" in headers:
        raise RequestRefused(403, FROM_A_PAGE, field="origin")
    address = (scope.get("client") or (None,))[0]
    try:
        found = token_failures.actor_of(bearer_of(headers.get("authorization")), timezone.now(), address)
    except token_failures.TooManyFailures as error:
        raise RequestRefused(429, str(error), error.seconds, "authorization") from None
    if found is None:
        raise RequestRefused(401, NO_TOKEN, field="authorization")
    return found
