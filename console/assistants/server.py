"""The MCP server: `Tools` by name, over a transport (`console.assistants.endpoint`, a pipe)."""

import functools
from collections.abc import Callable
from typing import Any

from channels.db import database_sync_to_async
from django.db import DatabaseError

import queues
from console import release
from console.api.request.calls import MAX_REFUSAL, RequestRejected
from console.assistants.tools import OPERATING, Tools
from console.storage.database_limits import AWAY, TOO_LONG, is_away, is_over_time
from console.web.asgi_types import Receive, Scope, Send

queues.let_opentelemetry_be_found()  # the library below imports it, and does nothing with it

from mcp.server import MCPServer  # noqa: E402
from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402
from mcp.server.transport_security import TransportSecuritySettings  # noqa: E402


def build_server(tools: Tools) -> MCPServer[Any]:
    """Return a server with the tools of one caller."""
    version = release.read_version()
    server: MCPServer[Any] = MCPServer("weir", title="Weir", instructions=OPERATING, version=version)
    for method in (
        tools.plant_state,
        tools.subject,
        tools.why,
        tools.search_ledger,
        tools.what_changed,
        tools.what_if,
        tools.propose,
        tools.proposal,
    ):
        server.add_tool(_wrap_tool(method), structured_output=False)
    return server


async def serve(tools: Tools, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request of streamable HTTP, without a session."""
    server = build_server(tools)
    # A sender with a token is no browser under an attacker's control, so the host name need not be checked.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server.streamable_http_app(json_response=True, stateless_http=True, transport_security=security)
    async with server.session_manager.run():
        await server.session_manager.handle_request(scope, receive, send)


def _wrap_tool(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a tool to run in a thread, as it queries the database.

    A rejection, or an unreachable database, is the tool's answer. Its signature is the method's.
    """

    @functools.wraps(method)
    async def call(**given: object) -> object:
        try:
            return await database_sync_to_async(method)(**given)
        except RequestRejected as error:
            raise ToolError(str(error)[:MAX_REFUSAL]) from None
        except DatabaseError as error:
            if not (is_over_time(error) or is_away(error)):
                raise
            raise ToolError(TOO_LONG if is_over_time(error) else AWAY) from error

    return call
