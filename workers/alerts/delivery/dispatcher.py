"""Sends what is due: one message at a time to each receiver, several receivers at once."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime

from workers.alerts.delivery import outbox
from workers.alerts.delivery.channels import alertmanager, apprise, email, webhook
from workers.alerts.delivery.channels.channel import Failed
from workers.alerts.lifecycle.models import Message, Receiver

logger = logging.getLogger(__name__)
AT_ONCE = 16
ROUND_SECONDS = 1.0
Send = Callable[[Message, float], str | None]  # who of a receiver was left out, in a sentence


def skip_browser_message(message: Message, now_seconds: float) -> None:
    """Nothing to send: the announcement is in the snapshot, and every open console shows it."""


def refuse_schedule_message(message: Message, now_seconds: float) -> None:
    """A schedule gets no message: whoever is on call does. Only a test comes here."""
    raise Failed("A schedule gets no message; test the receivers of the people it names.", for_good=True)


CHANNELS: Mapping[str, Send] = {
    Receiver.Channel.BROWSER: skip_browser_message,
    Receiver.Channel.EMAIL: email.send,
    Receiver.Channel.WEBHOOK: webhook.send,
    Receiver.Channel.ALERTMANAGER: alertmanager.send,
    Receiver.Channel.APPRISE: apprise.send,
    Receiver.Channel.SCHEDULE: refuse_schedule_message,
}


def deliver(
    clock: Callable[[], datetime], alive: Callable[[], bool], channels: Mapping[str, Send] = CHANNELS
) -> int:
    """Bundle what is owed and send what is due, until nothing is; returns how many messages arrived.

    What becomes due meanwhile goes out at once: a receiver that hangs keeps no other waiting. `alive` is
    asked before each round: who has lost the lease sends nothing more.
    """
    arrived = 0
    on_way: dict[Future[str | None], Message] = {}
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while alive():
                outbox.bundle(clock())
                busy = {message.receiver_id for message in on_way.values()}
                for message in outbox.due(clock(), busy):
                    send = channels[message.receiver.channel]
                    on_way[pool.submit(send, message, clock().timestamp())] = message
                if not on_way:
                    break
                ended, _ = wait(on_way, ROUND_SECONDS, FIRST_COMPLETED)
                # The database is this thread's alone: the others only send.
                arrived += _record_results({call: on_way.pop(call) for call in ended}, clock())
    finally:
        # Also of a round that failed: what was sent and is not noted is sent again.
        arrived += _record_results(on_way, clock())
    return arrived


def _record_results(calls: Mapping[Future[str | None], Message], now: datetime) -> int:
    """How many arrived. One that can't be noted keeps no other from it; then its error is raised."""
    arrived, failure = 0, None
    for call, message in calls.items():
        try:
            arrived += _record_result(message, call, now)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return arrived


def _record_result(message: Message, call: Future[str | None], now: datetime) -> bool:
    error = call.exception()
    if error is None:
        outbox.mark_delivered(message, now, call.result() or "")
        return True
    if isinstance(error, Failed):
        outbox.mark_failed(message, str(error), now, error.for_good, error.reached)
    else:
        outbox.mark_failed(message, repr(error), now)
    return False
