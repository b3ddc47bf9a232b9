"""User actions on alerts, silences, rules, and receivers: one implementation for pages, API, and commands.

Each function authorizes the actor, makes the change, and writes the audit entry in one transaction. All raise
`PermissionDenied`, and `BadInput` that names the field.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from common.errors import BadInput
from console.accounts.access import Actor, require_permission
from console.audit import audit_log
from console.input.form_values import check_unchanged
from workers.alerts import actions
from workers.alerts.conditions.catalog import INTEGRITY
from workers.alerts.delivery import outbox, receivers
from workers.alerts.lifecycle import reported
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, Message, Receiver, Silence
from workers.alerts.lifecycle.reported import StoredReport
from workers.alerts.rules import rules, silences
from workers.alerts.rules.rules import format_matchers
from workers.host.egress import mask_address
from workers.steering.overrides import Expiry

FINGERPRINT_DIGITS = 12


@transaction.atomic
def acknowledge(actor: Actor, alert_id: int, *, note: str, now: datetime) -> Alert:
    """Acknowledge an alert for the actor until the rule's timeout."""
    require_permission(actor, "alert.acknowledge", list_alert_queues(alert_id))
    _require_integrity_rights(actor, list_alert_conditions(alert_id))
    alert = actions.acknowledge(alert_id, actor.user, note, now)
    _record_action(actor, "alert.acknowledge", alert, note, {"until": _format_time(alert.acknowledged_until)})
    return alert


@transaction.atomic
def snooze(actor: Actor, alert_id: int, *, minutes: object, now: datetime) -> Alert:
    """Suppress an alert's notifications for some minutes."""
    require_permission(actor, "alert.snooze", list_alert_queues(alert_id))
    _require_integrity_rights(actor, list_alert_conditions(alert_id))
    alert = actions.snooze(alert_id, actor.user, minutes, now)
    _record_action(actor, "alert.snooze", alert, "", {"until": _format_time(alert.snoozed_until)})
    return alert


@transaction.atomic
def withdraw(actor: Actor, alert_id: int, *, now: datetime, reason: str = "") -> Alert:
    """End an acknowledgment or a snooze: the escalation restarts."""
    require_permission(actor, "alert.acknowledge", list_alert_queues(alert_id))
    _require_integrity_rights(actor, list_alert_conditions(alert_id))
    alert = actions.withdraw(alert_id, actor.user, now)
    _record_action(actor, "alert.withdraw", alert, reason, {"state": alert.state})
    return alert


@transaction.atomic
def escalate(actor: Actor, alert_id: int, *, note: str, now: datetime, step: int | None = None) -> Alert:
    """Notify the next step at once. step: the step shown as the next; None: the current next step."""
    require_permission(actor, "alert.escalate", list_alert_queues(alert_id))
    alert = actions.escalate(alert_id, actor.user, note, now, step)
    _record_action(actor, "alert.escalate", alert, note, {"step": alert.next_step})
    return alert


@transaction.atomic
def note(actor: Actor, alert_id: int, *, text: str, now: datetime) -> AlertEvent:
    require_permission(actor, "alert.note", list_alert_queues(alert_id))
    made = actions.note(alert_id, actor.user, text, now)
    _record_action(actor, "alert.note", made.alert, made.text, None)
    return made


def report(actor: Actor, document: Mapping[str, Any], *, now: datetime) -> StoredReport:
    """Keep a report of an external Alertmanager as evidence.

    It changes nothing in the plant, and is kept with the name of its token, so there is no audit entry for each.
    """
    require_permission(actor, "alert.report")
    return reported.take(document, actor.name, now)


@transaction.atomic
def silence(actor: Actor, matchers: object, *, reason: object, minutes: object, now: datetime) -> Silence:
    """Silence matching alerts until it expires; alerts about Weir's own integrity only for an administrator."""
    require_permission(actor, "silence.set", list_matcher_queues(matchers))
    if silences.list_integrity_rules(matchers):
        require_permission(actor, "integrity.manage")
    made = silences.add(matchers, reason, minutes, actor.account, now, covers_integrity=may_silence_integrity(actor))
    after = {"matchers": format_matchers(made.matchers), "expires_at": made.expires_at.isoformat()}
    audit_log.record(actor, "silence.set", f"silence {made.pk}", reason=made.reason, after=after)
    return made


@transaction.atomic
def end_silence(actor: Actor, silence: Silence, *, now: datetime, reason: str = "") -> bool:
    """End a silence now; return False, without an audit entry, if it had ended already."""
    require_permission(actor, "silence.end", list_matcher_queues(silence.matchers))
    ended = silences.end(silence, actor.user, now)
    if ended:
        before = {"matchers": format_matchers(silence.matchers), "expires_at": silence.expires_at.isoformat()}
        audit_log.record(actor, "silence.end", f"silence {silence.pk}", reason=reason, before=before)
    return ended


@transaction.atomic
def extend_silence(actor: Actor, silence: Silence, expiry: Expiry, *, now: datetime) -> datetime:
    """Extend a silence; return its new end. Only administrators extend one that covers Weir's own integrity."""
    require_permission(actor, "silence.set", list_matcher_queues(silence.matchers))
    if silence.covers_integrity:
        require_permission(actor, "integrity.manage")
    before = Silence.objects.select_for_update(of=("self",)).get(pk=silence.pk).expires_at
    until = expiry.compute_later(before, now)
    silences.extend(silence, until, now)
    ends = {"expires_at": before.isoformat()}, {"expires_at": until.isoformat()}
    audit_log.record(actor, "silence.extend", f"silence {silence.pk}", before=ends[0], after=ends[1])
    return until


@transaction.atomic
def define_rule(
    actor: Actor, name: str, fields: Mapping[str, Any], *, reason: str, now: datetime, revision: int | None = None
) -> AlertRule:
    """Create or change a rule; the audit log records the differences."""
    require_permission(actor, "alert_rule.change")
    text = _validate_reason(reason)
    known = AlertRule.objects.filter(name=name).first() if isinstance(name, str) else None
    _require_integrity_rights(actor, [known.condition if known else "", fields.get("condition")])
    before = rules.document(known) if known else {}
    made = rules.define(name, fields, now, revision)
    after = rules.document(made)
    changed = {key for key in after if key != "revision" and before.get(key) != after[key]}
    if known and not changed:
        raise BadInput("threshold", "is identical to the current rule.")
    audit_log.record(
        actor,
        "alert_rule.change",
        made.name,
        reason=text,
        before={key: before[key] for key in sorted(changed) if key in before} if known else None,
        after={key: after[key] for key in sorted(changed)},
    )
    return made


@transaction.atomic
def define_receiver(
    actor: Actor,
    name: object,
    channel: object,
    settings: Mapping[str, Any],
    *,
    reason: str,
    digest: str = "",
    **switches: Any,
) -> Receiver:
    """Create or change a receiver.

    switches: `tells_resolved`, `gets_reports`, `enabled`, and what it takes by the default route (`severities`, `team`,
    `route_minutes`); None keeps a value. digest: of the receiver as shown.
    """
    require_permission(actor, "receiver.change")
    text = _validate_reason(reason)
    known = Receiver.objects.filter(name=name).first() if isinstance(name, str) else None
    before = audit_document(known) if known else None
    more = {flag: getattr(known, flag) for flag in switches if known}
    if known:
        check_unchanged(str(name), describe_receiver(known), digest)
    more |= {flag: value for flag, value in switches.items() if value is not None}
    with audit_log.audit_refusals(actor, "receiver.change", str(name), ("url", "secret_environment")):
        made = receivers.define(name, channel, settings, **more)
    after = audit_document(made)
    audit_log.record(actor, "receiver.change", made.name, reason=text, before=before, after=after)
    return made


@transaction.atomic
def delete_receiver(actor: Actor, receiver: Receiver, *, reason: str) -> None:
    """Delete a receiver that no rule names, with its messages."""
    require_permission(actor, "receiver.change")
    text = _validate_reason(reason)
    if named := [*receivers.list_rules_using(receiver), *receivers.list_fallback_schedules(receiver)]:
        raise BadInput("receiver", f"is used by {', '.join(named[:5])}. Remove it there first.")
    before = audit_document(receiver)
    receiver.delete()
    audit_log.record(actor, "receiver.change", receiver.name, reason=text, before=before)


@transaction.atomic
def test_receiver(actor: Actor, receiver: Receiver, *, now: datetime) -> Message:
    require_permission(actor, "receiver.test")
    if not receiver.enabled:
        raise BadInput("receiver", "is disabled. Enable it first.")
    made = outbox.test_message(receiver, actor.name, now)
    audit_log.record(actor, "receiver.test", receiver.name, after={"message": made.key})
    return made


def describe_receiver(receiver: Receiver) -> dict[str, Any]:
    """Return a receiver for those who may change it; its address may contain a key."""
    return {
        "name": receiver.name,
        "channel": receiver.channel,
        **receiver.settings,
        "tells_resolved": receiver.tells_resolved,
        "gets_reports": receiver.gets_reports,
        "enabled": receiver.enabled,
        "severities": receiver.severities,
        "team": receiver.team,
        "route_minutes": receiver.route_minutes,
    }


def describe_receiver_for(actor: Actor, receiver: Receiver) -> dict[str, Any]:
    """Return a receiver as the actor may see it."""
    document = describe_receiver(receiver)
    if "url" in document and not actor.may("receiver.change"):
        document["url"] = mask_address(document["url"])
    return document


def audit_document(receiver: Receiver) -> dict[str, Any]:
    """Return a receiver for the audit log.

    Its fingerprint shows that an address has changed, but can't be used to guess the address, since it is made with
    WEIR_SECRET_KEY.
    """
    document = describe_receiver(receiver)
    if url := document.get("url"):
        fingerprint = salted_hmac("receiver URL", url).hexdigest()[:FINGERPRINT_DIGITS]
        document |= {"url": mask_address(url), "url_fingerprint": fingerprint}
    return document


def _record_action(actor: Actor, action: str, alert: Alert, reason: str, after: object) -> None:
    audit_log.record(actor, action, f"alert {alert.pk}", reason=reason.strip(), after=after)


def _validate_reason(reason: object) -> str:
    text = reason.strip() if isinstance(reason, str) else ""
    if not text:
        raise BadInput("reason", "is missing. Give a reason in a sentence.")
    return text[:2_000]


def _format_time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _require_integrity_rights(actor: Actor, conditions: Iterable[Any]) -> None:
    """Raise `PermissionDenied` if a condition watches Weir's own integrity. Administrators may use such a condition."""
    if any(condition in INTEGRITY for condition in conditions if isinstance(condition, str)):
        require_permission(actor, "integrity.manage")


def may_silence_integrity(actor: Actor) -> bool:
    """Return whether a silence of the actor covers alerts about Weir's own integrity."""
    return actor.may("integrity.manage") and actor.can_access_queues(None)


def may_quiet(actor: Actor, alert: Alert) -> bool:
    """Return whether to offer the actor to acknowledge or snooze the alert."""
    return alert.condition not in INTEGRITY or actor.may_somewhere("integrity.manage")


def list_alert_conditions(alert_id: int) -> list[str]:
    """Return the condition of an alert; none for an unknown alert."""
    return list(Alert.objects.filter(pk=alert_id).values_list("condition", flat=True))


def list_alert_queues(alert_id: int) -> list[str]:
    """Return the queue that an alert is about; none for an alert about a node or a process."""
    labels = Alert.objects.filter(pk=alert_id).values_list("labels", flat=True).first() or {}
    return [labels["queue"]] if labels.get("queue") else []


def list_matcher_queues(matchers: object) -> list[str] | None:
    """Return the queue that matchers name; None if they may match alerts of any queue."""
    rows = matchers if isinstance(matchers, list) else []
    named = [
        row.get("value")
        for row in rows
        if isinstance(row, dict) and (row.get("label") == "queue" and row.get("is") == "=")
    ]
    return [str(named[0])] if named else None
