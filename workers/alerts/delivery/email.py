"""Sends a message by e-mail, as plain text, through the server of the settings (WEIR_SMTP_URL)."""

import smtplib
from collections.abc import Mapping

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.smtp import EmailBackend

from common.errors import describe_connection_error
from workers.alerts.delivery.message_text import Failed, format_subject, iterate_message_lines
from workers.alerts.lifecycle.models import Message

Refused = Mapping[str, tuple[int, bytes]]


def send(message: Message, now_seconds: float) -> str:
    """Send one mail to all addresses; its Message-ID is the key, so that a repetition is the same mail.

    Returns in a sentence which addresses the server refused while it took others; "" if it took all. Refused ones are
    not tried again: the others would receive the mail again each time.
    """
    if not settings.EMAIL_HOST:
        raise Failed("No mail server is configured. Set WEIR_SMTP_URL, such as smtp://user:password@host:587.")
    content = message.content
    mail = EmailMessage(
        subject=format_subject(content),
        body="\n".join(iterate_message_lines(content)),
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=message.receiver.settings["addresses"],
        headers={"Message-ID": _format_message_id(message.key), "X-Weir-Severity": content["severity"]},
    )
    if thread := content.get("thread"):  # A message that an older version made has none.
        mail.extra_headers |= {"In-Reply-To": _format_message_id(thread), "References": _format_message_id(thread)}
    try:
        with _Server() as server:
            server.send_messages([mail])
            refused = getattr(server.connection, "refused", {})
            if not refused:
                return ""
            return f"The mail server rejected {_format_refused(refused)} and accepted the other addresses."
    except smtplib.SMTPRecipientsRefused as error:
        raise Failed(f"The mail server rejected every address: {_format_refused(error.recipients)}.") from None
    except (smtplib.SMTPException, OSError) as error:
        raise Failed(
            f"The mail server {settings.EMAIL_HOST} did not accept the message: {describe_connection_error(error)}."
        ) from None


def _format_refused(refused: Refused) -> str:
    """Return the addresses, each with the server's status code and reason."""
    return ", ".join(f"{address} ({code} {why.decode(errors='replace')})" for address, (code, why) in refused.items())


class _Notes:
    """A record of the addresses that the server refused although it took the mail for others.

    This class extends smtplib connections.
    """

    refused: Refused = {}

    def sendmail(self, *arguments: object, **options: object) -> Refused:
        self.refused = super().sendmail(*arguments, **options)  # type: ignore[misc] # of smtplib's
        return self.refused


class _PlainConnection(_Notes, smtplib.SMTP):  # type: ignore[misc] # of any arguments
    """A connection on its own port, or with STARTTLS."""


class _EncryptedConnection(_Notes, smtplib.SMTP_SSL):  # type: ignore[misc]
    """A connection that is encrypted from the first byte."""


class _Server(EmailBackend):
    """Django's backend, which counts a mail as sent even if some addresses were refused."""

    @property
    def connection_class(self) -> type[_PlainConnection | _EncryptedConnection]:
        return _EncryptedConnection if self.use_ssl else _PlainConnection


def _format_message_id(key: str) -> str:
    return f"<{key}@weir>"
