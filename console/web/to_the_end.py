"""Requests are completed even if their sender disconnects.

Django cancels a request as soon as its sender has left, but not the view's thread: the change would be made without
what surrounds it (the answer stored for repetitions, the audit entries of rejections). Django is therefore notified
when it starts to answer: a streamed answer ends there, as no more of it is read.
"""

import asyncio

from console.web.asgi_types import Application, Message, Receive, Reply, Scope, Send


class ToTheEnd:
    """Wraps Django's application."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_whole, is_answered = False, asyncio.Event()

        async def receive_until_answered() -> Message:
            nonlocal is_whole
            message: Message = await receive()
            if message["type"] == "http.request":
                is_whole = not message.get("more_body", False)
            elif is_whole:
                await is_answered.wait()
            return message

        async def send_answer(message: Reply) -> None:
            is_answered.set()
            await send(message)

        await self.application(scope, receive_until_answered, send_answer)
