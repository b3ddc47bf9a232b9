"""Alerts that an Alertmanager reports from other monitoring (its webhook, version 4).

They are stored as additional evidence. They notify nobody and steer nothing. The newest MAX_KEPT alerts are stored for
KEPT_DAYS, each with a bounded text. An alert that Weir itself sent to the Alertmanager doesn't count as evidence when
it comes back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.db.models import Q

from common import checks
from common.errors import BadInput
from workers.alerts.lifecycle.models import Alert, ReportedAlert

VERSION = "4"
MAX_ALERTS, MAX_LABELS = 200, 40
MAX_LABEL, MAX_NAME, MAX_SEVERITY, MAX_SUMMARY, MAX_TEXT = 200, 120, 40, 300, 2_000
MAX_FINGERPRINT, MAX_LINK = 64, 500
MAX_KEPT, KEPT_DAYS = 5_000, 30
MAX_SHOWN = 12
# A time zone may put the years 1 and 9999 outside of the calendar, and no page could be rendered with them.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
NEVER = "0001-01-01"  # how Alertmanager writes that an alert has not ended
OWN = "weir_alert"
# An alert that was reported as firing and never again may be over.
HEARD = timedelta(hours=24)


@dataclass(frozen=True)
class StoredReport:
    """The result of a report: the number of stored alerts, of Weir's own alerts, and why others could not be read."""

    stored: int
    own: int
    refused: tuple[BadInput, ...] = ()


@transaction.atomic
def take(document: Mapping[str, Any], source: str, now: datetime) -> StoredReport:
    """Store the alerts of a webhook request. The same request again changes nothing.

    An alert that can't be read doesn't exclude the others. Raises `BadInput` naming the field if none can be read.
    """
    version = checks.accept_choice((VERSION,), f"{VERSION!r}, the version of Alertmanager's webhook format")
    version.validate(document.get("version"), "version", end=".")
    alerts = document.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > MAX_ALERTS:
        raise BadInput("alerts", f"must be a list of at most {MAX_ALERTS} alerts. Set max_alerts in the receiver.")
    rows, refused = _parse_alerts(alerts, source, now)
    kept = [row for row in rows if OWN not in row.labels]
    # Of two reports of one alert in a request, the later one counts: the database takes a row once.
    distinct = {(row.fingerprint, row.began_at): row for row in kept}
    ReportedAlert.objects.bulk_create(
        distinct.values(),
        update_conflicts=True,
        unique_fields=["source", "fingerprint", "began_at"],
        update_fields=["ended_at", "reported_at", "summary", "description", "severity"],
    )
    ReportedAlert.objects.filter(reported_at__lt=now - timedelta(days=KEPT_DAYS)).delete()
    last = ReportedAlert.objects.order_by("-pk").values_list("pk", flat=True)[MAX_KEPT : MAX_KEPT + 1]
    if last:
        ReportedAlert.objects.filter(pk__lte=last[0]).delete()
    return StoredReport(len(distinct), len(rows) - len(kept), tuple(refused))


def list_concurrent_reports(alert: Alert, since: datetime, until: datetime, now: datetime) -> list[ReportedAlert]:
    """Return the reported alerts that were firing in this time.

    Alerts that share a label's value with ours come first, and then the oldest.
    """
    firing = Q(ended_at__range=(since, LATEST)) | Q(ended_at=None, reported_at__gte=min(since, now - HEARD))
    rows = ReportedAlert.objects.filter(firing, began_at__range=(EARLIEST, until))
    reports = rows.order_by("-began_at")[: MAX_KEPT // 10]
    about = set(alert.labels.values()) - {alert.severity, alert.rule_name}
    return sorted(reports, key=lambda row: (not about & set(row.labels.values()), row.began_at))[:MAX_SHOWN]


def _parse_alerts(alerts: Sequence[Any], source: str, now: datetime) -> tuple[list[ReportedAlert], list[BadInput]]:
    """Return the readable alerts, and why the others can't be read. Raises the first reason if none can."""
    rows: list[ReportedAlert] = []
    refused: list[BadInput] = []
    for place, alert in enumerate(alerts):
        try:
            rows.append(_read(alert, f"alerts[{place}]", source, now))
        except BadInput as error:
            refused.append(error)
    if refused and not rows:
        raise refused[0]
    return rows, refused


def _read(alert: object, where: str, source: str, now: datetime) -> ReportedAlert:
    if not isinstance(alert, Mapping):
        raise BadInput(where, "must be a JSON object with labels, annotations, startsAt, endsAt, and fingerprint.")
    labels, notes = (_parse_texts(alert.get(name), f"{where}.{name}") for name in ("labels", "annotations"))
    fingerprint = alert.get("fingerprint")
    if not isinstance(fingerprint, str) or not 0 < len(fingerprint) <= MAX_FINGERPRINT:
        raise BadInput(f"{where}.fingerprint", f"must be a string of 1 to {MAX_FINGERPRINT} characters.")
    ended = str(alert.get("endsAt") or NEVER)
    return ReportedAlert(
        source=source[:80],
        fingerprint=fingerprint,
        name=labels.get("alertname", "an alert without a name")[:MAX_NAME],
        severity=labels.get("severity", "")[:MAX_SEVERITY],
        labels=labels,
        summary=notes.get("summary", "")[:MAX_SUMMARY],
        description=notes.get("description", "")[:MAX_TEXT],
        link=_parse_link(alert.get("generatorURL")),
        began_at=_parse_time(alert.get("startsAt"), f"{where}.startsAt"),
        ended_at=None
        if (alert.get("status") != "resolved" or ended.startswith(NEVER))
        else _parse_time(ended, f"{where}.endsAt"),
        reported_at=now,
    )


def _parse_texts(given: object, where: str) -> dict[str, str]:
    """Return labels or annotations; long values are cut, and surplus ones left out."""
    read = checks.accept_mapping(checks.accept_text(), "an object of strings").validate(given, where, end=".")
    texts: Sequence[tuple[str, str]] = sorted(read.items())[:MAX_LABELS]
    longest = MAX_LABEL if where.endswith("labels") else MAX_TEXT
    return {name[:MAX_LABEL]: text[:longest] for name, text in texts}


def _parse_time(text: object, where: str) -> datetime:
    try:
        if not isinstance(text, str):
            raise ValueError
        read = checks.parse_timestamp(text)
    except ValueError:
        raise BadInput(where, "must be a time such as 2026-11-20T06:00:00Z.") from None
    if not EARLIEST <= read < LATEST:
        raise BadInput(where, "must be a time from 1970 to 2199, such as 2026-11-20T06:00:00Z.")
    return read


def _parse_link(text: object) -> str:
    """Return a web address, or "": a link that runs a script is none."""
    if not isinstance(text, str) or len(text) > MAX_LINK:
        return ""
    try:
        return text if urlsplit(text).scheme in ("http", "https") and urlsplit(text).netloc else ""
    except ValueError:
        return ""
