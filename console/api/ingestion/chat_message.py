"""What a chat service posts when somebody answers there, proven by a secret that it shares with us.

    Slack                   X-Slack-Signature: HMAC-SHA256 of "v0:time:body", at most five minutes old
    Microsoft Teams         Authorization: HMAC …, HMAC-SHA256 of the body, under a key in base64
    Telegram                X-Telegram-Bot-Api-Secret-Token: the secret itself
    Mattermost, Rocket.Chat and Zulip
                            `token` in the body, a form or JSON: the secret itself

An answer names its alert: by its number at the beginning ("12 n3 is restarted"), or by the link in the
message that it answers.
"""

import base64
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs

import orjson

from console.input.boundary import document_of
from console.input.plain_text import UNSTORABLE, is_plain
from queues.errors import BadInput

NEWEST_SECONDS = 300.0
MOST_FIELDS = 60
LONGEST_WHO = 60
# What calls us by our name: "/weir", "/weir@bot", "@**weir**", "<at>weir</at>", "@weir".
CALL = re.compile(r"\s*(?:/\w+(?:@\w+)?|@\*\*[^*]*\*\*|<at>[^<]*</at>|@\w+)(?:\s|&nbsp;)*")
NUMBER = re.compile(r"\s*#?(\d{1,12})\b[\s:,.]*")
LINK = re.compile(r"/alerts/(\d{1,12})/")


class Unproven(Exception):  # noqa: N818
    """Whoever sent it does not know the secret."""


@dataclass(frozen=True)
class ChatMessage:
    """who: as the service calls them. text: without what calls us. quoted: what it answers. chat: names of
    the chat it comes from, where a stranger could write in one of their own. reply: our words, as the
    service shows them.
    """

    who: str
    text: str
    quoted: str = ""
    chat: tuple[str, ...] | None = None
    reply: Callable[[str], dict[str, Any]] = lambda words: {"text": words}

    def alert(self) -> tuple[int | None, str]:
        """The number of the alert that it is about, None for none, and the words beside it. Of a message that
        it answers a number that is none of its alerts is a word: "3 nodes are back".
        """
        quoted, found = LINK.findall(self.quoted), NUMBER.match(self.text)
        if found and (not quoted or found[1] in quoted):
            return int(found[1]), self.text[found.end() :].strip()
        return (int(quoted[0]) if quoted else None), self.text.strip()


def read(headers: Mapping[str, str], body: bytes, secret: str, now_seconds: float) -> ChatMessage:
    """Raises Unproven, and BadInput naming what can't be read."""
    for header, reader in BY_HEADER.items():
        if proof := headers.get(header, ""):
            return reader(proof, headers, body, secret, now_seconds)
    posted = _fields(body)
    if not secret or not hmac.compare_digest(_text(posted, "token").encode(), secret.encode()):
        raise Unproven
    if "message" in posted:
        return _zulip(posted)
    return ChatMessage(_who(posted, "user_name"), _said(posted), reply=_in_channel)


def _slack(
    proof: str, headers: Mapping[str, str], body: bytes, secret: str, now_seconds: float
) -> ChatMessage:
    sent_at = headers.get("X-Slack-Request-Timestamp", "")
    expected = hmac.new(secret.encode(), f"v0:{sent_at}:".encode() + body, sha256).hexdigest()
    _check(secret, proof, f"v0={expected}")
    if not sent_at.isdecimal() or abs(now_seconds - int(sent_at[:12])) > NEWEST_SECONDS:
        raise Unproven
    posted = _form(body)
    return ChatMessage(_who(posted, "user_name"), _said(posted), reply=_in_channel)


def _teams(proof: str, _: Mapping[str, str], body: bytes, secret: str, __: float) -> ChatMessage:
    try:
        key = base64.b64decode(secret, validate=True)
    except ValueError:  # of base64, or of a secret that is no ASCII
        raise Unproven from None
    expected = base64.b64encode(hmac.new(key, body, sha256).digest()).decode()
    _check(key.decode("latin-1"), proof, f"HMAC {expected}")
    posted = _json(body)
    return ChatMessage(
        _who(_inner(posted, "from"), "name"),
        _said(posted),
        reply=lambda words: {"type": "message", "text": words},
    )


def _telegram(proof: str, _: Mapping[str, str], body: bytes, secret: str, __: float) -> ChatMessage:
    """Anybody may write to a bot, so it also says from which chat."""
    _check(secret, proof, secret)
    message = _inner(_json(body), "message")
    sender, chat = _inner(message, "from"), _inner(message, "chat")
    number = chat.get("id")

    def reply(words: str) -> dict[str, Any]:
        return {"method": "sendMessage", "chat_id": number, "text": words}

    return ChatMessage(
        _who(sender, "username", "first_name"),
        _said(message),
        _text(_inner(message, "reply_to_message"), "text"),
        (str(number), f"@{_text(chat, 'username')}"),
        reply,
    )


def _zulip(posted: Mapping[str, Any]) -> ChatMessage:
    message = _inner(posted, "message")
    return ChatMessage(
        _who(message, "sender_full_name"),
        _said({"text": posted.get("data")}),
        reply=lambda words: {"content": words},
    )


BY_HEADER: Mapping[str, Callable[[str, Mapping[str, str], bytes, str, float], ChatMessage]] = {
    "X-Slack-Signature": _slack,
    "X-Telegram-Bot-Api-Secret-Token": _telegram,
    "Authorization": _teams,
}


def _check(secret: str, proof: str, expected: str) -> None:
    if not secret or not hmac.compare_digest(proof.encode(), expected.encode()):
        raise Unproven


def _in_channel(words: str) -> dict[str, Any]:
    """Also for those who did not ask."""
    return {"response_type": "in_channel", "text": words}


def _fields(body: bytes) -> Mapping[str, Any]:
    return _json(body) if body.lstrip().startswith(b"{") else _form(body)


def _form(body: bytes) -> Mapping[str, Any]:
    try:
        found = parse_qs(body.decode(), max_num_fields=MOST_FIELDS)
    except ValueError:
        raise BadInput("body", f"takes a form in UTF-8 of at most {MOST_FIELDS} fields.") from None
    for name, values in found.items():
        if not (is_plain(name) and all(map(is_plain, values))):
            raise BadInput("body", UNSTORABLE)
    return {name: values[-1] for name, values in found.items()}


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        found = document_of(body)
    except orjson.JSONDecodeError as fault:
        raise BadInput("body", f"is not JSON: {fault}.") from None
    if not isinstance(found, dict):
        raise BadInput("body", "takes a JSON object.")
    return found


def _inner(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(document: Mapping[str, Any], name: str) -> str:
    found = document.get(name)
    return found if isinstance(found, str) else ""


def _who(document: Mapping[str, Any], *names: str) -> str:
    found = next((text for name in names if (text := _text(document, name))), "somebody")
    return " ".join(found.split())[:LONGEST_WHO]


def _said(document: Mapping[str, Any]) -> str:
    """The text, without the word that made the service send it to us."""
    text, trigger = _text(document, "text"), _text(document, "trigger_word")
    if trigger and text.startswith(trigger):
        return text[len(trigger) :].lstrip(" :,")
    called = CALL.match(text)
    return text[called.end() :] if called else text
