"""Answers in a chat, which become notes on an alert.

People who may write in the chat can add notes and nothing else: the actions in Weir's messages are links behind a
login.
"""

import base64
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, NoReturn, NotRequired, TypedDict
from urllib.parse import parse_qs

import orjson
from django.conf import settings
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils import timezone
from ninja.errors import AuthenticationError

from common import environment as variables
from common.errors import BadInput
from common.parsing import parse_digits
from common.stored_document import describe
from console.accounts import authentication
from console.accounts.access import Actor
from console.actions import alerts
from console.api.request.answers import Router, convert
from console.api.request.refusals import RefusedError
from console.input.boundary import parse_json_body
from console.input.storable import UNSTORABLE, is_plain
from workers.alerts.delivery import apprise
from workers.alerts.lifecycle.models import AlertEvent, Receiver

router = Router(tags=["alerts"])

NEWEST_SECONDS = 300.0
# A form repeats a field for each person that its text mentions.
MAX_FIELDS = 2_000
MAX_WHO = 60
MAX_CHALLENGE = 1_000
# What calls us by our name: "/weir", "/weir@bot", "@**weir**", "<at>weir</at>", "@weir".
CALL = re.compile(r"\s*(?:/\w+(?:@\w+)?|@\*\*[^*]*\*\*|<at>[^<]*</at>|@\w+)(?:\s|&nbsp;)*")
# A Telegram group shows a bot the commands of other bots, too.
OTHER_COMMAND = re.compile(r"\s*/(?!weir\b)\w", re.IGNORECASE)
NUMBER = re.compile(r"\s*#?([0-9]{1,12})\b[\s:,.]*")
LINK = re.compile(r"/alerts/([0-9]{1,12})/")


class Unproven(Exception):  # noqa: N818
    """The sender does not know the secret."""


@dataclass(frozen=True)
class ChatMessage:
    """A message from a chat service.

    who: as the service calls them. text: without what calls us. quoted: what it answers. chat: names of the chat it
    comes from, where a stranger could write in one of their own. reply: our words, as the service shows them.
    is_ignored: it is no answer, so nothing is recorded and nothing is said. challenge: the text that Slack wants back
    before it uses the address.
    """

    who: str
    text: str
    quoted: str = ""
    chat: tuple[str, ...] | None = None
    reply: Callable[[str], dict[str, Any]] = lambda words: {"text": words}
    is_ignored: bool = False
    challenge: str = ""

    def parse_alert_reference(self) -> tuple[int | None, str]:
        """Return the number of the alert that it is about, None for none, and the text.

        If it quotes a message, a number that is none of its alerts is text: "3 nodes are back".
        """
        quoted, number = LINK.findall(self.quoted), NUMBER.match(self.text)
        if number and (not quoted or number[1] in quoted):
            return int(number[1]), self.text[number.end() :].strip()
        return (int(quoted[0]) if quoted else None), self.text.strip()


IGNORED = ChatMessage("", "", is_ignored=True)
Fields = Mapping[str, Any]


def read(headers: Mapping[str, str], body: bytes, secret: str, now_seconds: float) -> ChatMessage:
    """Read what a chat service posted. Raises `Unproven`."""
    reader = _find_verified_reader(headers, body, secret, now_seconds) if secret else None
    if reader is None:
        raise Unproven
    return reader(_parse_fields(body))


def _find_verified_reader(
    headers: Mapping[str, str], body: bytes, secret: str, now_seconds: float
) -> Callable[[Fields], ChatMessage] | None:
    """Return the reader of the service whose proof is valid, None if there is none."""
    if _is_signed_by_slack(headers, body, secret, now_seconds):
        return _read_slack
    if _is_same(headers.get("X-Telegram-Bot-Api-Secret-Token", ""), secret):
        return _read_telegram
    authorization = headers.get("Authorization", "")
    if _is_signed_by_teams(authorization, body, secret):
        return _read_teams
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "token" and _is_same(token.strip(), secret):
        return _read_posted
    return _read_posted if _is_same(_get_text(_parse_fields(body), "token"), secret) else None


def _is_signed_by_slack(headers: Mapping[str, str], body: bytes, secret: str, now_seconds: float) -> bool:
    sent_at = headers.get("X-Slack-Request-Timestamp", "")
    expected = hmac.new(secret.encode(), f"v0:{sent_at}:".encode() + body, sha256).hexdigest()
    sent_seconds = parse_digits(sent_at, 12)
    is_recent = sent_seconds is not None and abs(now_seconds - sent_seconds) <= NEWEST_SECONDS
    return is_recent and _is_same(headers.get("X-Slack-Signature", ""), f"v0={expected}")


def _is_signed_by_teams(authorization: str, body: bytes, secret: str) -> bool:
    try:
        key = base64.b64decode(secret, validate=True)
    except ValueError:  # of base64, or of a secret that is not ASCII
        return False
    expected = base64.b64encode(hmac.new(key, body, sha256).digest()).decode()
    return bool(key) and _is_same(authorization, f"HMAC {expected}")


def _is_same(proof: str, expected: str) -> bool:
    return hmac.compare_digest(proof.encode(errors="replace"), expected.encode())


def _read_slack(posted: Fields) -> ChatMessage:
    """Events and buttons come signed as well, and have no text of a person."""
    if posted.get("bot_id") or posted.get("user_name") == "slackbot":
        return IGNORED
    return _read_posted(posted)


def _read_teams(posted: Fields) -> ChatMessage:
    sender = _get_mapping(posted, "from")
    if posted.get("type", "message") != "message" or sender.get("role") == "bot" or "text" not in posted:
        return IGNORED
    return ChatMessage(
        _find_sender(sender, "name"), _read_text(posted), reply=lambda words: {"type": "message", "text": words}
    )


def _read_telegram(posted: Fields) -> ChatMessage:
    """Read a message of Telegram, where only a new message is an answer.

    Anybody may write to a bot, so it includes the chat. An anonymous administrator appears as a bot, with the chat as
    the sender.
    """
    message = _get_mapping(posted, "message")
    sender, chat = _get_mapping(message, "from"), _get_mapping(message, "chat")
    text = _get_text(message, "text")
    is_of_bot = sender.get("is_bot") is True and "sender_chat" not in message
    if not text or is_of_bot or OTHER_COMMAND.match(text):
        return IGNORED
    number = chat.get("id")

    def reply(words: str) -> dict[str, Any]:
        return {"method": "sendMessage", "chat_id": number, "text": words}

    return ChatMessage(
        _find_sender(sender, "username", "first_name"),
        _read_text(message),
        _get_text(_get_mapping(message, "reply_to_message"), "text"),
        (str(number), f"@{_get_text(chat, 'username')}"),
        reply,
    )


def _read_posted(posted: Fields) -> ChatMessage:
    """Read a post of Slack, Mattermost, Rocket.Chat, or Zulip; they differ in few fields."""
    if posted.get("type") == "url_verification":
        challenge = _get_text(posted, "challenge")
        return replace(IGNORED, challenge=challenge if len(challenge) <= MAX_CHALLENGE else "")
    if "message" in posted:
        return _read_zulip(posted)
    # Rocket.Chat also posts messages of bots and its own, and a message again when it is edited.
    if "text" not in posted or _is_set(posted, "bot") or _is_set(posted, "isEdited"):
        return IGNORED
    return ChatMessage(_find_sender(posted, "user_name"), _read_text(posted), reply=_format_reply)


def _read_zulip(posted: Fields) -> ChatMessage:
    message = _get_mapping(posted, "message")
    own = _get_text(posted, "bot_email")
    if "data" not in posted or (own and _get_text(message, "sender_email") == own):
        return IGNORED
    return ChatMessage(
        _find_sender(message, "sender_full_name"),
        _read_text({"text": posted.get("data")}),
        reply=lambda words: {"content": words},
    )


def _format_reply(words: str) -> dict[str, Any]:
    """Return a reply that is visible to everybody in the chat."""
    return {"response_type": "in_channel", "text": words}


def _parse_fields(body: bytes) -> Fields:
    """Return the fields of a JSON object or of a form; none if the body is neither."""
    try:
        fields_of_body = parse_json_body(body)
    except (orjson.JSONDecodeError, BadInput):
        try:
            form = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            return {}
        fields_of_body = {name: values[-1] for name, values in form.items()}
    return fields_of_body if isinstance(fields_of_body, dict) else {}


def _is_set(document: Fields, name: str) -> bool:
    return document.get(name) not in (None, False, "", "false")


def _get_mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _get_text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _find_sender(document: Mapping[str, Any], *names: str) -> str:
    sender = next((text for name in names if (text := _get_text(document, name))), "somebody")
    return " ".join(sender.split())[:MAX_WHO]


def _read_text(document: Mapping[str, Any]) -> str:
    """Return the text without the trigger word."""
    text, trigger = _get_text(document, "text"), _get_text(document, "trigger_word")
    if trigger and text.startswith(trigger):
        return text[len(trigger) :].lstrip(" :,")
    called = CALL.match(text)
    return text[called.end() :] if called else text


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


class ChatReply(TypedDict):
    """A message in the format of the chat service."""

    text: NotRequired[Annotated[str, describe("Text for Slack, Mattermost, Rocket.Chat, Teams, and Telegram.")]]
    content: NotRequired[Annotated[str, describe("Text for Zulip.")]]
    response_type: NotRequired[str]
    type: NotRequired[str]
    method: NotRequired[str]
    chat_id: NotRequired[int | None]
    challenge: NotRequired[Annotated[str, describe("Reply to Slack's URL verification.")]]


@router.post("/chat/{receiver}", auth=None, summary="Add a chat reply as a note", openapi_extra=BODY)
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
    """Return the message. Raises `Unproven`, and `Http404` for a receiver that does not exist or accepts no answers."""
    try:
        secret = variables.read_secret(receiver.settings.get("answers_environment", "")) if receiver else ""
    except BadInput:  # it can't be what the chat sends
        secret = ""
    if receiver is None or not secret:
        raise Http404("No receiver of this name accepts replies. Set the receiver's variable for chat replies.")
    return read(request.headers, request.body, secret, time.time())


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
        authentication.count(actor.address or "", actor.request_id, actor.name[:MAX_NAME], why)
    except authentication.TooManyFailures as error:
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
                return f"Not recorded: {MAX_NOTES} replies arrived in 10 min. Add your note on the alert's page."
            alerts.note(actor, number, text=text, now=now)
    except BadInput as error:
        return f"Not recorded: {error.field} {error.message}"
    return f"Added to alert {number}: {settings.WEIR_PUBLIC_URL}{reverse('alert', args=[number])}"
