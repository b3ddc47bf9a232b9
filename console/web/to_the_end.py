"""Requests are completed even if their sender disconnects.

Django cancels a request as soon as its sender has left, but not the view's thread: the change would be made without
what surrounds it (the answer stored for repetitions, the audit entries of rejections). Django is therefore notified
when it starts to answer: a streamed answer ends there, as no more of it is read.
"""

import asyncio
from typing import Any


class ToTheEnd:
    """Wraps Django's application."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        is_whole, is_answered = False, asyncio.Event()

        async def receive_until_answered() -> dict[str, Any]:
            nonlocal is_whole
            message: dict[str, Any] = await receive()
            if message["type"] == "http.request":
                is_whole = not message.get("more_body", False)
            elif is_whole:
                await is_answered.wait()
            return message

        async def send_answer(message: dict[str, Any]) -> None:
            is_answered.set()
            await send(message)

        await self.application(scope, receive_until_answered, send_answer)
