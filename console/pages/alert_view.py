"""An alert as its page shows it: where it stands, what it means, what was tried, what can be done."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from workers.alerts import history, impact, machine, on_call, silences
from workers.alerts.conditions import CONDITIONS
from workers.alerts.inhibition import GRAVITY
from workers.alerts.models import Alert
from workers.alerts.standing import quiet_of

MOST_EVENTS = 60
# The hour: what went before it matters more than what came after.
BEFORE, AFTER = timedelta(minutes=45), timedelta(minutes=15)
PLANT_SERIES = (
    ("queue", "queues.{queue}.waiting_events", "waiting"),
    ("node", "nodes.{node}.in_per_second", "in"),
)


def listed(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    """{"alert", "quiet", "explained": [the same]}: what calls first, the gravest first, then the oldest."""
    rows = {alert.pk: {"alert": alert, "quiet": quiet_of(alert)[0], "explained": []} for alert in alerts}
    top = []
    for alert in alerts:
        cause = rows.get(alert.under_id or 0)
        (top if cause is None else cause["explained"]).append(rows[alert.pk])
    for row in rows.values():
        row["explained"].sort(key=_order)
    return sorted(top, key=_order)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    alert = row["alert"]
    return (row["quiet"] is not None, -GRAVITY[alert.severity], alert.fired_at)


def context_of(alert: Alert) -> dict[str, Any]:
    """All that the page says of one alert."""
    condition = CONDITIONS.get(alert.condition)
    events = alert.events.select_related("by").order_by("-at", "-pk")[:MOST_EVENTS]
    return {
        "id": alert.pk,
        "row": alert,
        "is_open": alert.resolved_at is None,
        "quiet": quiet_of(alert)[0],
        "situation": on_call.situation(alert),
        "unit": condition.unit if condition else "",
        "above": condition.above if condition else True,
        "chart": _chart(alert),
        "impact": alert.impact or impact.GENERAL.get(alert.condition, ""),
        "first_steps": impact.FIRST_STEPS.get(alert.condition, ""),
        "tried": history.tried(alert),
        "events": list(events),
        "explained": list(alert.explained.filter(resolved_at__isnull=True).order_by("-fired_at")),
        "flaps": alert.came_back >= machine.FLAPS,
        "links": _links(alert),
        "matchers": [
            {"label": label, "is": "=", "value": value}
            for label, value in silences.labels_of(alert).items()
            if label != "severity"
        ],
        "next_step": _next_step(alert),
    }


def _next_step(alert: Alert) -> str:
    """Whom escalating would tell; empty when nobody is left."""
    steps = alert.rule.escalation if alert.rule else []
    return " and ".join(steps[alert.next_step]["receivers"]) if alert.next_step < len(steps) else ""


def _chart(alert: Alert) -> dict[str, Any] | None:
    """The hour round its beginning: what it watches against its threshold. An open one goes on live."""
    condition = CONDITIONS.get(alert.condition)
    names = condition.charted(alert.labels) if condition else []
    if condition is None or not names:
        return None
    lanes = [
        {
            "title": f"{condition.help.rstrip('.')}, {condition.unit}",
            "scale": condition.scale,
            "series": [{"path": name, "label": _label(name)} for name in names],
            "threshold": alert.threshold / condition.scale
            if condition.source == "snapshot" and len(names) == 1
            else None,
        }
    ]
    more = [
        (path.format(**alert.labels), said) for label, path, said in PLANT_SERIES if label in alert.labels
    ]
    for path, said in more[:1]:
        if path not in names:
            lanes.append(
                {
                    "title": _title(path),
                    "scale": 1.0,
                    "series": [{"path": path, "label": said}],
                    "threshold": None,
                }
            )
    end = None if alert.resolved_at is None else min(timezone.now(), alert.resolved_at + AFTER)
    begin = alert.began_at - BEFORE
    if end is None:
        # Live: from the beginning on, but no more than the figures of two hours.
        minutes = min(
            120, max(15, (timezone.now() - alert.began_at + timedelta(minutes=10)).total_seconds() / 60)
        )
        return {"lanes": lanes, "minutes": round(minutes), "until": None}
    longest = timedelta(hours=24)
    return {
        "lanes": lanes,
        "minutes": round(min(longest, end - begin).total_seconds() / 60),
        "until": end.timestamp(),
    }


def _label(path: str) -> str:
    return path.rpartition(".")[2].replace("_seconds", "").replace("_", " ")


def _title(path: str) -> str:
    return {"waiting_events": "Waiting events", "in_per_second": "Events in, /s"}[path.rpartition(".")[2]]


def _links(alert: Alert) -> dict[str, str]:
    """Where to look further: ledger and timeline of its time, its queue, node or loop."""
    since, until = history.span(alert)
    query = {"from": _iso(since), "to": _iso(until), "acted": "1"}
    for label in ("loop", "queue", "node"):
        if label in alert.labels:
            query[label] = alert.labels[label]
            break
    return {
        "ledger": f"{reverse('ledger')}?{urlencode(query)}",
        "at": f"?{urlencode({'at': _iso(alert.began_at)})}",
    }


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
