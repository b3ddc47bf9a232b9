"""The start and the end of a web process: ASGI's lifespan."""

from typing import Any

from common import own_process


async def lifespan(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer the lifespan protocol of ASGI."""
    await receive()  # lifespan.startup
    own_process.watch()
    await send({"type": "lifespan.startup.complete"})
    await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})
