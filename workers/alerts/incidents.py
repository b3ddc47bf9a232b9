"""Records that people make of an incident.

They are its severity, who does what, when it was mitigated, its review, and its follow-ups. Each function raises
`BadInput` if it isn't possible; nothing has changed then.

An alert that another one has come to explain is no incident any more: nothing new is recorded. Earlier records can
still be completed: follow-ups are done, the review is edited, the data are deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet

from common.errors import BadInput
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.lifecycle.inhibition import PROBLEM_BEGAN
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, FollowUp, Incident, compute_seconds_between

Kind = AlertEvent.Kind
ROLES = {
    "lead": "decides and assigns the work",
    "operations": "changes the plant",
    "communication": "keeps everyone informed",
    "scribe": "takes notes",
}
REACH = timedelta(hours=3)  # Possible causes of an incident are searched this long before its onset.
MAX_EARLIER = timedelta(minutes=10)  # how much earlier than an alert its problem may have begun
MAX_REVIEW, MAX_FOLLOW_UP = 50_000, 500
MAX_FOLLOW_UPS = 50


@dataclass(frozen=True)
class IncidentTimes:
    """Seconds from the onset to firing, and from firing to the other times; None: not reached yet."""

    detect_seconds: float | None
    acknowledge_seconds: float | None
    mitigate_seconds: float | None
    resolve_seconds: float | None


def get_incident(alert: Alert) -> Incident:
    """Return the stored incident; an empty one if nothing is stored."""
    return getattr(alert, "incident", None) or Incident(alert=alert)


def get_severity(alert: Alert) -> str:
    """Return the severity that a person set, else the rule's."""
    return alert.shown_severity


def compute_incident_times(alert: Alert) -> IncidentTimes:
    """Return the times of the alert's events."""
    taken = alert.events.filter(kind=Kind.ACKNOWLEDGED).order_by("at").values_list("at", flat=True).first()
    mitigated = get_incident(alert).mitigated_at
    fired = alert.fired_at
    return IncidentTimes(
        compute_seconds_between(alert.began_at - _compute_elapsed_before(alert), fired),
        compute_seconds_between(fired, taken),
        compute_seconds_between(fired, mitigated),
        compute_seconds_between(fired, alert.resolved_at),
    )


def compute_onset(alert: Alert) -> datetime:
    """Return when the incident really started, the last time if it came back.

    For a silent subject, this is a threshold before its condition was true.
    """
    began = alert.began_at
    if alert.returned_at is not None:
        began = max(began, alert.returned_at - timedelta(seconds=alert.rule.for_seconds if alert.rule else 0))
    onset = began - _compute_elapsed_before(alert)
    # The problem that the snapshot knew is often older than the condition of the alert.
    seen = (alert.touches or {}).get(PROBLEM_BEGAN)
    problem = onset if seen is None else datetime.fromtimestamp(seen, UTC)
    return problem if onset - MAX_EARLIER <= problem <= onset else onset


def _compute_elapsed_before(alert: Alert) -> timedelta:
    """Return how long it had lasted when its condition became true."""
    condition = CONDITIONS.get(alert.condition)
    return timedelta(seconds=alert.threshold if condition and condition.elapses else 0.0)


def span(alert: Alert, now: datetime) -> tuple[datetime, datetime]:
    """Return the time range from its possible causes to its end, or until now while it is open."""
    return min(alert.began_at, compute_onset(alert)) - REACH, alert.resolved_at or now


@transaction.atomic
def grade(alert_id: int, by: User | None, severity: str, now: datetime) -> Incident:
    """Set the severity; "" for that of its rule."""
    if severity not in ("", *AlertRule.Severity.values):
        raise BadInput("severity", f"must be one of {', '.join(AlertRule.Severity.values)}, not {severity[:40]!r}.")
    incident = lock_incident(alert_id)
    if incident.severity != severity:
        incident.severity = severity
        incident.save(update_fields=["severity"])
        _record_note(incident, Kind.GRADED, by, severity or f"{incident.alert.severity}, from its rule", now)
    return incident


@transaction.atomic
def assign(alert_id: int, by: User | None, roles: Mapping[str, str], now: datetime) -> Incident:
    """Set who has which role; "" for nobody. Roles that are not named stay."""
    for role, who in roles.items():
        if role not in ROLES:
            raise BadInput("roles", f"must be one of {', '.join(ROLES)}, not {str(role)[:40]!r}.")
        _check_person(role, who)
    incident = lock_incident(alert_id)
    for role, who in roles.items():
        if incident.roles.get(role, "") != who:
            incident.roles = {**incident.roles, role: who}
            _record_note(incident, Kind.ROLE, by, f"{role}: {who or 'unassigned'}", now)
    incident.save(update_fields=["roles"])
    return incident


@transaction.atomic
def mitigate(alert_id: int, by: User | None, now: datetime) -> Incident:
    """Record that there is no more harm, though the cause may still exist; the first time is kept."""
    incident = lock_incident(alert_id)
    if incident.mitigated_at is not None:
        raise BadInput("mitigated", f"was already recorded at {incident.mitigated_at:%H:%M:%S} UTC.")
    incident.mitigated_at = now
    incident.save(update_fields=["mitigated_at"])
    _record_note(incident, Kind.MITIGATED, by, "", now)
    return incident


@transaction.atomic
def write_review(alert_id: int, by: User | None, text: str, revision: int, now: datetime) -> Incident:
    """Store the review as edited.

    An edit of an older revision is refused, so that nobody overwrites another person's. "" restores the draft.
    """
    if len(text) > MAX_REVIEW:
        raise BadInput("text", f"must have at most {MAX_REVIEW:,} characters.")
    incident = lock_started_incident(alert_id)
    if not incident.review:
        _require_unexplained(incident.alert)
    if incident.review_revision != revision:
        raise BadInput("revision", "is outdated: another user changed the review. Reload the page.")
    incident.review, incident.review_revision = text, revision + 1
    incident.reviewed_by, incident.reviewed_at = by, now
    incident.save(update_fields=["review", "review_revision", "reviewed_by", "reviewed_at"])
    _record_note(incident, Kind.REVIEWED, by, f"revision {revision + 1}", now)
    return incident


@transaction.atomic
def add_follow_up(
    alert_id: int, by: User | None, text: str, owner: str, due_on: date | None, now: datetime
) -> FollowUp:
    """Add a follow-up: something to be done after the incident."""
    what = text.strip()
    if not 0 < len(what) <= MAX_FOLLOW_UP:
        raise BadInput("text", f"must have 1 to {MAX_FOLLOW_UP} characters.")
    _check_person("owner", owner)
    incident = lock_incident(alert_id)
    if incident.follow_ups.count() >= MAX_FOLLOW_UPS:
        raise BadInput("text", f"can't be added: an incident has at most {MAX_FOLLOW_UPS} follow-ups.")
    made = incident.follow_ups.create(text=what, owner=owner, due_on=due_on, created_at=now)
    _record_note(incident, Kind.FOLLOW_UP, by, what, now)
    return made


@transaction.atomic
def set_follow_up(alert_id: int, number: int, by: User | None, done: bool, now: datetime) -> FollowUp:
    """Mark a follow-up as done, or as open again."""
    incident = lock_started_incident(alert_id)
    follow_up = incident.follow_ups.select_for_update(of=("self",)).filter(pk=number).first()
    if follow_up is None:
        raise BadInput("follow_up", f"{number} is not a follow-up of this incident.")
    if (follow_up.done_at is not None) == done:
        raise BadInput("done", f"is already {'done' if done else 'open'}.")
    follow_up.done_at, follow_up.done_by = (now, by) if done else (None, None)
    follow_up.save(update_fields=["done_at", "done_by"])
    _record_note(incident, Kind.FOLLOW_UP, by, f"{'done' if done else 'reopened'}: {follow_up.text}", now)
    return follow_up


def has_own_record(alert: Alert) -> bool:
    """Return whether people have written a review, or added follow-ups."""
    incident = get_incident(alert)
    return bool(incident.review) or FollowUp.objects.filter(incident=alert.pk).exists()


def open_follow_ups() -> QuerySet[FollowUp]:
    """Return the open follow-ups of all incidents, the earliest due date first; those without a date last."""
    rows = FollowUp.objects.filter(done_at=None).select_related("incident__alert")
    return rows.order_by(F("due_on").asc(nulls_last=True), "pk")


def lock_incident(alert_id: int) -> Incident:
    """Lock an incident for a new record, by its alert, so that two people who add the first record write one row."""
    incident = lock_started_incident(alert_id)
    _require_unexplained(incident.alert)
    return incident


def lock_started_incident(alert_id: int) -> Incident:
    """Lock an incident to complete an earlier record; also of an alert that is explained by now."""
    alert = Alert.objects.select_for_update(of=("self",)).filter(pk=alert_id).first()
    if alert is None or alert.fired_at is None:
        raise BadInput("alert", f"{alert_id} does not exist.")
    return Incident.objects.select_related("alert").get_or_create(alert=alert)[0]


def _require_unexplained(alert: Alert) -> None:
    if alert.under_id is not None:
        raise BadInput("alert", f"is explained by alert {alert.under_id}. Use the incident of that alert.")


def _check_person(field: str, who: object) -> None:
    if not isinstance(who, str):
        raise BadInput(field, "must be a username or empty.")
    if who and not User.objects.filter(username=who, is_active=True).exists():
        raise BadInput(field, f"must be the username of an active user, or empty, not {who[:60]!r}.")


def _record_note(incident: Incident, kind: str, by: User | None, text: str, now: datetime) -> None:
    AlertEvent.objects.create(alert_id=incident.alert_id, at=now, kind=kind, by=by, text=text)
