"""User actions on tunings, which were learned from a loop's record: approved by hash, or rejected; audited.

Each function authorizes the actor, makes the change, and writes the audit entry in one transaction. All raise
`PermissionDenied`, and `BadInput` that names the field.
"""

from datetime import datetime

from django.db import transaction

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.actions import loops
from console.audit import audit_log
from workers.control import tuning as learning
from workers.models import Override, Tuning
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope


@transaction.atomic
def approve(actor: Actor, tuning: Tuning, hash: str, *, reason: str, now: datetime, expiry: Expiry) -> list[Override]:
    """Put the values of the tuning with this hash in force on its loop until they expire."""
    require_permission(actor, "override.set", loops.list_scope_queues(Scope(tuning.loop)))
    row = _open(tuning)
    if hash != row.hash:
        raise BadInput("hash", "does not match this tuning; open the tuning again and approve the version shown.")
    if why := learning.describe_drift(row, now):
        raise BadInput("tuning", f"is out of date: {why}. Run the task tuning again.")
    made = loops.override(actor, Scope(row.loop), row.values, reason=reason, now=now, expiry=expiry)
    _record_decision(actor, row, Tuning.State.APPROVED, made[0].reason, now)
    return made


@transaction.atomic
def reject(actor: Actor, tuning: Tuning, reason: str, now: datetime) -> Tuning:
    """Reject a tuning permanently."""
    require_permission(actor, "override.set", loops.list_scope_queues(Scope(tuning.loop)))
    row = _open(tuning)
    _record_decision(actor, row, Tuning.State.REJECTED, overrides.read_reason(reason), now)
    return row


def _open(tuning: Tuning) -> Tuning:
    """Return its row, locked until the transaction ends."""
    row = Tuning.objects.select_for_update(of=("self",)).select_related("loop").get(pk=tuning.pk)
    if row.state != Tuning.State.PROPOSED:
        raise BadInput("tuning", f"is already {row.state}; only a proposed tuning can be approved or rejected.")
    return row


def _record_decision(actor: Actor, tuning: Tuning, state: str, reason: str, now: datetime) -> None:
    tuning.state, tuning.decided_by, tuning.decided_at, tuning.note = state, actor.user, now, reason
    tuning.save(update_fields=["state", "decided_by", "decided_at", "note"])
    action = "tuning.approve" if state == Tuning.State.APPROVED else "tuning.reject"
    after = {"tuning": tuning.pk, "hash": tuning.hash[:8], "state": str(state), **tuning.values}
    audit_log.record(actor, action, tuning.loop.name, reason=reason, before=tuning.instead_of, after=after)
