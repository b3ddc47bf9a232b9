"""Answers in a chat, which become notes on an alert.

People who may write in the chat can add notes and nothing else: the actions in Weir's messages are links behind a
login.
"""

import time
from datetime import timedelta
from typing import NoReturn

from django.conf import settings
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils import timezone
from ninja.errors import AuthenticationError

from common import environment as variables
from common.errors import BadInput
from console.accounts import token_failures
from console.accounts.access import Actor
from console.actions import alerts
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.ingestion import chat_message
from console.api.ingestion.chat_message import ChatMessage, Unproven
from console.api.request.refusals import RefusedError
from console.api.schemas.alerts.receivers import ChatReply
from console.input.plain_text import UNSTORABLE, is_plain
from workers.alerts.delivery import apprise
from workers.alerts.lifecycle.models import AlertEvent, Receiver

router = Router(tags=["alerts"])
# A service that received no answer sends the same again.
AGAIN = timedelta(minutes=10)
# Limit for all chats in that time, so that a person in one of them can't fill the database.
MAX_NOTES = 120
MAX_NAME = 80
HELP = "Start with the alert's number, such as \"12 n3 is restarted\", or reply to the alert's message."
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "object"}} for kind in ("application/x-www-form-urlencoded", "application/json")
        },
    }
}


@router.post(
    "/chat/{receiver}", auth=None, response=ChatReply, summary="Add a chat reply as a note", openapi_extra=BODY
)
def take_chat_answer(request: HttpRequest, receiver: str) -> ChatReply:
    """Record a note on the alert that the message names.

    For a slash command of Slack or Mattermost, an outgoing webhook of Mattermost, Rocket.Chat, Zulip or Teams, a
    webhook of Telegram; the secret that they share with Weir is in the variable that the receiver names
    (`answers_environment`). 401 where it is another's. What is no answer (an edited message, another command, a message
    of another chat) is ignored, with 200. Slack's `url_verification` gets its `challenge` back.
    """
    address, request_id = request.META.get("REMOTE_ADDR"), getattr(request, "request_id", "")
    actor = Actor(
        name=f"chat:{receiver}",
        role="operator",
        address=address,
        request_id=request_id,
        actions=frozenset({"alert.note"}),
    )
    row = Receiver.objects.filter(name=receiver, channel=Receiver.Channel.APPRISE, enabled=True).first()
    try:
        message = _proven(request, row)
    except Unproven:
        _refuse(actor)
    if message.challenge:
        return {"challenge": message.challenge}
    if message.is_ignored or not _is_of_receiver(message, row):
        return convert(ChatReply, {})
    return convert(ChatReply, message.reply(_record_message(actor, message)))


def _proven(request: HttpRequest, receiver: Receiver | None) -> ChatMessage:
    """Return the message.

    Raises `Unproven`, and `Http404` for a receiver that does not exist or accepts no answers.
    """
    try:
        secret = variables.read_secret(receiver.settings.get("answers_environment", "")) if receiver else ""
    except BadInput:  # it can't be what the chat sends
        secret = ""
    if receiver is None or not secret:
        raise Http404("No receiver of this name accepts replies; set the receiver's variable for chat replies.")
    return chat_message.read(request.headers, request.body, secret, time.time())


def _is_of_receiver(message: ChatMessage, receiver: Receiver | None) -> bool:
    """Return whether it comes from a chat of the receiver, if the service names the chat."""
    if message.chat is None or receiver is None:
        return message.chat is None
    # An address may name a topic of a chat after its number, and names are case-insensitive.
    ours = {target.partition(":")[0].lower() for target in apprise.parse_chat_names(receiver)}
    return any(name.lower() in ours for name in message.chat)


def _refuse(actor: Actor) -> NoReturn:
    why = "the secret of this chat does not match"
    try:
        token_failures.count(actor.address or "", actor.request_id, actor.name[:MAX_NAME], why)
    except token_failures.TooManyFailures as error:
        raise RefusedError(429, "authorization", str(error), error.seconds) from None
    raise AuthenticationError(message=f"{why.capitalize()}.")


def _record_message(actor: Actor, message: ChatMessage) -> str:
    """Record the note; return the reply."""
    number, words = message.parse_alert_reference()
    if number is None or not words:
        return HELP
    if not is_plain(message.who + words):
        return f"Not recorded: text {UNSTORABLE}"
    text, now = f"{message.who}, in a chat: {words}", timezone.now()
    lately = AlertEvent.objects.filter(kind=AlertEvent.Kind.NOTE, by=None, at__gt=now - AGAIN)
    try:
        if not lately.filter(alert=number, text=text).exists():
            if lately.count() >= MAX_NOTES:
                return f"Not recorded: {MAX_NOTES} replies arrived in 10 min; add your note on the alert's page."
            alerts.note(actor, number, text=text, now=now)
    except BadInput as error:
        return f"Not recorded: {error.field} {error.message}"
    return f"Added to alert {number}: {settings.WEIR_PUBLIC_URL}{reverse('alert', args=[number])}"
