"""Actions of people on an alert.

Each action locks the alert, so that a check of the evaluator runs before or after it, never in between. Each raises
`BadInput` if the action isn't possible; nothing has changed then.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from common import checks
from common.errors import BadInput
from workers.alerts.delivery import outbox
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.automaton import build_episode, keep
from workers.alerts.lifecycle.models import Alert, AlertEvent, Delivery, Receiver
from workers.alerts.lifecycle.open_alerts import OPEN
from workers.alerts.lifecycle.routing import find_steps
from workers.alerts.rules import rules
from workers.steering.scope import format_time

Kind = AlertEvent.Kind
MAX_SNOOZE_MINUTES = 24 * 60
MAX_NOTE = 2_000


@transaction.atomic
def acknowledge(alert_id: int, by: User | None, note: str, now: datetime) -> Alert:
    """Assign the alert to this person: nobody else is notified until the rule's timeout.

    If two people acknowledge it, the later one has it.
    """
    alert = _open(alert_id)
    terms = rules.build_terms(alert.rule) if alert.rule else automaton.Terms()
    keep(alert, automaton.acknowledge(build_episode(alert), terms, now.timestamp()))
    alert.acknowledged_at, alert.acknowledged_by, alert.snoozed_by = now, by, None
    alert.save()
    _record_note(alert, Kind.ACKNOWLEDGED, by, _validate_note(note, required=False), now)
    return alert


@transaction.atomic
def snooze(alert_id: int, by: User | None, minutes: object, now: datetime) -> Alert:
    """Suppress notifications for this many minutes; an acknowledgement ends."""
    alert = _open(alert_id)
    until = now + timedelta(minutes=_validate_minutes(minutes))
    keep(alert, automaton.snooze(build_episode(alert), until.timestamp()))
    alert.snoozed_by, alert.acknowledged_by, alert.acknowledged_at = by, None, None
    alert.save()
    _record_note(alert, Kind.SNOOZED, by, f"until {format_time(until, now)}", now)
    return alert


@transaction.atomic
def withdraw(alert_id: int, by: User | None, now: datetime) -> Alert:
    """End an acknowledgment or a snooze: the receivers are notified again, from the first step on.

    Raises `BadInput` if there is neither.
    """
    alert = _open(alert_id)
    if alert.acknowledged_until is None and alert.snoozed_until is None:
        raise BadInput("alert", "is neither acknowledged nor snoozed.")
    kind = Kind.FIRED_AGAIN if alert.snoozed_until is None else Kind.SNOOZE_ENDED
    keep(alert, automaton.withdraw(build_episode(alert)))
    alert.acknowledged_at, alert.acknowledged_by, alert.snoozed_by = None, None, None
    alert.save()
    _record_note(alert, kind, by, "acknowledgment withdrawn" if kind == Kind.FIRED_AGAIN else "", now)
    return alert


@transaction.atomic
def escalate(alert_id: int, by: User | None, note: str, now: datetime, step: int | None = None) -> Alert:
    """Notify the next step now, regardless of its delay.

    `step` is the step that was shown as the next one; None means whichever is next. Raises `BadInput` if no step is
    left, or if that step was notified in the meantime.
    """
    alert = _open(alert_id)
    steps = find_steps(alert)
    if alert.next_step >= len(steps):
        raise BadInput("step", "can't be notified: all steps of the rule's escalation were already notified.")
    at = alert.next_step
    if step is not None and step != at:
        raise BadInput("step", "was notified or restarted after this page was loaded. Reload the page.")
    alert.next_step = at + 1
    receivers = {receiver.name: receiver for receiver in Receiver.objects.filter(enabled=True)}
    names = ", ".join(steps[at]["receivers"])
    _record_note(alert, Kind.ESCALATED, by, f"to {names}. {_validate_note(note, required=False)}".strip(), now)
    owed = outbox.owe(alert, at, steps[at]["receivers"], receivers, now)
    Delivery.objects.bulk_create(owed, ignore_conflicts=True)
    alert.save()
    return alert


@transaction.atomic
def note(alert_id: int, by: User | None, text: str, now: datetime) -> AlertEvent:
    """Add a note for the next reader; resolved alerts take notes, too."""
    alert = Alert.objects.select_for_update(of=("self",)).filter(pk=alert_id).first()
    if alert is None or alert.fired_at is None:
        raise BadInput("alert", f"{alert_id} does not exist.")
    return _record_note(alert, Kind.NOTE, by, _validate_note(text, required=True), now)


def _open(alert_id: int) -> Alert:
    rows = Alert.objects.select_for_update(of=("self",)).select_related("rule")
    alert = rows.filter(pk=alert_id).first()
    if alert is None or alert.state not in OPEN:
        raise BadInput("alert", "is already resolved." if alert else f"{alert_id} does not exist.")
    return alert


def _record_note(alert: Alert, kind: str, by: User | None, text: str, now: datetime) -> AlertEvent:
    return AlertEvent.objects.create(alert=alert, at=now, kind=kind, by=by, text=text)


def _validate_note(text: object, required: bool) -> str:
    stripped = text.strip() if isinstance(text, str) else ""
    if (required and not stripped) or len(stripped) > MAX_NOTE:
        raise BadInput("note", f"must have 1 to {MAX_NOTE} characters.")
    return stripped


def _validate_minutes(minutes: object) -> float:
    if not checks.is_number(minutes, 0, MAX_SNOOZE_MINUTES) or minutes <= 0:
        raise BadInput("minutes", f"must be above 0 and at most {MAX_SNOOZE_MINUTES} minutes (1 day).")
    return float(minutes)
