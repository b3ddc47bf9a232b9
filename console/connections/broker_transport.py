"""Celery's messages behind sentinels: one counts as sent when a replica has it.

So a worker that a loop has started is not lost with the primary that took the message.
"""

from typing import Any

from kombu.transport.redis import SentinelChannel, SentinelTransport
from kombu.utils.json import dumps

from queues.control.acknowledged import COPIES, MOST_MILLISECONDS, check_copies


class AcknowledgedChannel(SentinelChannel):
    """A channel whose messages are on a replica when they are sent."""

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        channel: Any = self  # kombu types little of it
        key = channel._q_for_pri(queue, channel._get_message_priority(message, reverse=False))
        with channel.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            pipe.lpush(key, dumps(message))
            pipe.execute_command("WAIT", COPIES, MOST_MILLISECONDS)
            check_copies(pipe.execute()[-1])


class AcknowledgedTransport(SentinelTransport):
    """Kombu's sentinel transport with such channels."""

    Channel = AcknowledgedChannel
