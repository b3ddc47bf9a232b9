"""An alert as its page shows it: its state, its meaning, what was tried, and what can be done."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import Actor
from console.actions.alerts import may_quiet
from console.incidents.affected import AffectedQueue
from console.incidents.change_rows import ShownChange, build_change_rows
from console.incidents.changes import is_incident, load_changes
from console.incidents.differences import MAX_READ
from console.incidents.quick_actions import (
    MINUTES,
    OfferedActions,
    QuickAction,
    RelatedPage,
    find_loop,
    iterate_related_pages,
    list_quick_actions,
)
from console.incidents.summary import IncidentSummary, build_incident_summary
from workers.alerts import review
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.delivery.notification import Notification, load_notification
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle import automaton, open_alerts, reported
from workers.alerts.lifecycle.inhibition import GRAVITY
from workers.alerts.lifecycle.models import Alert, AlertEvent, ReportedAlert
from workers.alerts.lifecycle.open_alerts import find_suppression
from workers.alerts.lifecycle.routing import Step, describe_steps, find_steps
from workers.alerts.rules import rules
from workers.control.parts.kind import ChartLane, ChartSeries
from workers.documents.snapshot import Snapshot
from workers.models import Loop

MAX_EVENTS, MAX_CHANGES = 60, 5
MAX_ALIKE, MAX_FOLDED = 4, 200
MAX_CHARTED = 4  # lines on one axis
LABELS = re.compile("_(seconds|per_second|bytes)$")  # the title shows the unit
# The chart covers an hour. The time before the alert matters more than the time after it.
BEFORE, AFTER, LEAD, MAX_SPAN = (timedelta(minutes=minutes) for minutes in (45, 15, 10, 24 * 60))
MIN_MINUTES, MAX_LIVE_MINUTES = 15, 120
MIN_COMPARED = timedelta(minutes=5)  # in a shorter time hardly any change is significant
# Series that are charted next to the alert's own, by the kind of its subject.
BESIDE = {"queue": "queues.{queue}.waiting_events", "node": "nodes.{node}.in_per_second"}
TITLES = {
    "waiting_events": "Waiting events",
    "in_per_second": "Events in, /s",
    "actuator": "Applied by the loop",
    "memory_bytes": "Memory, bytes",
    "workers_busy": "Worker slots",
}


@dataclass
class ListedAlert:
    """An incident: an alert that no other alert explains.

    suppression: why it notifies nobody; explained: rows of the alerts that it explains; more: similar rows, folded
    below it, so that a thousand alerts of one rule don't hide the others.
    """

    alert: Alert
    suppression: str | None
    cause: str = ""  # its headline, if it is the finding of the plant
    explained: list["ListedAlert"] = field(default_factory=list)
    more: list["ListedAlert"] = field(default_factory=list)
    more_count: int = 0  # `more` are the first of them


@dataclass(frozen=True)
class AlertChart:
    """An alert's measured value with its threshold, and related series.

    until: Unix time; None while the chart is live.
    """

    lanes: list[ChartLane]
    minutes: int
    until: float | None


@dataclass(frozen=True, kw_only=True)
class AlertDetails:
    """Everything that the page shows of one alert."""

    id: int
    row: Alert
    incident: IncidentSummary
    is_open: bool
    may_quiet: bool  # whether the user may acknowledge and snooze it, if the role may do so at all
    suppression: str | None
    situation: open_alerts.AlertSituation
    unit: str
    above: bool  # fires above its threshold, not below it
    chart: AlertChart | None
    about: str | None  # query of /api/v1/decisions for the decisions in the chart; None: no decisions
    impact: str
    first_steps: str
    response: review.Response
    is_incident: bool
    changes: list[ShownChange]  # before the alert, the most likely cause first
    more_changes: list[ShownChange]
    can_undo: bool  # one of them
    offered: OfferedActions  # actions that the user may take, and those that people took
    quick_minutes: int  # duration of a hold that an undo starts
    related_pages: list[RelatedPage]
    events: list[AlertEvent]
    reported: list[ReportedAlert]  # by Alertmanagers of others, in the time of the alert
    flaps: bool
    links: dict[str, str]
    runbook: str
    route: str  # whom it notifies, in words
    next_step: str  # whom escalating would notify; "" when no step is left
    notification: Notification

    @property
    def quick_actions(self) -> list[QuickAction]:
        """Return the actions that the user may take, the best first."""
        return self.offered.actions

    @property
    def containing(self) -> list[QuickAction]:
        """Return the actions that contain the impact."""
        return [action for action in self.quick_actions if not action.fixes]

    @property
    def fixing(self) -> list[QuickAction]:
        """Return the actions that end the cause."""
        return [action for action in self.quick_actions if action.fixes]


def sort_alerts(alerts: Sequence[Alert], snapshot: Snapshot) -> list[ListedAlert]:
    """Sort alerts: those that notify first, then by severity, then the oldest first."""
    causes = {finding.incident: finding.sentence for finding in snapshot.health.findings}
    rows = {alert.pk: ListedAlert(alert, find_suppression(alert)[0], causes.get(alert.pk, "")) for alert in alerts}
    top: list[ListedAlert] = []
    for alert in alerts:
        cause = rows.get(alert.under_id or 0)
        (top if cause is None else cause.explained).append(rows[alert.pk])
    for row in rows.values():
        row.explained.sort(key=_order)
    return _fold_rows(sorted(top, key=_order))


def _fold_rows(rows: Sequence[ListedAlert]) -> list[ListedAlert]:
    """Return the first few rows of each rule, with the other rows in `more` of the last one."""
    alike: dict[tuple[str, bool], list[ListedAlert]] = {}
    for row in rows:
        alike.setdefault((row.alert.rule_name, row.suppression is None), []).append(row)
    for group in alike.values():
        last = group[:MAX_ALIKE][-1]
        last.more, last.more_count = group[MAX_ALIKE:][:MAX_FOLDED], max(0, len(group) - MAX_ALIKE)
    folded = {id(row) for group in alike.values() for row in group[MAX_ALIKE:]}
    return [row for row in rows if id(row) not in folded]


def _order(row: ListedAlert) -> tuple[Any, ...]:
    return (row.suppression is not None, -GRAVITY[row.alert.shown_severity], row.alert.since)


def build_alert_details(alert: Alert, snapshot: Snapshot, actor: Actor) -> AlertDetails:
    """Return everything about one alert, as this person may act on it."""
    condition = CONDITIONS.get(alert.condition)
    loop = find_loop(alert)
    summary = build_incident_summary(alert, snapshot, settings.WEIR_DATA)
    events = alert.events.select_related("by").order_by("-at", "-pk")[:MAX_EVENTS]
    changes = build_change_rows(load_changes(alert), actor) if is_incident(alert) else []
    first_steps = ""
    if alert.resolved_at is None:
        node = snapshot.nodes.get(alert.labels.get("node", ""))
        points = (node.points or 0) if node else 0
        first_steps = impact.describe_first_step(alert.condition, alert.touches.get("kind", ""), points)
    steps = find_steps(alert)
    return AlertDetails(
        id=alert.pk,
        row=alert,
        incident=summary,
        is_open=alert.resolved_at is None,
        may_quiet=may_quiet(actor, alert),
        suppression=find_suppression(alert)[0],
        situation=open_alerts.describe_situation(alert),
        unit=condition.unit if condition else "",
        above=condition.above if condition else True,
        chart=_build_chart(alert, summary),
        about=_list_steering_loops(alert, loop),
        impact=impact.read_recorded_impact(alert),
        response=review.build_alert_response(alert),
        first_steps=first_steps,
        is_incident=is_incident(alert),
        changes=changes[:MAX_CHANGES],
        more_changes=changes[MAX_CHANGES:],
        can_undo=any(change.undo for change in changes),
        offered=list_quick_actions(alert, loop, snapshot, actor),
        quick_minutes=MINUTES,
        related_pages=[
            related_page for related_page in iterate_related_pages(alert, loop) if actor.may(related_page.may)
        ],
        events=list(events),
        reported=reported.list_concurrent_reports(alert, *review.find_response_range(alert), timezone.now()),
        flaps=alert.came_back >= automaton.FLAPS,
        links=_build_links(alert),
        runbook=rules.get_help_path(alert.rule) if alert.rule else "",
        route=_describe_route(alert, steps),
        next_step=impact.join_names(steps[alert.next_step]["receivers"]) if alert.next_step < len(steps) else "",
        notification=load_notification(alert),
    )


def _describe_route(alert: Alert, steps: Sequence[Step]) -> str:
    """Return whom the alert notifies, and by which route."""
    if alert.rule is None:
        return "nobody: its rule was deleted"
    own = "its rule's own route" if alert.rule.escalation is not None else "the default route"
    return f"{describe_steps(steps)} ({own})"


def _list_steering_loops(alert: Alert, loop: Loop | None) -> str | None:
    """Return the loops that control the alert's subject, as `review.loops_of` finds them."""
    if "loop" in alert.labels:
        return None if loop is None else urlencode({"loop": loop.pk})
    label = next((label_name for label_name in ("queue", "node") if label_name in alert.labels), None)
    return "" if label is None else urlencode({label: alert.labels[label]})


def _build_queue_lanes(queues: Sequence[AffectedQueue]) -> list[ChartLane]:
    """Return the lanes of an incident of queues: their handler times, their oldest events, and who holds the slots."""
    names = [queue.name for queue in queues[:MAX_CHARTED]]

    def list_series(metric: str) -> list[ChartSeries]:
        return [ChartSeries(f"queues.{name}.{metric}", name, "entity") for name in names]

    limit = ChartSeries("limit", "limit", "limit", queues[0].limit_seconds, "above")
    slots = ChartSeries("totals.worker_slots", "slots", "limit")
    return [
        ChartLane("Handler time per event, s", list_series("service_seconds")),
        ChartLane("Oldest event, s", [*list_series("wait_seconds"), limit]),
        ChartLane("Worker slots in use", [*list_series("workers_at_once"), slots], stacked=True),
    ]


def _build_chart(alert: Alert, incident: IncidentSummary) -> AlertChart | None:
    """Build the chart. An open alert's chart is live; a resolved alert's chart shows its hour."""
    condition = CONDITIONS.get(alert.condition)
    names = condition.list_series(alert.labels) if condition else []
    if condition is None or not (names or incident.affected):
        return None

    def build_lane(title: str, names: list[str], scale: float = 1.0, threshold: float | None = None) -> ChartLane:
        keys = [(name, name.rpartition(".")[2]) for name in names]
        kinds = ["measured", "second"] if len(keys) <= 2 else ["entity"] * len(keys)
        series = [
            ChartSeries(name, LABELS.sub("", key).replace("_", " "), kind)
            for (name, key), kind in zip(keys, kinds, strict=False)
        ]
        if threshold is not None:
            series.append(
                ChartSeries("threshold", "limit", "limit", threshold, "above" if condition.above else "below")
            )
        return ChartLane(title or TITLES[keys[0][1]], series, scale)

    # The measured value with its threshold, or the values that it is calculated from.
    if incident.affected:
        lanes = _build_queue_lanes(incident.affected)
    elif condition.scale is not None:
        title = f"{condition.help.rstrip('.')}, {condition.unit}"
        threshold = alert.threshold / condition.scale if condition.scale else None
        lanes = [build_lane(title, names, condition.scale or 1.0, threshold)]
    else:
        lanes = [build_lane("", names)]
    for label, path in BESIDE.items():
        name = path.format(**{label: alert.labels.get(label, "")})
        if not incident.affected and label in alert.labels and name not in names:
            lanes.append(build_lane("", [name]))
            break
    now = timezone.now()
    if alert.resolved_at is None:
        minutes = (now - alert.began_at + LEAD).total_seconds() / 60
        return AlertChart(lanes, round(min(MAX_LIVE_MINUTES, max(MIN_MINUTES, minutes))), None)
    end = min(now, alert.resolved_at + AFTER)
    minutes = min(MAX_SPAN, end - alert.began_at + BEFORE).total_seconds() / 60
    return AlertChart(lanes, round(minutes), end.timestamp())


def _build_links(alert: Alert) -> dict[str, str]:
    """Return links to the ledger and timeline of its time, and to its queue, node, or loop."""
    since, until = review.find_response_range(alert)
    query = {"from": _format_iso_time(since), "to": _format_iso_time(until), "acted": "1"}
    for label in ("loop", "queue", "node"):
        if label in alert.labels:
            query[label] = alert.labels[label]
            break
    # The range to compare includes some minutes before a short alert, and is limited to the first hours of a long one.
    end = alert.resolved_at or timezone.now()
    compared = min(alert.began_at, end - MIN_COMPARED)
    compared_end = min(end, compared + MAX_READ)
    compared_query = {"from": _format_iso_time(compared), "to": _format_iso_time(compared_end)}
    return {
        "differences": f"{reverse('differences')}?{urlencode(compared_query)}",
        "ledger": f"{reverse('ledger')}?{urlencode(query)}",
        "at": f"?{urlencode({'at': _format_iso_time(alert.began_at)})}",
    }


def _format_iso_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
