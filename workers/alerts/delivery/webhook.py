"""Posts a message as JSON to a URL, signed.

Headers: `Idempotency-Key` (the message's key, the same at each repetition), `X-Weir-Timestamp` (seconds since 1970),
and `X-Weir-Signature: sha256=` + hex HMAC-SHA-256 of `{timestamp}.{body}`. A receiver compares in constant time, and
refuses what is older than a few minutes.

The secret is the value of the environment variable that the receiver names. A receiver that names none has a key of its
own, derived from WEIR_SECRET_KEY, which its page shows to administrators: no secret is ever stored.
"""

import hashlib
import hmac
from collections.abc import Mapping

import httpx
import orjson
from django.conf import settings

from common import environment as variables
from common.errors import BadInput, describe_connection_error
from workers.alerts.delivery.message_text import TIMEOUT_SECONDS, Failed, get_server_name, read_secret_variable
from workers.alerts.lifecycle.models import Message, Receiver
from workers.host import egress

TRY_AGAIN = frozenset({401, 403, 404, 405, 407, 408, 409, 410, 425, 429})


def compute_signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the value of `X-Weir-Signature`."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def read_signing_key(receiver: Receiver, environment: Mapping[str, str] = variables.PROCESS) -> bytes:
    """Return the key that signs the receiver's messages. Raises `Failed` if it names a variable that is not set."""
    name = receiver.settings.get("secret_environment")
    if not name:
        return derive_secret(receiver).encode()
    if error := setup_error(receiver):
        raise Failed(error)
    secret = read_secret_variable(name, environment)
    if not secret:
        raise Failed(f"{name} is not set in the alerter's environment. Set it, or remove it from the receiver.")
    return secret.encode()


def setup_error(receiver: Receiver) -> str:
    """Return why a receiver that is older than the present rules can't be used; "" if it can."""
    name, url = receiver.settings.get("secret_environment"), receiver.settings.get("url", "")
    try:
        host = egress.check_url(url).host
        if name:
            egress.check_secret_name(name, "secret_environment")
            egress.check_secret_host(name, host)
    except BadInput as error:
        return f"{error.field} {error.message} Change the receiver."
    return ""


def derive_secret(receiver: Receiver) -> str:
    """Return the derived secret of this receiver, from which no other secret or session key follows."""
    about = f"weir webhook {receiver.pk} {receiver.created_at.isoformat()}".encode()
    return hmac.new(settings.SECRET_KEY.encode(), about, hashlib.sha256).hexdigest()


def send(message: Message, now_seconds: float, transport: httpx.BaseTransport | None = None) -> None:
    """Post the message. See `workers.alerts.delivery.message_text`.

    Redirects are not followed: what is signed goes only to that address.
    """
    url, timestamp = message.receiver.settings["url"], f"{now_seconds:.0f}"
    body = orjson.dumps({"key": message.key, "created_at": message.created_at, **message.content})
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": message.key,
        "X-Weir-Timestamp": timestamp,
        "X-Weir-Signature": compute_signature(read_signing_key(message.receiver), timestamp, body),
    }
    try:
        with (
            egress.create_client(TIMEOUT_SECONDS, transport=transport) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            status = response.status_code  # The rest of the answer is not needed, and not read.
    except httpx.HTTPError as error:
        raise Failed(f"{get_server_name(url)} did not respond: {describe_connection_error(error)}.") from None
    if not 200 <= status < 300:
        for_good = 400 <= status < 500 and status not in TRY_AGAIN
        raise Failed(f"{get_server_name(url)} returned HTTP {status}.", for_good)
