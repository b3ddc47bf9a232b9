"""A websocket spoken directly to the ASGI application, as the server would."""

import zlib

import orjson
from asgiref.testing import ApplicationCommunicator

from tests.waiting import MAX_SECONDS


class Socket:
    """One connection to `/live/`."""

    def __init__(self, application, headers, path="/live/", query=b""):
        scope = {"type": "websocket", "path": path, "headers": headers, "query_string": query, "subprotocols": []}
        self.wire = ApplicationCommunicator(application, scope)

    async def connect(self):
        """Whether the handshake was accepted."""
        await self.wire.send_input({"type": "websocket.connect"})
        return (await self.wire.receive_output(MAX_SECONDS))["type"] == "websocket.accept"

    async def send(self, text):
        await self.wire.send_input({"type": "websocket.receive", "text": text})

    async def receive(self):
        """The next message, as JSON; a packed one unpacked. On a busy host a snapshot grows old
        meanwhile, and the socket says so each second: that is passed over.
        """
        while (found := await self._next()).get("silent_seconds") is not None and found["at"] is not None:
            pass
        return found

    async def _next(self):
        message = await self.wire.receive_output(MAX_SECONDS)
        assert message["type"] == "websocket.send", message
        packed = message.get("bytes")
        return orjson.loads(message["text"] if packed is None else zlib.decompress(packed))

    async def closing_code(self):
        """The code it is closed with; what is said before is passed over."""
        while (message := await self.wire.receive_output(MAX_SECONDS))["type"] == "websocket.send":
            pass
        return message["code"]

    async def disconnect(self):
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1001})
        await self.wire.wait(MAX_SECONDS)
