"""Sends a message to chat or a pager, by the library apprise: Slack, Teams, PagerDuty, Matrix, Telegram …

The address (slack://…, pagerduty://…) is a secret: it is the value of the environment variable that the
receiver names, and stands on no page, in no error and in no table. Each message is sent by a process of its
own (`apprise_process`), which holds the egress policy at each connection, knows nothing but this message,
and is ended when its time is over.

A chat knows no repetition by its key: a message that was taken while the alerter died may come twice.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings

from queues import environment as variables
from queues.errors import BadInput
from workers.alerts.delivery.channels.channel import Failed
from workers.alerts.delivery.channels.message_text import lines, subject
from workers.alerts.lifecycle.models import Message, Receiver
from workers.host import egress
from workers.host.environment import needed, python_path

COMMAND = (sys.executable, "-m", "workers.alerts.delivery.channels.apprise_process")
ROOT = Path(__file__).resolve().parents[4]
# Beside a request's 10 s, the process needs a second of a core to begin, and longer on a busy host.
PROCESS_SECONDS = 60.0
LONGEST_BODY = 20_000
KINDS = {"critical": "failure", "warning": "warning", "notice": "info"}


def send(message: Message, now_seconds: float) -> None:
    """See `workers.alerts.delivery.channels.channel`."""
    order = {
        "address": address_of(message.receiver),
        "kind": _kind(message.content),
        "title": subject(message.content),
        "body": "\n".join(lines(message.content))[:LONGEST_BODY],
        "allowed": settings.WEIR_EGRESS_ALLOW,
    }
    try:
        # Its whole environment: neither a proxy nor ~/.netrc nor a secret of others is there to be used.
        done = subprocess.run(
            COMMAND,
            input=orjson.dumps(order),
            capture_output=True,
            timeout=PROCESS_SECONDS,
            check=False,
            env={
                **needed(variables.PROCESS),
                variables.PYTHONPATH: python_path(str(ROOT)),
                "NETRC": "/dev/null",
            },
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"The chat service did not take it within {PROCESS_SECONDS:.0f} s.") from None
    answer = _answer(done)
    if not answer["sent"]:
        raise Failed(answer["error"])


def _answer(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = orjson.loads(done.stdout)
    except orjson.JSONDecodeError:
        # What it says on standard error may hold the address.
        raise Failed(
            f"The process that sends to chat ended with {done.returncode}, without a word."
        ) from None
    return answer


def _kind(content: Mapping[str, Any]) -> str:
    """Apprise's type of a message: the colour or the sign that the service gives it."""
    return "success" if content["kind"] == "resolved" else KINDS[content["severity"]]


def setup_error(receiver: Receiver) -> str:
    """Why nothing can be sent, "" when it can."""
    try:
        address_of(receiver)
    except Failed as error:
        return str(error)
    return ""


def address_of(receiver: Receiver, environment: Mapping[str, str] = variables.PROCESS) -> str:
    """The address in the variable that the receiver names. Raises Failed."""
    name = receiver.settings.get("secret_environment", "")
    try:
        egress.check_secret_name(name, "secret_environment")
    except BadInput as error:
        raise Failed(f"{error.field} {error.message} Change the receiver.") from None
    address = variables.secret_named(name, environment)
    if not address:
        raise Failed(f"{name} is not set in the alerter's environment; set it to an address of apprise.")
    return address
