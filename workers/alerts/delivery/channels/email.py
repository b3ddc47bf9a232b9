"""Sends a message by e-mail, as plain text, through the server of the settings (WEIR_SMTP_URL)."""

import smtplib

from django.conf import settings
from django.core.mail import EmailMessage

from workers.alerts.delivery.channels.channel import Failed
from workers.alerts.delivery.channels.message_text import lines, subject
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
        headers={"Message-ID": _id(message.key), "X-Weir-Severity": content["severity"]},
    )
    if thread := content.get("thread"):  # none in a message that an older version made
        mail.extra_headers |= {"In-Reply-To": _id(thread), "References": _id(thread)}
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        raise Failed(f"The mail server refused every address: {error.recipients}") from None
    except (smtplib.SMTPException, OSError) as error:
        raise Failed(f"The mail server {settings.EMAIL_HOST} did not take it: {error!r}") from None


def _id(key: str) -> str:
    """The Message-ID of a message's key."""
    return f"<{key}@weir>"
