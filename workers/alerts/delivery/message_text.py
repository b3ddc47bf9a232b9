"""The parts that all channels share: failures, secrets, and messages as text that is harmless anywhere."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
from django.conf import settings

from common import environment as variables
from common.errors import BadInput
from common.parsing import format_one_line

TIMEOUT_SECONDS = 10.0


class Failed(Exception):  # noqa: N818
    """The message was not delivered.

    `for_good`: a repetition can't help either. `reached`: marks of those that have it, if the receiver is
    several; the repetition is for the others.
    """

    def __init__(self, why: str, for_good: bool = False, reached: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.for_good, self.reached = for_good, reached


def get_server_name(url: str) -> str:
    """Return the part of an address that an error may quote. The rest may be a secret, and alerts quote the error."""
    return httpx.URL(url).netloc.decode()


def read_secret_variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the variable's value, "" if it is empty. Raises `Failed` if the value can't be sent."""
    try:
        return variables.read_secret(name, environment)
    except BadInput as error:
        raise Failed(f"{error.field} {error.message}") from None


# What chat services read as a tag, a link under other words, or a mention of everybody. Tags get single
# guillemets instead, which look alike.
_TAGS = str.maketrans({"<": "\u2039", ">": "\u203a"})
_CALL = re.compile(r"@(?=[*_]*(all|channel|everyone|here|room)\b)", re.IGNORECASE)
CUT = "Truncated. See the console for the rest."
_LINK = re.compile(r"\](?=[(\[:])")


def keep_whole_lines(text: str, most: int) -> str:
    """Return the lines that fit into this many characters, and a line that says so if some don't fit.

    A link that is cut, /alerts/12 to /alerts/1, would lead to another alert.
    """
    if len(text) <= most:
        return text
    kept: list[str] = []
    left = most - len(CUT)
    for line in text.splitlines():
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    return "\n".join([*kept, CUT]) if kept else format_one_line(text)[: max(0, most)]


def remove_markup(text: str) -> str:
    """Return the text as a chat shows it.

    Names of queues, hosts, and people make no tag, no link under other words, and no mention of everybody. An address
    stays an address.
    """
    return _LINK.sub("] ", _CALL.sub("@\u200b", text.translate(_TAGS)))


def format_subject(content: dict[str, Any]) -> str:
    """Return the subject in one line: a title must never break the header of a mail."""
    return format_one_line(f"[{content['severity']}] {content['title']}")[:200]


def _describe_times(alert: dict[str, Any]) -> str:
    """Return when the alert started and ended: a message may be read, or arrive, much later."""
    began, ended = (_format_time(alert[name]) for name in ("fired_at", "resolved_at"))
    if not began:
        return ""
    return f"From {began} to {ended}." if ended else f"Since {began}."


def _format_time(text: str | None) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if text else ""


def iterate_message_lines(content: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the text: each alert with what it means and where to act.

    The most important alert comes first, since a pager may cut the text. Each text of an alert is one line, so that
    none of it looks like one of our links.
    """
    if not content["alerts"]:
        yield content["sentence"]
    for alert in content["alerts"]:
        over = "Resolved: " if alert["resolved_at"] else ""
        yield format_one_line(f"{over}{alert['title']} ({alert['severity']})")
        yield format_one_line(alert["sentence"])
        if times := _describe_times(alert):
            yield times
        if alert["impact"]:
            yield format_one_line(alert["impact"])
        yield f"{settings.WEIR_PUBLIC_URL}{alert['path']}"
        for link in alert.get("links", ()):  # A message that an older version made has none.
            yield f"{link['words']}: {settings.WEIR_PUBLIC_URL}{link['path']}"
        if alert["runbook"]:
            yield f"Runbook: {alert['runbook']}"
        yield ""
