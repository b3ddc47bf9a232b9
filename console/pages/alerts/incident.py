"""An incident: its timeline, roles, severity, review, and follow-ups."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_date

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import incidents as acting
from console.audit import audit_log
from console.incidents.incident_timeline import IncidentEvent, list_timeline_events, review_of
from console.input.form_values import is_untouched, parse_row_id
from console.pages.frame.page import ActionResult, FormPage, declare_action, declare_page, render_page
from workers.alerts import incidents
from workers.alerts.delivery.notification import Notification, load_notification
from workers.alerts.lifecycle.models import Alert, AlertRule, FollowUp, Incident
from workers.models import Keep

MARKDOWN = "text/markdown; charset=utf-8"


@dataclass(frozen=True)
class RoleRow:
    """A role of an incident, and the user who has it."""

    name: str
    help: str
    who: str


@dataclass(frozen=True, kw_only=True)
class IncidentPage(FormPage):
    """An incident, next to its alert."""

    TEMPLATE, NAME = "alerts/incident.html", "alerts"

    alert: Alert
    incident: Incident
    severity: str
    severities: Sequence[str]
    times: incidents.IncidentTimes
    roles: list[RoleRow]
    happened: list[IncidentEvent]
    review: str
    edits_review: bool  # an incident that is now explained has only what was written before
    follow_ups: QuerySet[FollowUp]
    notification: Notification
    retained: Keep | None


@declare_page("plant.view")
def incident_page(request: HttpRequest, alert_id: int) -> HttpResponse:
    """Show the incident of an alert.

    If another alert explains this one, the other's incident is shown, unless people have already written about this
    one: a review, a follow-up, or that its data is kept.
    """
    alert = _find_incident(alert_id)
    kept = incidents.get_incident(alert)
    roles = [RoleRow(name, help, kept.roles.get(name, "")) for name, help in incidents.ROLES.items()]
    page = IncidentPage(
        alert=alert,
        incident=kept,
        severity=incidents.get_severity(alert),
        severities=AlertRule.Severity.values,
        times=incidents.compute_incident_times(alert),
        roles=roles,
        happened=list_timeline_events(alert, settings.WEIR_DATA),
        review=review_of(alert, settings.WEIR_DATA),
        edits_review=alert.under is None or bool(kept.review),
        follow_ups=FollowUp.objects.filter(incident=alert.pk).order_by("done_at", "pk"),
        notification=load_notification(alert),
        retained=acting.find_retained_range(alert.pk),
    )
    return render_page(request, page, "frame")


@declare_page("plant.view")
def markdown(request: HttpRequest, alert_id: int) -> HttpResponse:
    """Return the review as a Markdown file."""
    alert = _find_incident(alert_id)
    text = review_of(alert, settings.WEIR_DATA)
    audit_log.record(actor_of(request), "export.review", request.path, after={"characters": len(text)})
    response = HttpResponse(text, content_type=MARKDOWN)
    response["Content-Disposition"] = f'attachment; filename="weir-review-{alert.pk}.md"'
    return response


def _find_incident(alert_id: int) -> Alert:
    rows = Alert.objects.filter(fired_at__isnull=False).select_related("rule", "incident__reviewed_by", "under")
    alert: Alert = get_object_or_404(rows, pk=alert_id)
    if alert.under is None or incidents.has_own_record(alert) or acting.find_retained_range(alert.pk):
        return alert
    return _find_incident(alert.under.pk)


def _redirect_with_message(alert_id: int, message: str) -> ActionResult:
    return ActionResult(message, reverse("incident", args=[alert_id]), {"go": reverse("incident", args=[alert_id])})


@declare_action(acting.CHANGE, incident_page)
def change(request: HttpRequest, alert_id: int) -> ActionResult:
    """Change the incident.

    Posted: severity, role-NAME for each role (empty: unassigned); or mitigated; or retained (1 or 0).
    """
    posted = request.POST
    if "retained" in posted:
        retained = posted["retained"] == "1"
        acting.change(actor_of(request), alert_id, retained=retained, now=timezone.now())
        return _redirect_with_message(
            alert_id, "The incident's data is kept." if retained else "Retention deletes the incident's data as usual."
        )
    prefix = "role-"
    # A field that is unchanged requests nothing: somebody else may have changed it since.
    roles = {
        name.removeprefix(prefix): posted.get(name, "").strip()
        for name in posted
        if name.startswith(prefix) and not is_untouched(posted, name)
    }
    keeps = "mitigated" in posted or is_untouched(posted, "severity")
    acting.change(
        actor_of(request),
        alert_id,
        severity=None if keeps else posted.get("severity"),
        roles={} if "mitigated" in posted else roles,
        mitigated="mitigated" in posted,
        now=timezone.now(),
    )
    return _redirect_with_message(
        alert_id, "Marked as mitigated." if "mitigated" in posted else "Severity and roles saved."
    )


@declare_action(acting.CHANGE, incident_page)
def review(request: HttpRequest, alert_id: int) -> ActionResult:
    """Save the review. Posted: text (empty: the draft again), revision (of the text as shown)."""
    revision = parse_row_id(request.POST.get("revision", "").strip())
    made = acting.write_review(
        actor_of(request), alert_id, text=request.POST.get("text", ""), revision=revision or 0, now=timezone.now()
    )
    return _redirect_with_message(alert_id, f"Review saved as revision {made.review_revision}.")


@declare_action(acting.CHANGE, incident_page)
def follow_up(request: HttpRequest, alert_id: int) -> ActionResult:
    """Add a follow-up. Posted: text, owner (a user name, or empty), due_on (a date, or empty)."""
    posted = request.POST
    acting.add_follow_up(
        actor_of(request),
        alert_id,
        text=posted.get("text", ""),
        owner=posted.get("owner", "").strip(),
        due_on=parse_optional_date(posted.get("due_on", "").strip()),
        now=timezone.now(),
    )
    return _redirect_with_message(alert_id, "Follow-up saved.")


@declare_action(acting.CHANGE, incident_page)
def follow_up_done(request: HttpRequest, alert_id: int, follow_up_id: int) -> ActionResult:
    """Mark a follow-up as done. Posted: done (1, or 0 to open it again)."""
    done = request.POST.get("done", "1") == "1"
    made = acting.set_follow_up(actor_of(request), alert_id, follow_up_id, done=done, now=timezone.now())
    return _redirect_with_message(alert_id, f"{'Done' if done else 'Reopened'}: {made.text}")


def parse_optional_date(text: str) -> date | None:
    """Parse a date; return None for an empty text."""
    if not text:
        return None
    try:
        parsed = parse_date(text)
    except ValueError:
        parsed = None
    if parsed is None:
        raise BadInput("due_on", f"must be a date such as 2026-12-01, not {text[:40]!r}.")
    return parsed
