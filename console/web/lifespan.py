"""The start and the end of a web process: ASGI's lifespan."""

from typing import Any

from queues.nodes import process_watchdog


async def lifespan(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer the lifespan protocol of ASGI."""
    await receive()  # lifespan.startup
    process_watchdog.watch()
    await send({"type": "lifespan.startup.complete"})
    await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})
