"""The morning review of a time range.

It shows what fired, for how long, what helped, what flapped, and what went unnoticed.
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, Q

from controllers.framework.reason import format_count
from workers.alerts import history
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.inhibition import GRAVITY
from workers.alerts.lifecycle.models import Alert, AlertEvent, Message, compute_seconds_between

HEADER = (
    "id", "rule", "title", "severity", "labels", "fired_at", "resolved_at", "seconds", "worst", "threshold",
    "came_back", "acknowledged_after_seconds", "acknowledged_by", "told", "under", "actions", "effective",
)  # fmt: skip
MAX_RANGE = timedelta(days=31)
NONE_FIRED = "No alerts fired."


@dataclass(frozen=True)
class Row:
    """One alert of the time range, as the review shows it. Durations are within the range, up to `until`."""

    alert: Alert
    seconds: float
    acknowledged_after_seconds: float | None
    acknowledged_by: str
    notified: int
    outcome: history.AlertOutcome
    notes: Sequence[AlertEvent]

    @property
    def flapped(self) -> bool:
        return self.alert.came_back >= automaton.FLAPS

    def document(self) -> dict[str, Any]:
        """Return the row as in CSV and the API."""
        alert = self.alert
        return {
            "id": alert.pk,
            "rule": alert.rule_name,
            "title": alert.title,
            "severity": alert.shown_severity,
            "labels": alert.labels,
            "fired_at": alert.fired_at,
            "resolved_at": alert.resolved_at,
            "seconds": round(self.seconds, 1),
            "worst": alert.worst,
            "threshold": alert.threshold,
            "came_back": alert.came_back,
            "acknowledged_after_seconds": self.acknowledged_after_seconds,
            "acknowledged_by": self.acknowledged_by,
            "told": self.notified,
            "under": alert.under_id,
            "actions": self.outcome.count,
            "effective": self.outcome.effective,
        }


@dataclass(frozen=True, kw_only=True)
class ReviewFigures:
    """A time range in figures and in a sentence.

    - `open_seconds`: the time during which anything was open.
    - `explained`: alerts that belong to another's incident.
    - `failed`: messages given up.
    - `acknowledged_seconds`: the median of the incidents that were acknowledged.
    - `actions`, `effective`, `unjudged`: actions of control loops in the range: all, those that had an
      effect, and those that can't be judged.
    """

    incidents: int
    open_seconds: float
    alerts: int
    critical: int
    open: int
    explained: int
    flapped: int
    messages_sent: int
    failed: int
    acknowledged_seconds: float | None
    actions: int
    effective: int
    unjudged: int
    sentence: str

    def document(self) -> dict[str, Any]:
        """Return the figures as in the API."""
        figures = dict(vars(self))
        told = figures.pop("messages_sent")
        return {**figures, "told": told}


def select_alerts_between(since: datetime, until: datetime) -> Any:
    """Return those that fired, or were open, in the time range, the oldest first."""
    open_then = Q(resolved_at__isnull=True) | Q(resolved_at__gte=since)
    events = AlertEvent.objects.select_related("by").order_by("at", "pk")
    return (
        Alert.objects.filter(open_then, fired_at__lt=until)
        .select_related("under", "incident")
        .prefetch_related(Prefetch("events", queryset=events))
        .order_by("fired_at", "pk")
    )


def iterate_review_rows(since: datetime, until: datetime) -> Iterator[Row]:
    """Return the review's rows; see `alerts_between`."""
    for alert in select_alerts_between(since, until):
        events = list(alert.events.all())
        had = next((event for event in events if event.kind == AlertEvent.Kind.ACKNOWLEDGED), None)
        begin, end = max(alert.fired_at, since), min(alert.resolved_at or until, until)
        yield Row(
            alert=alert,
            seconds=max(0.0, (end - begin).total_seconds()),
            acknowledged_after_seconds=compute_seconds_between(alert.fired_at, had.at) if had else None,
            acknowledged_by=had.by.get_username() if had and had.by else "",
            notified=sum(event.kind == AlertEvent.Kind.NOTIFIED for event in events),
            outcome=history.summarize_outcome(alert),
            notes=[event for event in events if event.kind == AlertEvent.Kind.NOTE],
        )


def open_spans(rows: Iterable[Row], since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return when any of them was open, within the time range: in order, none overlapping."""
    spans: list[tuple[datetime, datetime]] = []
    alerts = (row.alert for row in rows)
    times = [(alert.fired_at, alert.resolved_at) for alert in alerts if alert.fired_at is not None]
    for fired_at, resolved_at in sorted(times, key=lambda alert_span: alert_span[0]):
        begin, end = max(fired_at, since), min(resolved_at or until, until)
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        elif begin < end:
            spans.append((begin, end))
    return spans


def summarize_review(rows: Sequence[Row], since: datetime, until: datetime) -> ReviewFigures:
    """Summarize the review.

    An explained alert belongs to its incident: only incidents count, and overlapping times count once.
    """
    incidents = [row for row in rows if row.alert.under_id is None]
    still = sum(row.alert.resolved_at is None or row.alert.resolved_at >= until for row in incidents)
    acknowledged = (row.acknowledged_after_seconds for row in incidents)
    waits = [seconds for seconds in acknowledged if seconds is not None]
    spans = open_spans(incidents, since, until)
    verdicts = history.count_verdicts(spans)
    messages = Message.objects.exclude(content__kind="test")
    given_up = messages.filter(state=Message.State.FAILED).exclude(error__in=Message.NO_FAULT)
    lost = given_up.filter(created_at__gte=since, created_at__lt=until).count()
    return ReviewFigures(
        incidents=len(incidents),
        open_seconds=sum((end - begin).total_seconds() for begin, end in spans),
        alerts=len(rows),
        critical=sum(row.alert.shown_severity == "critical" for row in incidents),
        open=still,
        explained=len(rows) - len(incidents),
        flapped=sum(row.flapped for row in rows),
        messages_sent=messages.filter(sent_at__gte=since, sent_at__lt=until).count(),
        failed=lost,
        acknowledged_seconds=statistics.median(waits) if waits else None,
        actions=sum(verdicts.values()),
        effective=verdicts["effective"],
        unjudged=sum(verdicts[name] for name in history.UNJUDGED),
        sentence=_describe_incidents(incidents, len(rows), still),
    )


def format_duration(seconds: float) -> str:
    """Return a duration in minutes, or in seconds if it is less than one minute."""
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _describe_incidents(incidents: Sequence[Row], alerts: int, still: int) -> str:
    if not incidents:
        return f"{format_count(alerts, 'alert')} fired, explained by earlier alerts." if alerts else NONE_FIRED
    worst = max(incidents, key=lambda row: (GRAVITY[row.alert.shown_severity], row.seconds))
    count = format_count(len(incidents), "incident")
    count += f" with {format_count(alerts, 'alert')}" if alerts > len(incidents) else ""
    rest = f"{still} {'is' if still == 1 else 'are'} still open" if still else "all are resolved"
    return f"{count}; {rest}. Most severe: {worst.alert.title}, {format_duration(worst.seconds)}."
