"""The morning review: what fired in a time, how long, what helped, what flapped, what went unnoticed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Prefetch, Q

from workers.alerts import history
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.models import Alert, AlertEvent, Message

HEADER = (
    "id", "rule", "title", "severity", "labels", "fired_at", "resolved_at", "seconds", "worst", "threshold",
    "came_back", "acknowledged_after_seconds", "acknowledged_by", "told", "under", "actions", "effective",
)  # fmt: skip
LONGEST = timedelta(days=31)


@dataclass(frozen=True)
class Row:
    """One alert of the time, as the review says it. Durations are within the time, up to `until`."""

    alert: Alert
    seconds: float
    acknowledged_after_seconds: float | None
    acknowledged_by: str
    notified: int
    helped: dict[str, Any]
    notes: Sequence[AlertEvent]

    @property
    def flapped(self) -> bool:
        return self.alert.came_back >= automaton.FLAPS

    def document(self) -> dict[str, Any]:
        """As CSV and API give it."""
        alert = self.alert
        return {
            "id": alert.pk,
            "rule": alert.rule_name,
            "title": alert.title,
            "severity": alert.severity,
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
            "actions": self.helped["actions"],
            "effective": self.helped["effective"],
        }


def alerts_between(since: datetime, until: datetime) -> Any:
    """Those that fired, or were open, in the time; the longest ago first."""
    open_then = Q(resolved_at__isnull=True) | Q(resolved_at__gte=since)
    events = AlertEvent.objects.select_related("by").order_by("at", "pk")
    return (
        Alert.objects.filter(open_then, fired_at__lt=until)
        .select_related("under")
        .prefetch_related(Prefetch("events", queryset=events))
        .order_by("fired_at", "pk")
    )


def rows(since: datetime, until: datetime) -> Iterator[Row]:
    """The review's rows; see `alerts_between`."""
    for alert in alerts_between(since, until):
        events = list(alert.events.all())
        had = next((each for each in events if each.kind == AlertEvent.Kind.ACKNOWLEDGED), None)
        begin, end = max(alert.fired_at, since), min(alert.resolved_at or until, until)
        yield Row(
            alert=alert,
            seconds=max(0.0, (end - begin).total_seconds()),
            acknowledged_after_seconds=round((had.at - alert.fired_at).total_seconds(), 1) if had else None,
            acknowledged_by=had.by.get_username() if had and had.by else "",
            notified=sum(each.kind == AlertEvent.Kind.NOTIFIED for each in events),
            helped=history.tried(alert),
            notes=[each for each in events if each.kind == AlertEvent.Kind.NOTE],
        )


def summary(found: Sequence[Row], since: datetime, until: datetime) -> dict[str, Any]:
    """The time in figures and in a sentence."""
    severities = Counter(row.alert.severity for row in found)
    still = sum(row.alert.resolved_at is None or row.alert.resolved_at >= until for row in found)
    waits = sorted(
        row.acknowledged_after_seconds for row in found if row.acknowledged_after_seconds is not None
    )
    notified = (
        Message.objects.filter(sent_at__gte=since, sent_at__lt=until).exclude(content__kind="test").count()
    )
    actions, effective = (sum(row.helped[key] for row in found) for key in ("actions", "effective"))
    return {
        "alerts": len(found),
        "critical": severities["critical"],
        "open": still,
        "explained": sum(row.alert.under_id is not None for row in found),
        "flapped": sum(row.flapped for row in found),
        "told": notified,
        "failed": Message.objects.filter(
            created_at__gte=since, created_at__lt=until, state=Message.State.FAILED
        ).count(),
        "acknowledged_seconds": waits[len(waits) // 2] if waits else None,
        "actions": actions,
        "effective": effective,
        "sentence": _sentence(found, still),
    }


def _sentence(found: Sequence[Row], still: int) -> str:
    if not found:
        return "No alert fired."
    worst = max(found, key=lambda row: (row.alert.severity == "critical", row.seconds))
    minutes = worst.seconds / 60
    length = f"{minutes:.0f} min" if minutes >= 1 else f"{worst.seconds:.0f} s"
    count = f"{len(found)} alert{'s' if len(found) != 1 else ''} fired"
    rest = f"{still} {'is' if still == 1 else 'are'} still open" if still else "all are resolved"
    return f"{count}; {rest}. The worst: {worst.alert.title}, {length}."
