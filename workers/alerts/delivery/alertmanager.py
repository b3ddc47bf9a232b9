"""Sends alerts to an Alertmanager (`POST /api/v2/alerts`), which routes, groups, and silences them.

An alert's labels are its identity there: `alertname` (the rule), `severity`, `plant`, `weir_alert` (its number), and
its subject. Sent twice, it is the same alert. Weir sends its start and its end, and doesn't repeat it in between as
Prometheus does; so a start is valid for LASTS_SECONDS there, unless its end arrives earlier.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson
from django.conf import settings

from common import environment as variables
from common.errors import BadInput, describe_connection_error
from workers.alerts.delivery.message_text import TIMEOUT_SECONDS, Failed, get_server_name, read_secret_variable
from workers.alerts.lifecycle.models import Message, Receiver
from workers.host import egress
from workers.plants.registry import LOCAL

LASTS_SECONDS = 7 * 86_400.0
TEST_SECONDS = 60.0
MAX_ANSWER = 500
# A repetition doesn't help if Alertmanager rejects what it received.
FOR_GOOD = frozenset({400, 413, 422})
# What a login page in front of it answers, or another server in its place: to every path, and often with 200.
PAGES = frozenset({"text/html", "application/xhtml+xml"})


def send(message: Message, now_seconds: float, transport: httpx.BaseTransport | None = None) -> None:
    """Send all alerts of a message in one request. See `workers.alerts.delivery.message_text`."""
    receiver = message.receiver
    url = receiver.settings["url"].rstrip("/") + "/api/v2/alerts"
    body = orjson.dumps(build_payload(message.content, now_seconds))
    headers = {"Content-Type": "application/json", **_build_login_headers(receiver)}
    try:
        with (
            egress.create_client(TIMEOUT_SECONDS, transport=transport) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            status, said = response.status_code, egress.read(response, MAX_ANSWER)
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    except httpx.HTTPError as error:
        raise Failed(f"{get_server_name(url)} did not respond: {describe_connection_error(error)}.") from None
    if status != 200:
        why = said.decode(errors="replace").strip()
        raise Failed(f"{get_server_name(url)} returned HTTP {status}: {why}", for_good=status in FOR_GOOD)
    if kind in PAGES:
        raise Failed(f"{get_server_name(url)} returned a web page, not an Alertmanager response. Check the address.")


def build_payload(content: Mapping[str, Any], now_seconds: float) -> list[dict[str, Any]]:
    """Return a message's content as Alertmanager accepts it."""
    now = datetime.fromtimestamp(now_seconds, UTC)
    if not content["alerts"]:  # a test of the receiver
        labels = {"alertname": "WeirTest", "severity": content["severity"], "plant": LOCAL}
        notes = {"summary": content["title"], "description": content["sentence"]}
        return [_build_alert(labels, notes, now, now + timedelta(seconds=TEST_SECONDS), settings.WEIR_PUBLIC_URL)]
    return [_convert_alert(alert, now) for alert in content["alerts"]]


def _convert_alert(alert: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    named = {"alertname": alert["rule"], "severity": alert["severity"], "weir_alert": str(alert["id"])}
    notes = {
        "summary": alert["title"],
        "description": alert["sentence"],
        "impact": alert["impact"],
        "runbook_url": alert["runbook"],
    }
    began = datetime.fromisoformat(alert["fired_at"]) if alert["fired_at"] else now
    ends = (
        datetime.fromisoformat(alert["resolved_at"]) if alert["resolved_at"] else now + timedelta(seconds=LASTS_SECONDS)
    )
    # After a clock was set back: Alertmanager permanently refuses an end that is before the start.
    began = min(began, ends)
    address = f"{settings.WEIR_PUBLIC_URL}{alert['path']}"
    return _build_alert({"plant": LOCAL, **alert["labels"], **named}, notes, began, ends, address)


def _build_alert(
    labels: Mapping[str, str], notes: Mapping[str, str], began: datetime, ends: datetime, address: str
) -> dict[str, Any]:
    """Return an alert as Alertmanager accepts it.

    Empty labels and annotations are left out, since Alertmanager treats them as missing.
    """
    return {
        "labels": {name: str(value) for name, value in labels.items() if value},
        "annotations": {name: text for name, text in notes.items() if text},
        "startsAt": began.isoformat(),
        "endsAt": ends.isoformat(),
        "generatorURL": address,
    }


def setup_error(receiver: Receiver) -> str:
    """Return why nothing can be sent; "" if it can."""
    try:
        _build_login_headers(receiver)
    except Failed as error:
        return str(error)
    return ""


def _build_login_headers(receiver: Receiver, environment: Mapping[str, str] = variables.PROCESS) -> dict[str, str]:
    """Return the bearer token, if the receiver names the variable that holds it."""
    name = receiver.settings.get("secret_environment")
    try:
        host = egress.check_url(receiver.settings.get("url", "")).host
        if not name:
            return {}
        egress.check_secret_name(name, "secret_environment")
        egress.check_secret_host(name, host, environment=environment)
    except BadInput as error:
        raise Failed(f"{error.field} {error.message} Change the receiver.") from None
    secret = read_secret_variable(name, environment)
    if not secret:
        raise Failed(f"{name} is not set in the alerter's environment. Set it, or remove it from the receiver.")
    try:
        egress.check_header_secret(name, secret)
    except BadInput as error:
        raise Failed(f"{error.field} {error.message}") from None
    return {"Authorization": f"Bearer {secret}"}
