"""Celery's messages with sentinels: a message counts as sent when a replica has it.

A worker that a loop has started is therefore not lost with the primary that took the message.
"""

from typing import Any

import redis
from kombu.transport.redis import SentinelChannel, SentinelTransport
from kombu.utils.json import dumps

from queues.control.connection import AcknowledgedPipeline


class AcknowledgedChannel(SentinelChannel):
    """A channel whose messages are on a replica when they are sent."""

    def _put(self, queue: str, message: object, **_: object) -> None:
        channel: Any = self  # kombu has few types
        key = channel._q_for_pri(queue, channel._get_message_priority(message, reverse=False))
        with channel.conn_or_acquire() as client, AcknowledgedPipeline.wrap(client, transaction=False) as pipe:
            # Only kombu's own pipelines put its prefix before a key.
            pipe.lpush(f"{getattr(client, 'global_keyprefix', '')}{key}", dumps(message))
            pipe.execute()

    def _get_pool(self, asynchronous: bool = False) -> Any:
        # A channel that closes after its connection can't reach the server: raise a connection error, which
        # callers expect. Without it the worker ended.
        channel: Any = super()
        if self.connection.client is None:
            raise redis.ConnectionError("The connection to the broker is closed.")
        return channel._get_pool(asynchronous)


class AcknowledgedTransport(SentinelTransport):
    """Kombu's sentinel transport with such channels."""

    Channel = AcknowledgedChannel
