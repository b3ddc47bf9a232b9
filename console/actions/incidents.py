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

CHANGE = "incident.change"


@transaction.atomic
def change(
    actor: Actor,
    alert_id: int,
    *,
    severity: str | None = None,
    roles: Mapping[str, str] | None = None,
    mitigated: bool = False,
    now: datetime,
) -> Incident:
    """What is given of it; the rest stays."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made: Incident | None = None
    after: dict[str, object] = {}
    if severity is not None:
        made, after["severity"] = incidents.grade(alert_id, actor.user, severity, now), severity
    if roles:
        made, after["roles"] = incidents.assign(alert_id, actor.user, roles, now), dict(roles)
    if mitigated:
        made, after["mitigated"] = incidents.mitigate(alert_id, actor.user, now), True
    if made is None:
        raise BadInput("severity", "is missing; give severity, roles or mitigated.")
    _noted(actor, alert_id, after)
    return made


@transaction.atomic
def write_review(actor: Actor, alert_id: int, *, text: str, revision: int, now: datetime) -> Incident:
    """The review in Markdown; the audit notes that it was written, the review itself is beside it."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made = incidents.write_review(alert_id, actor.user, text.replace("\r\n", "\n"), revision, now)
    _noted(actor, alert_id, {"review": made.review_revision, "characters": len(made.review)})
    return made


@transaction.atomic
def add_follow_up(
    actor: Actor, alert_id: int, *, text: str, owner: str = "", due_on: date | None = None, now: datetime
) -> FollowUp:
    """Something to be done after it."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made = incidents.add_follow_up(alert_id, actor.user, text, owner, due_on, now)
    _noted(actor, alert_id, {"follow_up": made.pk, "text": made.text, "owner": made.owner})
    return made


@transaction.atomic
def set_follow_up(actor: Actor, alert_id: int, number: int, *, done: bool, now: datetime) -> FollowUp:
    """Done, or open again."""
    demand(actor, CHANGE, queues_of_alert(alert_id))
    made = incidents.set_follow_up(alert_id, number, actor.user, done, now)
    _noted(actor, alert_id, {"follow_up": made.pk, "done": done})
    return made


def _noted(actor: Actor, alert_id: int, after: Mapping[str, object]) -> None:
    audit_log.record(actor, CHANGE, f"alert {alert_id}", after=dict(after))
