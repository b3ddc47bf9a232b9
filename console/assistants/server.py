"""The MCP server: `Tools` by name, over what carries it (`console.assistants.endpoint`, a pipe)."""

import functools
from collections.abc import Callable
from typing import Any

from channels.db import database_sync_to_async
from django.db import DatabaseError

import queues
from console import release
from console.api.request.calls import LONGEST_REFUSAL, Refused
from console.assistants.tools import OPERATING, Tools
from console.storage.database_limits import AWAY, TOO_LONG, is_away, is_over_time

queues.let_opentelemetry_be_found()  # the library below imports it, and does nothing with it

from mcp.server import MCPServer  # noqa: E402
from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402
from mcp.server.transport_security import TransportSecuritySettings  # noqa: E402


def server_of(tools: Tools) -> MCPServer[Any]:
    """A server with the tools of one caller."""
    version = release.version()
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
        server.add_tool(_tool(method), structured_output=False)
    return server


async def serve(tools: Tools, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer one request of streamable HTTP, which stands by itself: no session is kept."""
    server = server_of(tools)
    # Who sends a token is no browser that was led astray: the name of the host says nothing more.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server.streamable_http_app(json_response=True, stateless_http=True, transport_security=security)
    async with server.session_manager.run():
        await server.session_manager.handle_request(scope, receive, send)


def _tool(method: Callable[..., Any]) -> Callable[..., Any]:
    """In a thread, as it asks the database; a refusal is the tool's answer, and so is that the database does
    not answer. Its signature is the method's.
    """

    @functools.wraps(method)
    async def call(**given: Any) -> Any:
        try:
            return await database_sync_to_async(method)(**given)
        except Refused as error:
            raise ToolError(str(error)[:LONGEST_REFUSAL]) from None
        except DatabaseError as error:
            if not (is_over_time(error) or is_away(error)):
                raise
            raise ToolError(TOO_LONG if is_over_time(error) else AWAY) from error

    return call
