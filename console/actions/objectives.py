"""User actions on service levels: create, change, and remove objectives; authorized and audited.

All raise `PermissionDenied`, and `BadInput` that names the field; then nothing was changed.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from workers.alerts.lifecycle.models import Alert
from workers.objectives import definitions
from workers.objectives.models import Objective
from workers.objectives.report import BurnReport, IncidentSpan, report
from workers.steering.overrides import read_reason

BUDGET_CONDITIONS = "budget_"  # these result from missed objectives, and explain nothing


@transaction.atomic
def define(
    actor: Actor, name: object, fields: Mapping[str, Any], *, reason: str, now: datetime, revision: int | None = None
) -> Objective:
    """Create or change an objective; the audit log records the differences."""
    known = Objective.objects.filter(name=name).first() if isinstance(name, str) else None
    before = definitions.document(known) if known else {}
    require_permission(actor, "objective.change", _list_objective_queues({**before, **fields}))
    if known:
        require_permission(actor, "objective.change", _list_objective_queues(before))
    why = read_reason(reason)
    made = definitions.define(name, fields, actor.user, now, revision)
    after = definitions.document(made)
    changed = sorted(key for key in definitions.FIELDS if before.get(key) != after[key])
    if known and not changed:
        raise BadInput("target", "is identical to the current objective.")
    audit_log.record(
        actor,
        "objective.change",
        made.name,
        reason=why,
        before={key: before[key] for key in changed} if known else None,
        after={key: after[key] for key in changed},
    )
    return made


@transaction.atomic
def remove(actor: Actor, objective: Objective, *, reason: str) -> None:
    """Remove an objective with all its counts."""
    before = definitions.document(objective)
    require_permission(actor, "objective.change", _list_objective_queues(before))
    why = read_reason(reason)
    objective.delete()
    audit_log.record(actor, "objective.remove", before["name"], reason=why, before=before)


def _list_objective_queues(fields: Mapping[str, Any]) -> list[str] | None:
    """Return the queue that an objective is about; None if it is about more."""
    subject = fields.get("subject")
    return [subject] if fields.get("kind") == "queue" and isinstance(subject, str) and subject else None


def build_burn_report(objective: Objective, now: datetime) -> BurnReport:
    """Return what used its error budget, with the incidents of its window."""
    since = now - timedelta(days=objective.window_days)
    alerts = (
        Alert.objects.filter(fired_at__isnull=False, under__isnull=True)
        .exclude(condition__startswith=BUDGET_CONDITIONS)
        .exclude(resolved_at__lt=since)
        .values_list("pk", "title", "began_at", "resolved_at")
    )
    spans = [
        IncidentSpan(pk, title, began.timestamp(), None if ended is None else ended.timestamp())
        for pk, title, began, ended in alerts
    ]
    return report(objective, now.timestamp(), spans)
