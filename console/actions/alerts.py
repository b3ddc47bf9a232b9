"""What people do to alerts, silences, rules and receivers: one way for pages, API and commands.

Each function asks whether the actor may, changes, and writes the audit in the same transaction: all of it
happens or nothing. All raise PermissionDenied, and BadInput naming the field.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from console.accounts.access import Actor, demand
from console.audit import audit_log
from console.input.shown_digest import demand_unchanged
from queues.errors import BadInput
from workers.alerts import actions
from workers.alerts.conditions.catalog import INTEGRITY
from workers.alerts.delivery import outbox, receivers
from workers.alerts.lifecycle import reported
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, Message, Receiver, Silence
from workers.alerts.lifecycle.reported import StoredReport
from workers.alerts.rules import rules, silences
from workers.alerts.rules.matching import format_matchers
from workers.host.shown_address import mask_address

FINGERPRINT_DIGITS = 12


@transaction.atomic
def acknowledge(actor: Actor, alert_id: int, *, note: str, now: datetime) -> Alert:
    """The actor has it until the rule's time-out."""
    demand(actor, "alert.acknowledge", queues_of_alert(alert_id))
    _demand_integrity(actor, conditions_of_alert(alert_id))
    alert = actions.acknowledge(alert_id, actor.user, note, now)
    _record_action(actor, "alert.acknowledge", alert, note, {"until": _iso(alert.acknowledged_until)})
    return alert


@transaction.atomic
def snooze(actor: Actor, alert_id: int, *, minutes: Any, now: datetime) -> Alert:
    """Nobody is notified of it for so many minutes."""
    demand(actor, "alert.snooze", queues_of_alert(alert_id))
    _demand_integrity(actor, conditions_of_alert(alert_id))
    alert = actions.snooze(alert_id, actor.user, minutes, now)
    _record_action(actor, "alert.snooze", alert, "", {"until": _iso(alert.snoozed_until)})
    return alert


@transaction.atomic
def escalate(actor: Actor, alert_id: int, *, note: str, now: datetime, step: int | None = None) -> Alert:
    """Notify the next step at once. step: the one that was shown as the next; None: whichever it is."""
    demand(actor, "alert.escalate", queues_of_alert(alert_id))
    alert = actions.escalate(alert_id, actor.user, note, now, step)
    _record_action(actor, "alert.escalate", alert, note, {"step": alert.next_step})
    return alert


@transaction.atomic
def note(actor: Actor, alert_id: int, *, text: str, now: datetime) -> AlertEvent:
    """Words beside an alert."""
    demand(actor, "alert.note", queues_of_alert(alert_id))
    made = actions.note(alert_id, actor.user, text, now)
    _record_action(actor, "alert.note", made.alert, made.text, None)
    return made


def report(actor: Actor, document: Mapping[str, Any], *, now: datetime) -> StoredReport:
    """Keep what somebody else's Alertmanager reports, as evidence. It changes nothing of the plant, and is
    kept with the name of the token that brought it; so the audit has no entry for each.
    """
    demand(actor, "alert.report")
    return reported.take(document, actor.name, now)


@transaction.atomic
def silence(actor: Actor, matchers: Any, *, reason: Any, minutes: Any, now: datetime) -> Silence:
    """Alerts that match notify nobody until it ends. It covers those of Weir's own integrity only where an
    administrator sets it.
    """
    demand(actor, "silence.set", queues_of_matchers(matchers))
    if silences.integrity_rules(matchers):
        demand(actor, "integrity.manage")
    made = silences.add(
        matchers, reason, minutes, actor.account, now, covers_integrity=may_silence_integrity(actor)
    )
    after = {"matchers": format_matchers(made.matchers), "expires_at": made.expires_at.isoformat()}
    audit_log.record(actor, "silence.set", f"silence {made.pk}", reason=made.reason, after=after)
    return made


@transaction.atomic
def end_silence(actor: Actor, silence: Silence, *, now: datetime) -> bool:
    """End it now; False when it was over already, and then nothing is noted."""
    demand(actor, "silence.end", queues_of_matchers(silence.matchers))
    ended = silences.end(silence, actor.user, now)
    if ended:
        before = {"matchers": format_matchers(silence.matchers), "expires_at": silence.expires_at.isoformat()}
        audit_log.record(actor, "silence.end", f"silence {silence.pk}", before=before)
    return ended


@transaction.atomic
def define_rule(
    actor: Actor,
    name: Any,
    fields: Mapping[str, Any],
    *,
    reason: str,
    now: datetime,
    revision: int | None = None,
) -> AlertRule:
    """Make or change a rule; the audit keeps what differs."""
    demand(actor, "alert_rule.change")
    text = _reason(reason)
    known = AlertRule.objects.filter(name=name).first() if isinstance(name, str) else None
    _demand_integrity(actor, [known.condition if known else "", fields.get("condition")])
    before = rules.document(known) if known else {}
    made = rules.define(name, fields, now, revision)
    after = rules.document(made)
    changed = {key for key in after if key != "revision" and before.get(key) != after[key]}
    if known and not changed:
        raise BadInput("threshold", "nothing differs from the rule as it is.")
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
    name: Any,
    channel: Any,
    settings: Mapping[str, Any],
    *,
    reason: str,
    digest: str = "",
    **switches: bool | None,
) -> Receiver:
    """Make or change who is notified. switches: `tells_resolved`, `gets_reports`, `enabled`; what is None
    stays as it is. digest: of the receiver as it was shown.
    """
    demand(actor, "receiver.change")
    text = _reason(reason)
    known = Receiver.objects.filter(name=name).first() if isinstance(name, str) else None
    before = audit_document(known) if known else None
    more = {flag: getattr(known, flag) for flag in switches if known}
    if known:
        demand_unchanged(str(name), describe_receiver(known), digest)
    more |= {flag: value for flag, value in switches.items() if value is not None}
    with audit_log.audit_refusals(actor, "receiver.change", str(name), ("url", "secret_environment")):
        made = receivers.define(name, channel, settings, **more)
    after = audit_document(made)
    audit_log.record(actor, "receiver.change", made.name, reason=text, before=before, after=after)
    return made


@transaction.atomic
def delete_receiver(actor: Actor, receiver: Receiver, *, reason: str) -> None:
    """Only one that no rule names; its messages go with it."""
    demand(actor, "receiver.change")
    text = _reason(reason)
    if named := [*receivers.list_rules_using(receiver), *receivers.schedules_of(receiver)]:
        raise BadInput("receiver", f"is named by {', '.join(named[:5])}; take it out there first.")
    before = audit_document(receiver)
    receiver.delete()
    audit_log.record(actor, "receiver.change", receiver.name, reason=text, before=before)


@transaction.atomic
def test_receiver(actor: Actor, receiver: Receiver, *, now: datetime) -> Message:
    """Send it a message that says nothing but that messages arrive."""
    demand(actor, "receiver.test")
    if not receiver.enabled:
        raise BadInput("receiver", "is switched off; switch it on first.")
    made = outbox.test_message(receiver, actor.name, now)
    audit_log.record(actor, "receiver.test", receiver.name, after={"message": made.key})
    return made


def describe_receiver(receiver: Receiver) -> dict[str, Any]:
    """A receiver as those who may change it have it; its address may hold a key to what is behind it."""
    return {
        "name": receiver.name,
        "channel": receiver.channel,
        **receiver.settings,
        "tells_resolved": receiver.tells_resolved,
        "gets_reports": receiver.gets_reports,
        "enabled": receiver.enabled,
    }


def describe_receiver_for(actor: Actor, receiver: Receiver) -> dict[str, Any]:
    """A receiver as the actor may have it."""
    found = describe_receiver(receiver)
    if "url" in found and not actor.may("receiver.change"):
        found["url"] = mask_address(found["url"])
    return found


def audit_document(receiver: Receiver) -> dict[str, Any]:
    """A receiver as the audit keeps it, for good. By its fingerprint one sees that an address has changed;
    nobody can try which it is, as it is made with WEIR_SECRET_KEY.
    """
    found = describe_receiver(receiver)
    if url := found.get("url"):
        fingerprint = salted_hmac("receiver url", url).hexdigest()[:FINGERPRINT_DIGITS]
        found |= {"url": mask_address(url), "url_fingerprint": fingerprint}
    return found


def _record_action(actor: Actor, action: str, alert: Alert, reason: str, after: Any) -> None:
    audit_log.record(actor, action, f"alert {alert.pk}", reason=reason.strip(), after=after)


def _reason(reason: Any) -> str:
    text = reason.strip() if isinstance(reason, str) else ""
    if not text:
        raise BadInput("reason", "is missing; say in a sentence why.")
    return text[:2_000]


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _demand_integrity(actor: Actor, conditions: Iterable[Any]) -> None:
    """Raise PermissionDenied where a condition watches Weir's own integrity, unless an administrator asks."""
    if any(condition in INTEGRITY for condition in conditions if isinstance(condition, str)):
        demand(actor, "integrity.manage")


def may_silence_integrity(actor: Actor) -> bool:
    """Whether a silence of the actor covers alerts about Weir's own integrity."""
    return actor.may("integrity.manage") and actor.reaches(None)


def may_quiet(actor: Actor, alert: Alert) -> bool:
    """Whether to offer the actor to acknowledge or snooze an alert of this condition."""
    return alert.condition not in INTEGRITY or actor.may_somewhere("integrity.manage")


def conditions_of_alert(alert_id: int) -> list[str]:
    """The condition that an alert is of; none for an alert that is not known."""
    return list(Alert.objects.filter(pk=alert_id).values_list("condition", flat=True))


def queues_of_alert(alert_id: int) -> list[str]:
    """The queue that an alert is about; none for one about a node or a process, which anybody may take."""
    labels = Alert.objects.filter(pk=alert_id).values_list("labels", flat=True).first() or {}
    return [labels["queue"]] if labels.get("queue") else []


def queues_of_matchers(matchers: Any) -> list[str] | None:
    """The queue that matchers name; None where they may match alerts of any."""
    rows = matchers if isinstance(matchers, list) else []
    named = [row.get("value") for row in rows if isinstance(row, dict) and _is_of_one_queue(row)]
    return [str(named[0])] if named else None


def _is_of_one_queue(matcher: Mapping[str, Any]) -> bool:
    return matcher.get("label") == "queue" and matcher.get("is") == "="
