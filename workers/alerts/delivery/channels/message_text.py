"""Messages as text, for channels that people read: mail, chat, pagers."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from workers.alerts.delivery.channels.plain_text import format_one_line


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
