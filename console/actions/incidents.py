"""What people say of an incident, and note to do after it: one way for pages, API and commands, audited.

All raise PermissionDenied, and BadInput naming the field.
"""

from collections.abc import Mapping
from datetime import date, datetime

from django.db import transaction

from console.accounts.access import Actor, demand
from console.actions.alerts import queues_of_alert
from console.audit import audit_log
from queues.errors import BadInput
from workers.alerts import incidents
from workers.alerts.lifecycle.models import FollowUp, Incident
from workers.batch.jobs import retention
from workers.models import Keep

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
    """What is given of it; the rest stays. retained: whether retention leaves its data."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
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
        raise BadInput("severity", "is missing; give severity, roles, mitigated or retained.")
    _record_change(actor, alert_id, after)
    return made


def find_retained_range(alert_id: int) -> Keep | None:
    """The time range of which retention deletes nothing; None: it deletes all."""
    return Keep.objects.filter(reason=_reason(alert_id)).first()


def _retain(actor: Actor, alert_id: int, retained: bool, now: datetime) -> Incident:
    """Said again of one that was open, it reaches to its end, or to now. Also of one that is explained by now
    they can be let go.
    """
    incident = incidents.lock_incident(alert_id) if retained else incidents.lock_started_incident(alert_id)
    gone, _ = Keep.objects.filter(reason=_reason(alert_id)).delete()
    if retained:
        since, until = incidents.span(incident.alert, now)
        retention.keep(since, until, _reason(alert_id), owner=actor.user)
    elif not gone:
        raise BadInput("retained", "is false already: retention deletes its data as all others.")
    return incident


def _reason(alert_id: int) -> str:
    return f"Incident {alert_id}"


@transaction.atomic
def write_review(actor: Actor, alert_id: int, *, text: str, revision: int, now: datetime) -> Incident:
    """The review in Markdown; the audit notes that it was written, the review itself is beside it."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made = incidents.write_review(alert_id, actor.user, text.replace("\r\n", "\n"), revision, now)
    _record_change(actor, alert_id, {"review": made.review_revision, "characters": len(made.review)})
    return made


@transaction.atomic
def add_follow_up(
    actor: Actor, alert_id: int, *, text: str, owner: str = "", due_on: date | None = None, now: datetime
) -> FollowUp:
    """Something to be done after it."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made = incidents.add_follow_up(alert_id, actor.user, text, owner, due_on, now)
    _record_change(actor, alert_id, {"follow_up": made.pk, "text": made.text, "owner": made.owner})
    return made


@transaction.atomic
def set_follow_up(actor: Actor, alert_id: int, number: int, *, done: bool, now: datetime) -> FollowUp:
    """Done, or open again."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made = incidents.set_follow_up(alert_id, number, actor.user, done, now)
    _record_change(actor, alert_id, {"follow_up": made.pk, "done": done})
    return made


def _record_change(actor: Actor, alert_id: int, after: Mapping[str, object]) -> None:
    audit_log.record(actor, CHANGE, f"alert {alert_id}", after=dict(after))
