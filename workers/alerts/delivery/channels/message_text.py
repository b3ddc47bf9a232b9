"""A message as text, for channels that people read: mail, chat, pagers."""

from collections.abc import Iterator
from typing import Any

from django.conf import settings

from workers.alerts.delivery.plain_text import one_line


def subject(content: dict[str, Any]) -> str:
    """One line: what a title says never breaks the head of a mail."""
    return one_line(f"[{content['severity']}] {content['title']}")[:200]


def lines(content: dict[str, Any]) -> Iterator[str]:
    """The text: each alert with what it means and where to act; a pager that cuts it keeps what matters. Each
    text of an alert is one line, so that none of it looks like a link of ours.
    """
    if not content["alerts"]:
        yield content["sentence"]
    for alert in content["alerts"]:
        yield one_line(f"{alert['title']} ({alert['severity']})")
        yield one_line(alert["sentence"])
        if alert["impact"]:
            yield one_line(alert["impact"])
        yield f"{settings.WEIR_PUBLIC_URL}{alert['path']}"
        for link in alert.get("links", ()):  # a message that an older version made has none
            yield f"{link['words']}: {settings.WEIR_PUBLIC_URL}{link['path']}"
        if alert["runbook"]:
            yield f"Runbook: {alert['runbook']}"
        yield ""
