"""Messages to chat or a pager by the apprise library: Slack, Teams, PagerDuty, Matrix, Telegram, and more.

The address (slack://…, pagerduty://…) is a secret: it is the value of the environment variable that the receiver names,
and appears on no page, in no error, and in no table. A separate process sends each message (`apprise_process`). It
applies the egress policy at each connection, knows only this message, and is ended at its deadline.

A chat service doesn't detect a repetition by its key: a message that was taken while the alerter died may arrive twice.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from django.conf import settings

from common import environment as variables
from common.errors import BadInput
from workers.alerts.delivery import message_text
from workers.alerts.lifecycle.models import Message, Receiver
from workers.host import bounded_process, egress
from workers.host.bounded_process import ProcessFailed

MODULE = "workers.alerts.delivery.apprise_process"
# In addition to a request's 10 s, the process needs a second of a core to start, and longer on a busy host.
PROCESS_SECONDS = 60.0
MAX_BODY = 20_000
KINDS = {"critical": "failure", "warning": "warning", "notice": "info"}


def send(message: Message, now_seconds: float) -> str:
    """Send to those of the named targets that do not have the message yet.

    Returns why some were left out, if one service represents several targets and does not say which; "" if none was.
    These are not tried again: the others would receive the message again each time.
    """
    order = {
        "address": read_address(message.receiver),
        "kind": ("success" if message.content["kind"] == "resolved" else KINDS[message.content["severity"]]),
        "title": message_text.remove_markup(message_text.format_subject(message.content)),
        "body": message_text.keep_whole_lines(message_text.remove_markup("\n".join(_iterate_lines(message))), MAX_BODY),
        "allowed": settings.WEIR_EGRESS_ALLOW,
        "key": message.key,
        "tries": message.tries,
        "reached": message.reached or [],
    }
    try:
        answer = bounded_process.answer_of(MODULE, order, PROCESS_SECONDS)
    except ProcessFailed as error:
        raise message_text.Failed(f"The process that sends to the chat service {error}.") from None
    if not answer["sent"]:
        raise message_text.Failed(answer["error"], reached=answer["reached"])
    return str(answer["error"])


def _iterate_lines(message: Message) -> Iterator[str]:
    """Return the text, and how to answer it if the chat's answers are read."""
    yield from message_text.iterate_message_lines(message.content)
    if message.receiver.settings.get("answers_environment"):
        numbers = [str(alert["id"]) for alert in message.content["alerts"]]
        if numbers:
            yield f"Start a reply with {' or '.join(numbers)} to add it to the alert."


def setup_error(receiver: Receiver) -> str:
    """Return why nothing can be sent; "" if it can."""
    try:
        read_address(receiver)
    except message_text.Failed as error:
        return str(error)
    return ""


def parse_chat_names(receiver: Receiver, environment: Mapping[str, str] = variables.PROCESS) -> frozenset[str]:
    """Return the chats that its address names after the host; none if there is no address."""
    try:
        place = read_address(receiver, environment).partition("://")[2].partition("?")[0]
    except message_text.Failed:
        return frozenset()
    return frozenset(unquote(part) for part in place.split("/")[1:] if part)


def read_address(receiver: Receiver, environment: Mapping[str, str] = variables.PROCESS) -> str:
    """Return the address in the variable that the receiver names. Raises `Failed`."""
    name = receiver.settings.get("secret_environment", "")
    try:
        egress.check_secret_name(name, "secret_environment")
    except BadInput as error:
        raise message_text.Failed(f"{error.field} {error.message} Change the receiver.") from None
    address = message_text.read_secret_variable(name, environment)
    if not address:
        raise message_text.Failed(f"{name} is not set in the alerter's environment. Set it to an Apprise address.")
    return address
