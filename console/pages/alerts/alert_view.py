"""An alert as its page shows it: where it stands, what it means, what was tried, what can be done."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from workers.alerts import history
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.condition import Condition
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle import machine, on_call
from workers.alerts.lifecycle.inhibition import GRAVITY
from workers.alerts.lifecycle.models import Alert
from workers.alerts.lifecycle.open_alerts import suppression_of
from workers.alerts.rules import runbook, silences

MOST_EVENTS = 60
MOST_ALIKE, MOST_FOLDED = 4, 200
LABELS = re.compile("_(seconds|per_second|bytes)$")  # the unit stands in the title
# The hour: what went before it matters more than what came after.
BEFORE, AFTER, LEAD, LONGEST = (timedelta(minutes=each) for each in (45, 15, 10, 24 * 60))
LEAST_MINUTES, MOST_LIVE_MINUTES = 15, 120
# What is charted beside what is watched, by what the alert is about.
BESIDE = {"queue": "queues.{queue}.waiting_events", "node": "nodes.{node}.in_per_second"}
TITLES = {
    "waiting_events": "Waiting events",
    "in_per_second": "Events in, /s",
    "actuator": "What the loop applied",
    "memory_bytes": "Memory, bytes",
    "workers_busy": "Worker slots",
}


def listed(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    """{"alert", "quiet", "explained", "more"}: those that notify first, the most severe, the oldest.

    `explained`: rows of those it explains; `more`: rows alike that are folded below it, so that a thousand of
    one rule hide no other.
    """
    rows: dict[int, dict[str, Any]] = {
        alert.pk: {"alert": alert, "quiet": suppression_of(alert)[0], "explained": [], "more": []}
        for alert in alerts
    }
    top: list[dict[str, Any]] = []
    for alert in alerts:
        cause = rows.get(alert.under_id or 0)
        (top if cause is None else cause["explained"]).append(rows[alert.pk])
    for row in rows.values():
        row["explained"].sort(key=_order)
    return _folded(sorted(top, key=_order))


def _folded(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first few of each rule; the others are the last one's `more`."""
    alike: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    for row in rows:
        alike.setdefault((row["alert"].rule_name, row["quiet"] is None), []).append(row)
    for group in alike.values():
        group[:MOST_ALIKE][-1]["more"] = group[MOST_ALIKE:][:MOST_FOLDED]
    folded = {id(row) for group in alike.values() for row in group[MOST_ALIKE:]}
    return [row for row in rows if id(row) not in folded]


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
        "quiet": suppression_of(alert)[0],
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
        "runbook": runbook.path(alert.rule) if alert.rule else "",
        "matchers": [
            {"label": label, "is": "=", "value": value}
            for label, value in silences.labels_of(alert).items()
            if label != "severity"
        ],
        "next_step": _next_step(alert),
    }


def _next_step(alert: Alert) -> str:
    """Whom escalating would notify; empty when no step is left."""
    steps = alert.rule.escalation if alert.rule else []
    return " and ".join(steps[alert.next_step]["receivers"]) if alert.next_step < len(steps) else ""


def _chart(alert: Alert) -> dict[str, Any] | None:
    """What it watches against its threshold, and what it is about beside it: {"lanes", "minutes", "until"}.

    The chart of an open alert goes on live; that of one that is over shows its hour.
    """
    condition = CONDITIONS.get(alert.condition)
    names = condition.charted(alert.labels) if condition else []
    if condition is None or not names:
        return None
    lanes = [_lane(condition, names, alert.threshold)]
    for label, path in BESIDE.items():
        name = path.format(**{label: alert.labels.get(label, "")})
        if label in alert.labels and name not in names:
            beside = {"title": TITLES[_key(path)], "scale": 1.0, "threshold": None}
            lanes.append({**beside, "series": _series([name])})
            break
    return {"lanes": lanes, **_hour(alert)}


def _lane(condition: Condition, names: list[str], threshold: float) -> dict[str, Any]:
    """What is watched, against its threshold; or, where that is made of more, what it is made of."""
    watched = condition.scale is not None
    title = f"{condition.help.rstrip('.')}, {condition.unit}"
    return {
        "title": title if watched else TITLES[_key(names[0])],
        "scale": condition.scale or 1.0,
        "series": _series(names),
        "threshold": threshold / condition.scale if condition.scale else None,
    }


def _series(names: list[str]) -> list[dict[str, str]]:
    return [{"path": name, "label": LABELS.sub("", _key(name)).replace("_", " ")} for name in names]


def _key(path: str) -> str:
    return path.rpartition(".")[2]


def _hour(alert: Alert) -> dict[str, Any]:
    now = timezone.now()
    if alert.resolved_at is None:
        minutes = (now - alert.began_at + LEAD).total_seconds() / 60
        return {"minutes": round(min(MOST_LIVE_MINUTES, max(LEAST_MINUTES, minutes))), "until": None}
    end = min(now, alert.resolved_at + AFTER)
    return {
        "minutes": round(min(LONGEST, end - alert.began_at + BEFORE).total_seconds() / 60),
        "until": end.timestamp(),
    }


def _links(alert: Alert) -> dict[str, str]:
    """Where to find more: ledger and timeline of its time, its queue, node or loop."""
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
