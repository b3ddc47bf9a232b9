"""Alerts: the list with the details of one alert, and what users do with it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common import parsing
from console.accounts.access import actor_of
from console.actions import alerts as alerting
from console.drills.records import note_incident_opened
from console.input.form_values import parse_minutes
from console.pages.alerts.alert_view import AlertDetails, ListedAlert, build_alert_details, sort_alerts
from console.pages.frame.frame import Absence, absence_of, get_snapshot
from console.pages.frame.page import ActionResult, FormPage, UndoOffer, declare_action, declare_page, render_page
from console.pages.health.readiness import ALERTER_SECONDS
from workers.alerts.evaluation.impact import join_names
from workers.alerts.lifecycle.models import Alert, AlertWatch
from workers.alerts.lifecycle.open_alerts import OPEN
from workers.alerts.lifecycle.routing import find_steps
from workers.steering.scope import format_time

PER_PAGE = 25
UNWATCHED = timedelta(seconds=ALERTER_SECONDS)


@dataclass(frozen=True, kw_only=True)
class AlertsPage(FormPage):
    """Open incidents, and those that are over."""

    TEMPLATE, NAME = "alerts/alerts.html", "alerts"

    incidents: list[ListedAlert]  # the most severe first, with the alerts that they explain below them
    page_obj: Page[Alert]  # resolved alerts
    query: str = ""
    looked_at: datetime | None  # time of the alerter's last check
    unwatched: bool
    unanswered: bool  # the control server, which the alerter needs, is unreachable


@dataclass(frozen=True, kw_only=True)
class AlertPage(FormPage):
    """An alert with its incident."""

    TEMPLATE, NAME = "alerts/alert.html", "alerts"

    alert: AlertDetails
    act: str  # what a link in a message requests, and the page focuses: acknowledge, now, or ""


@declare_page("plant.view")
def alerts_page(request: HttpRequest) -> HttpResponse:
    """Show the list of incidents."""
    snapshot = get_snapshot(request)
    rows = Alert.objects.select_related("rule", "silence__owner", "acknowledged_by", "snoozed_by", "under", "incident")
    over = rows.filter(state=Alert.State.RESOLVED, under=None).order_by("-resolved_at", "-pk")
    watch = AlertWatch.objects.exclude(looked_at=None).first()
    looked_at = watch.looked_at if watch else None
    page = AlertsPage(
        incidents=sort_alerts(list(rows.filter(state__in=OPEN)), snapshot),
        page_obj=Paginator(over, PER_PAGE).get_page(request.GET.get("page")),
        looked_at=looked_at,
        unwatched=looked_at is None or timezone.now() - looked_at > UNWATCHED,
        unanswered=absence_of(request) == Absence.UNANSWERED,
    )
    return render_page(request, page, "frame")


@declare_page("plant.view")
def alert_page(request: HttpRequest, alert_id: int) -> HttpResponse:
    """Show an alert with its incident."""
    fired = Alert.objects.filter(fired_at__isnull=False).select_related("under", "incident", "rule")
    alert = get_object_or_404(fired, pk=alert_id)
    note_incident_opened(actor_of(request).name, alert, timezone.now())
    details = build_alert_details(alert, get_snapshot(request), actor_of(request))
    return render_page(request, AlertPage(alert=details, act=request.GET.get("act", "")), get_view_name(alert))


def get_view_name(alert: Alert | None) -> str:
    """Return the part of the snapshot that the alert's charts follow."""
    labels = alert.labels if alert else {}
    if "loop" in labels:
        return "loops"
    if "plant" in labels:
        return "plants"
    return f"node:{labels['node']}" if "node" in labels else "frame"


def _redirect_with_message(alert_id: int, message: str, **data: object) -> ActionResult:
    return ActionResult(message, reverse("alert", args=[alert_id]), data)


def _offer_withdrawal(alert_id: int) -> UndoOffer:
    return {"url": reverse("alert-withdraw", args=[alert_id]), "fields": {}}


@declare_action("alert.acknowledge", alert_page)
def acknowledge(request: HttpRequest, alert_id: int) -> ActionResult:
    """Acknowledge an alert. Posted: note (optional)."""
    text, now = request.POST.get("note", ""), timezone.now()
    made = alerting.acknowledge(actor_of(request), alert_id, note=text, now=now)
    end = format_time(made.acknowledged_until or now, now)
    return _redirect_with_message(
        alert_id,
        f"Acknowledged until {end}. If the condition is still true then, the alert fires again.",
        undo=_offer_withdrawal(alert_id),
    )


@declare_action("alert.snooze", alert_page)
def snooze(request: HttpRequest, alert_id: int) -> ActionResult:
    """Snooze an alert. Posted: minutes."""
    minutes, now = parse_minutes(request.POST), timezone.now()
    made = alerting.snooze(actor_of(request), alert_id, minutes=minutes, now=now)
    return _redirect_with_message(
        alert_id,
        f"Notifications are suppressed until {format_time(made.snoozed_until or now, now)}.",
        undo=_offer_withdrawal(alert_id),
    )


@declare_action("alert.acknowledge", alert_page)
def withdraw(request: HttpRequest, alert_id: int) -> ActionResult:
    """End an acknowledgment or a snooze. Nothing is posted."""
    alerting.withdraw(actor_of(request), alert_id, now=timezone.now())
    return _redirect_with_message(alert_id, "The alert is open again, and its escalation restarts.")


@declare_action("alert.escalate", alert_page)
def escalate(request: HttpRequest, alert_id: int) -> ActionResult:
    """Notify the next step now. Posted: note (optional), step (the number that the button shows)."""
    text, shown = request.POST.get("note", ""), parsing.parse_digits(request.POST.get("step", ""))
    made = alerting.escalate(actor_of(request), alert_id, note=text, now=timezone.now(), step=shown)
    step = find_steps(made)[made.next_step - 1]
    return _redirect_with_message(alert_id, f"{join_names(step['receivers'])} will be notified within seconds.")


@declare_action("alert.note", alert_page)
def note(request: HttpRequest, alert_id: int) -> ActionResult:
    """Add a note to an alert. Posted: note."""
    alerting.note(actor_of(request), alert_id, text=request.POST.get("note", ""), now=timezone.now())
    return _redirect_with_message(alert_id, "Note added.")
