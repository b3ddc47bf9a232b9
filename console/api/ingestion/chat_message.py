"""Posts of chat services when a person answers there, authenticated by a secret shared with Weir.

    Slack                   X-Slack-Signature: HMAC-SHA256 of "v0:time:body", at most five minutes old
    Microsoft Teams         Authorization: HMAC …, HMAC-SHA256 of the body, under a key in base64
    Telegram                X-Telegram-Bot-Api-Secret-Token: the secret itself
    Mattermost              Authorization: Token …, the secret itself, or `token` in the body
    Rocket.Chat, Zulip      `token` in the body, a form or JSON: the secret itself

Each proof is checked separately, and one valid proof is enough. A post of an authenticated service is read or ignored,
never rejected: services repeat a rejected request, and delay the following ones.

An answer names its alert: by its number at the start ("12 n3 is restarted"), or by the link in the message that it
answers.
"""

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

import orjson

from common.errors import BadInput
from common.parsing import parse_digits
from console.input.boundary import parse_json_body

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
        fields_of_body = _parse_form(body)
    return fields_of_body if isinstance(fields_of_body, dict) else {}


def _parse_form(body: bytes) -> Fields:
    try:
        fields_of_form = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields_of_form.items()}


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
