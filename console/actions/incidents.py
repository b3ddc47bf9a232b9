"""User actions on incidents: notes, roles, and follow-ups.

Pages, API, and commands share this implementation. Actions are audited. All raise `PermissionDenied`, and `BadInput`
that names the field.
"""

from collections.abc import Mapping
from datetime import date, datetime

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.actions.alerts import list_alert_queues
from console.audit import audit_log
from workers.alerts import incidents
from workers.alerts.lifecycle.models import FollowUp, Incident
from workers.models import Keep
from workers.steering import kept

CHANGE = "incident.change"


@transaction.atomic
def change(
    actor: Actor,
    alert_id: int,
    *,
    severity: str | None = None,
    roles: Mapping[str, str] | None = None,
    mitigated: bool = False,
    retained: bool | None = None,
    now: datetime,
) -> Incident:
    """Change the given attributes; the others keep their values. retained: whether retention keeps its data."""
    require_permission(actor, CHANGE, list_alert_queues(alert_id))
    made: Incident | None = None
    after: dict[str, object] = {}
    if severity is not None:
        made, after["severity"] = incidents.grade(alert_id, actor.user, severity, now), severity
    if roles:
        made, after["roles"] = incidents.assign(alert_id, actor.user, roles, now), dict(roles)
    if mitigated:
        made, after["mitigated"] = incidents.mitigate(alert_id, actor.user, now), True
    if retained is not None:
        made, after["retained"] = _retain(actor, alert_id, retained, now), retained
    if made is None:
        raise BadInput("severity", "is missing. Give severity, roles, mitigated, or retained.")
    _record_change(actor, alert_id, after)
    return made


def find_retained_range(alert_id: int) -> Keep | None:
    """Return the time range in which retention deletes nothing; None: it deletes everything."""
    return Keep.objects.filter(reason=_format_reason(alert_id)).first()


def _retain(actor: Actor, alert_id: int, retained: bool, now: datetime) -> Incident:
    """Retain the data of an incident, or release it.

    If an incident that was open is retained again, the range extends to its end or to now. Data of an incident that is
    now explained can also be released.
    """
    incident = incidents.lock_incident(alert_id) if retained else incidents.lock_started_incident(alert_id)
    gone, _ = Keep.objects.filter(reason=_format_reason(alert_id)).delete()
    if retained:
        since, until = incidents.span(incident.alert, now)
        kept.keep(since, until, _format_reason(alert_id), owner=actor.user)
    elif not gone:
        raise BadInput("retained", "is already false: retention deletes the incident's data as usual.")
    return incident


def _format_reason(alert_id: int) -> str:
    return f"Incident {alert_id}"


@transaction.atomic
def write_review(actor: Actor, alert_id: int, *, text: str, revision: int, now: datetime) -> Incident:
    """Save the review in Markdown; the audit log records that it was written, not its text."""
    require_permission(actor, CHANGE, list_alert_queues(alert_id))
    made = incidents.write_review(alert_id, actor.user, text.replace("\r\n", "\n"), revision, now)
    _record_change(actor, alert_id, {"review": made.review_revision, "characters": len(made.review)})
    return made


@transaction.atomic
def add_follow_up(
    actor: Actor, alert_id: int, *, text: str, owner: str = "", due_on: date | None = None, now: datetime
) -> FollowUp:
    require_permission(actor, CHANGE, list_alert_queues(alert_id))
    made = incidents.add_follow_up(alert_id, actor.user, text, owner, due_on, now)
    _record_change(actor, alert_id, {"follow_up": made.pk, "text": made.text, "owner": made.owner})
    return made


@transaction.atomic
def set_follow_up(actor: Actor, alert_id: int, number: int, *, done: bool, now: datetime) -> FollowUp:
    """Mark a follow-up as done, or open it again."""
    require_permission(actor, CHANGE, list_alert_queues(alert_id))
    made = incidents.set_follow_up(alert_id, number, actor.user, done, now)
    _record_change(actor, alert_id, {"follow_up": made.pk, "done": done})
    return made


def _record_change(actor: Actor, alert_id: int, after: Mapping[str, object]) -> None:
    audit_log.record(actor, CHANGE, f"alert {alert_id}", after=dict(after))
