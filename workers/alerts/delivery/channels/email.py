"""Sends a message by e-mail, as plain text, through the server of the settings (WEIR_SMTP_URL)."""

import smtplib
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage

from workers.alerts.delivery.channels.channel import Failed
from workers.alerts.lifecycle.models import Message


def send(message: Message, now_seconds: float) -> None:
    """One mail to all addresses; its Message-ID is the key, so that a repetition is the same mail."""
    if not settings.EMAIL_HOST:
        raise Failed(
            "No mail server is configured; set WEIR_SMTP_URL, such as smtp://user:password@host:587."
        )
    content = message.content
    mail = EmailMessage(
        subject=subject(content),
        body="\n".join(lines(content)),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=message.receiver.settings["addresses"],
        headers={"Message-ID": f"<{message.key}@weir>", "X-Weir-Severity": content["severity"]},
    )
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        raise Failed(f"The mail server refused every address: {error.recipients}") from None
    except (smtplib.SMTPException, OSError) as error:
        raise Failed(f"The mail server {settings.EMAIL_HOST} did not take it: {error!r}") from None


def subject(content: dict[str, Any]) -> str:
    """One line: what a title says never breaks the head of a mail."""
    return " ".join(f"[{content['severity']}] {content['title']}".split())[:200]


def lines(content: dict[str, Any]) -> Iterator[str]:
    """The text: each alert with what it means and where to find more."""
    if not content["alerts"]:
        yield content["sentence"]
    for alert in content["alerts"]:
        yield f"{alert['title']} ({alert['severity']})"
        yield alert["sentence"]
        if alert["impact"]:
            yield alert["impact"]
        if alert["runbook"]:
            yield f"Runbook: {alert['runbook']}"
        yield f"{settings.WEIR_PUBLIC_URL}{alert['path']}"
        yield ""
