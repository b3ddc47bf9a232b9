"""The start and the end of a web process: ASGI's lifespan."""

from common import own_process
from console.web.asgi_types import Receive, Scope, Send


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the lifespan protocol of ASGI."""
    await receive()  # lifespan.startup
    own_process.watch()
    await send({"type": "lifespan.startup.complete"})
    await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})
