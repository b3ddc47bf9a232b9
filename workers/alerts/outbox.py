"""What is owed to receivers, bundled into messages, and sent until it has arrived.

A delivery is owed once for each (alert, receiver, kind, round, step): the database holds that. Deliveries of
one group that wait together become one message; its key and its content are frozen before it is first sent,
so a process that dies between sending and noting sends the same message again, and the receiver drops it.
"""

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from workers.alerts.models import Alert, AlertEvent, Delivery, Message, Receiver
from workers.backoff import Backoff

logger = logging.getLogger(__name__)
# Those of one group that fire within this time are told together.
GROUP_SECONDS = 3.0
MOST_TRIES = 10
BACKOFF = Backoff(base_seconds=2.0, cap_seconds=300.0)
Waiting = Message.State.WAITING


def owe(
    alert: Alert, step: int, names: Sequence[str], receivers: Mapping[str, Receiver], now: datetime
) -> None:
    """A step is due: its receivers are owed the alert. One that is gone or switched off is passed over; what
    says that messages to a receiver fail isn't sent to that receiver.
    """
    for name in names:
        receiver = receivers.get(name)
        if receiver is None or alert.labels.get("receiver") == name:
            continue
        _owed(alert, receiver, Delivery.Kind.FIRING, step, now)
        if receiver.channel == Receiver.Channel.BROWSER:
            alert.announcement = f"{alert.round}.{step}"
    if step > 0:
        text = f"Step {step + 1}: {', '.join(names)}."
        AlertEvent.objects.create(alert=alert, at=now, kind=AlertEvent.Kind.ESCALATED, text=text)


def owe_end(alert: Alert, now: datetime) -> None:
    """It has ended: who was told of it, or is about to be, is owed that too."""
    told = alert.deliveries.filter(kind=Delivery.Kind.FIRING, receiver__tells_resolved=True)
    for receiver in Receiver.objects.filter(pk__in=told.values("receiver"), enabled=True):
        _owed(alert, receiver, Delivery.Kind.RESOLVED, 0, now)


def _owed(alert: Alert, receiver: Receiver, kind: str, step: int, now: datetime) -> None:
    Delivery.objects.get_or_create(
        alert=alert,
        receiver=receiver,
        kind=kind,
        round=alert.round,
        step=step,
        defaults={"group": group_of(alert), "created_at": now},
    )


def group_of(alert: Alert) -> str:
    """What alerts must agree in to be told together."""
    labels = {**alert.labels, "rule": alert.rule_name, "severity": alert.severity}
    wanted = alert.rule.group_by if alert.rule else ["rule"]
    return " ".join(f"{label}={labels.get(label, '')}" for label in wanted)[:200]


def bundle(now: datetime) -> list[Message]:
    """Messages out of the deliveries whose group has waited long enough."""
    waiting = Delivery.objects.filter(state=Delivery.State.WAITING).order_by("pk")
    ripe = waiting.filter(created_at__lte=now - timedelta(seconds=GROUP_SECONDS))
    groups = ripe.values_list("receiver_id", "group", "kind").order_by().distinct()
    made = [_bundled(receiver, group, kind, now) for receiver, group, kind in groups]
    return [message for message in made if message is not None]


@transaction.atomic
def _bundled(receiver: int, group: str, kind: str, now: datetime) -> Message | None:
    rows = Delivery.objects.select_for_update(of=("self",)).filter(
        receiver_id=receiver, group=group, kind=kind, state=Delivery.State.WAITING
    )
    found = list(rows.select_related("alert__rule").order_by("pk"))
    dropped = [each for each in found if _is_void(each)]
    Delivery.objects.filter(pk__in=[each.pk for each in dropped]).update(state=Delivery.State.DROPPED)
    told = [each for each in found if each not in dropped and not _waits_its_turn(each)]
    if not told:
        return None
    alerts = list({each.alert_id: each.alert for each in told}.values())
    message = Message.objects.create(
        key=secrets.token_hex(16),
        receiver_id=receiver,
        content=content(kind, alerts),
        created_at=now,
        due_at=now,
    )
    Delivery.objects.filter(pk__in=[each.pk for each in told]).update(
        state=Delivery.State.BUNDLED, message=message
    )
    return message


def _firing_deliveries(delivery: Delivery) -> Any:
    return Delivery.objects.filter(
        alert=delivery.alert_id, receiver=delivery.receiver_id, kind=Delivery.Kind.FIRING
    )


def _is_void(delivery: Delivery) -> bool:
    """The alert was over before anybody was told; or the end of one that this receiver never heard of."""
    if delivery.kind == Delivery.Kind.FIRING:
        return delivery.alert.resolved_at is not None
    heard = _firing_deliveries(delivery).filter(state__in=("waiting", "bundled"))
    return not heard.exclude(message__state=Message.State.FAILED).exists()


def _waits_its_turn(delivery: Delivery) -> bool:
    """Nobody hears of an end before the beginning."""
    if delivery.kind == Delivery.Kind.FIRING:
        return False
    return _firing_deliveries(delivery).filter(message__state=Waiting).exists()


def content(kind: str, alerts: Sequence[Alert]) -> dict[str, Any]:
    """What a message says, frozen: the alerts as they are now, the gravest first."""
    order = {name: at for at, name in enumerate(("critical", "warning", "notice"))}
    rows = sorted(alerts, key=lambda each: (order[each.severity], each.pk))
    first = rows[0]
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    over = "Over: " if kind == Delivery.Kind.RESOLVED else ""
    return {
        "kind": kind,
        "severity": first.severity,
        "title": f"{over}{first.title}{others}",
        "sentence": first.sentence,
        "alerts": [_told(each) for each in rows],
    }


def _told(alert: Alert) -> dict[str, Any]:
    moments = {"fired_at": alert.fired_at, "resolved_at": alert.resolved_at}
    return {
        "id": alert.pk,
        "rule": alert.rule_name,
        "title": alert.title,
        "severity": alert.severity,
        "labels": alert.labels,
        "sentence": alert.sentence,
        "impact": alert.impact,
        "value": alert.value,
        "threshold": alert.threshold,
        "runbook": alert.rule.runbook if alert.rule else "",
        "path": f"/alerts/{alert.pk}/",
        **{name: None if at is None else at.isoformat() for name, at in moments.items()},
    }


def test_message(receiver: Receiver, by: str, now: datetime) -> Message:
    """A message that says nothing but that messages arrive; sent like any other."""
    said = {
        "kind": "test",
        "severity": "notice",
        "title": "Test of a receiver",
        "sentence": f"{by} tests whether messages reach {receiver.name}. Nothing has happened.",
        "alerts": [],
    }
    return Message.objects.create(
        key=secrets.token_hex(16), receiver=receiver, content=said, created_at=now, due_at=now
    )


def due(now: datetime) -> list[Message]:
    """Messages that wait to be sent now, the oldest first; none to a receiver that is switched off."""
    rows = Message.objects.filter(state=Waiting, due_at__lte=now, receiver__enabled=True)
    return list(rows.select_related("receiver").order_by("pk"))


@transaction.atomic
def sent(message: Message, now: datetime) -> None:
    """It has arrived; each of its alerts says so."""
    still = Message.objects.filter(pk=message.pk, state=Waiting)
    if not still.update(state=Message.State.SENT, sent_at=now, tries=message.tries + 1, error=""):
        return
    deliveries = Delivery.objects.filter(message=message).values_list("alert_id", flat=True).distinct()
    text = f"{message.receiver.name} ({message.receiver.channel})"
    _note(deliveries, text, now)


def _note(alerts: Iterable[int], text: str, now: datetime) -> None:
    kind = AlertEvent.Kind.TOLD
    AlertEvent.objects.bulk_create(AlertEvent(alert_id=each, at=now, kind=kind, text=text) for each in alerts)


def failed(message: Message, error: str, now: datetime, for_good: bool = False) -> None:
    """It has not arrived: tried again later, or given up after MOST_TRIES, or at once when a repetition
    can't help.
    """
    tries = message.tries + 1
    given_up = for_good or tries >= MOST_TRIES
    delay = BACKOFF.delay_seconds(message.key, tries)
    Message.objects.filter(pk=message.pk, state=Waiting).update(
        tries=tries,
        error=error[:500],
        state=Message.State.FAILED if given_up else Waiting,
        due_at=now + timedelta(seconds=delay),
    )
    logger.warning("A message to %s did not arrive (try %d): %s", message.receiver.name, tries, error)
