"""Sends what is due: one message at a time to each receiver, several receivers at once."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from workers.alerts.delivery import outbox
from workers.alerts.delivery.channels import alertmanager, email, webhook
from workers.alerts.delivery.channels.channel import Failed
from workers.alerts.lifecycle.models import Message, Receiver

logger = logging.getLogger(__name__)
AT_ONCE = 8
Send = Callable[[Message, float], None]


def shown_by_browsers(message: Message, now_seconds: float) -> None:
    """Nothing to send: the announcement is in the snapshot, and every open console shows it."""


CHANNELS: Mapping[str, Send] = {
    Receiver.Channel.BROWSER: shown_by_browsers,
    Receiver.Channel.EMAIL: email.send,
    Receiver.Channel.WEBHOOK: webhook.send,
    Receiver.Channel.ALERTMANAGER: alertmanager.send,
}


def deliver(
    clock: Callable[[], datetime], alive: Callable[[], bool], channels: Mapping[str, Send] = CHANNELS
) -> int:
    """Bundle what is owed and send what is due; returns how many messages arrived.

    `alive` is asked before each round of sending: who has lost the lease sends nothing more.
    """
    outbox.bundle(clock())
    arrived = 0
    while alive() and (messages := _next_of_each(outbox.due(clock()))):
        arrived += _send_all(messages, clock, channels)
    return arrived


def _next_of_each(messages: list[Message]) -> list[Message]:
    """The oldest message of each receiver: a receiver gets them in their order, while it answers."""
    oldest: dict[int, Message] = {}
    for message in messages:
        oldest.setdefault(message.receiver_id, message)
    return list(oldest.values())


def _send_all(messages: list[Message], clock: Callable[[], datetime], channels: Mapping[str, Send]) -> int:
    now_seconds = clock().timestamp()
    arrived = 0
    with ThreadPoolExecutor(min(AT_ONCE, len(messages))) as pool:
        calls = [(each, pool.submit(channels[each.receiver.channel], each, now_seconds)) for each in messages]
        for message, call in calls:
            # The database is this thread's alone: the others only send.
            arrived += _noted(message, call.exception(), clock())
    return arrived


def _noted(message: Message, error: BaseException | None, now: datetime) -> bool:
    if error is None:
        outbox.sent(message, now)
        return True
    for_good = isinstance(error, Failed) and error.for_good
    outbox.failed(message, str(error) if isinstance(error, Failed) else repr(error), now, for_good)
    return False
