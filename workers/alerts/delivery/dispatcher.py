"""Sends what is due: one message at a time to each receiver, to several receivers in parallel."""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime

from workers.alerts.delivery import alertmanager, apprise, email, outbox, webhook
from workers.alerts.delivery.message_text import Failed
from workers.alerts.lifecycle.models import Message, Receiver

AT_ONCE = 16
ROUND_SECONDS = 1.0
Send = Callable[[Message, float], str | None]  # which parts of a receiver were left out, in a sentence


def skip_browser_message(message: Message, now_seconds: float) -> None:
    """Send nothing: the announcement is in the snapshot, and every open console shows it."""


def refuse_schedule_message(message: Message, now_seconds: float) -> None:
    """Refuse a message to a schedule: the person on call receives it. Only a test gets here."""
    raise Failed("A schedule receives no messages. Test the receivers that the schedule names.", for_good=True)


CHANNELS: Mapping[str, Send] = {
    Receiver.Channel.BROWSER: skip_browser_message,
    Receiver.Channel.EMAIL: email.send,
    Receiver.Channel.WEBHOOK: webhook.send,
    Receiver.Channel.ALERTMANAGER: alertmanager.send,
    Receiver.Channel.APPRISE: apprise.send,
    Receiver.Channel.SCHEDULE: refuse_schedule_message,
}


def deliver(clock: Callable[[], datetime], alive: Callable[[], bool], channels: Mapping[str, Send] = CHANNELS) -> int:
    """Bundle what is owed and send what is due, until nothing is; return how many messages were delivered.

    A message that becomes due meanwhile is sent at once: a receiver that hangs doesn't delay the others. `alive` is
    called before each round: a process that lost the lease sends nothing more.
    """
    arrived = 0
    on_way: dict[Future[str | None], Message] = {}
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while alive():
                outbox.bundle(clock())
                busy = {message.receiver_id for message in on_way.values()}
                for message in outbox.list_due_messages(clock(), busy):
                    send = channels[message.receiver.channel]
                    on_way[pool.submit(send, message, clock().timestamp())] = message
                if not on_way:
                    break
                ended, _ = wait(on_way, ROUND_SECONDS, FIRST_COMPLETED)
                # Only this thread uses the database: the others only send.
                arrived += _record_results({call: on_way.pop(call) for call in ended}, clock())
    finally:
        # Also after a failed round: what was sent and is not recorded is sent again.
        arrived += _record_results(on_way, clock())
    return arrived


def _record_results(calls: Mapping[Future[str | None], Message], now: datetime) -> int:
    """Record the results; return how many messages were delivered.

    One that can't be recorded doesn't prevent the others; its error is raised afterwards.
    """
    arrived, failure = 0, None
    for call, message in calls.items():
        error = call.exception()
        try:
            if error is None:
                outbox.mark_delivered(message, now, call.result() or "")
                arrived += 1
            elif isinstance(error, Failed):
                outbox.mark_failed(message, str(error), now, error.for_good, error.reached)
            else:
                outbox.mark_failed(message, repr(error), now)
        except Exception as refused:
            failure = failure or refused
    if failure is not None:
        raise failure
    return arrived
