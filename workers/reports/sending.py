"""Delivery of reports: once a week, at the hour of the settings, to each receiver that subscribes to them.

A report is a message like any other: it is tried again with back-off, and listed on the page of receivers. Its key
follows from the week and the receiver, so it is made once, regardless of the number of clocks.
"""

import hashlib
from datetime import UTC, datetime, timedelta

from django.db import IntegrityError, transaction

from workers.alerts.delivery.receivers import READ_BY_PEOPLE
from workers.alerts.lifecycle.models import Message, Receiver
from workers.reports import text
from workers.reports.week import LENGTH, build_week_report
from workers.steering import plant_settings

LATE = timedelta(days=1)  # A report that could not be made on time, as nothing ran, is made up for this long.


def compute_due_time(now: datetime, weekday: int, hour: int) -> datetime:
    """Return the last time at or before now that it was this hour of this weekday (1: Monday), UTC."""
    day = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    day -= timedelta(days=(day.isoweekday() - weekday) % LENGTH.days)
    return day if day <= now else day - LENGTH


def send_due(now: datetime) -> int:
    """Queue this week's report for each receiver that has not got it; return how many messages were made."""
    weekday, hour = (plant_settings.get_setting_value(name) for name in ("report.weekday", "report.hour"))
    until = compute_due_time(now, weekday, hour)
    asking = Receiver.objects.filter(gets_reports=True, enabled=True, channel__in=READ_BY_PEOPLE)
    owed = [
        receiver
        for receiver in asking
        if not Message.objects.filter(key=_compute_message_key(receiver, until)).exists()
    ]
    owed = [
        receiver for receiver in owed if receiver.created_at <= until
    ]  # A receiver that was added later waits for the next one.
    if not owed or now - until > LATE:
        return 0
    report = build_week_report(until)
    content: dict[str, object] = {
        "kind": "report",
        "severity": "notice",
        "title": text.format_report_title(report),
        "sentence": text.render_report(report),
        "alerts": [],
    }
    return sum(_build_message(receiver, until, content, now) for receiver in owed)


def _build_message(receiver: Receiver, until: datetime, content: dict[str, object], now: datetime) -> bool:
    try:
        with transaction.atomic():
            Message.objects.create(
                key=_compute_message_key(receiver, until),
                receiver=receiver,
                content=content,
                created_at=now,
                due_at=now,
            )
    except IntegrityError:  # Another clock was faster.
        return False
    return True


def _compute_message_key(receiver: Receiver, until: datetime) -> str:
    return hashlib.sha256(f"report {until.isoformat()} {receiver.pk}".encode()).hexdigest()[:32]
