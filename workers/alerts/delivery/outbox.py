"""The outbox: what is owed to receivers, bundled into messages, and sent until it is delivered.

A delivery is owed once for each (alert, receiver, kind, round, step): the database guarantees it. Deliveries of one
group that wait together become one message. Its key and content are frozen before it is first sent, so a process that
dies between sending and recording sends the same message again, and the receiver drops it.
"""

import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Min, Q, QuerySet

from common.parsing import format_one_line
from workers.alerts.delivery.schedule_feed import resolve_recipients
from workers.alerts.lifecycle.models import Alert, AlertEvent, Delivery, Message, Receiver
from workers.alerts.rules import rules
from workers.consumer.backoff import Backoff

logger = logging.getLogger(__name__)
# Alerts of one group that fire within this time go into one message.
GROUP_SECONDS = 3.0
# Later ones wait until the cause of the first is known: then they belong to its incident and notify nobody.
REGROUP_SECONDS = 15.0
MAX_TRIES = 10
TRIES_OF_REST = 5  # Half a minute: an end waits for its start, also for receivers that have it.
MAX_DETAILED = 50  # alerts that one message contains in full
BACKOFF = Backoff(base_seconds=2.0, cap_seconds=300.0)
MAX_DELAYS = 2.0  # of its cap: no try is delayed for longer
Waiting = Message.State.WAITING


def owe(
    alert: Alert, step: int, names: Sequence[str], receivers: Mapping[str, Receiver], now: datetime
) -> list[Delivery]:
    """Return the deliveries that a due step owes its receivers (not saved yet).

    A receiver that is gone or disabled is skipped. An alert about failing messages to a receiver isn't sent to that
    receiver, through a schedule either.
    """
    owed = []
    able = {name: receiver for name, receiver in receivers.items() if name != alert.labels.get("receiver")}
    for name in names:
        receiver = able.get(name)
        if receiver is None:
            continue
        for recipient_ in resolve_recipients(receiver, able, now):
            owed.append(_queue_message(alert, recipient_.pk, Delivery.Kind.FIRING, step, now))
            if recipient_.channel == Receiver.Channel.BROWSER:
                alert.announcement = f"{alert.round}.{step}"
    # A receiver is notified of one step once, also if a schedule resolves to it, too.
    return list({recipient.receiver_id: recipient for recipient in owed}.values())


def ends(alerts: Sequence[Alert], now: datetime) -> list[Delivery]:
    """Return the deliveries that alerts which ended owe (not saved yet).

    A receiver that is or will be notified of an alert, and not of its end since, is owed its end, too. An alert that
    came back and notified nobody has no end of its own.
    """
    known = {alert.pk: alert for alert in alerts}
    if not known:
        return []
    rows = Delivery.objects.filter(alert__in=known, receiver__tells_resolved=True, receiver__enabled=True)
    began = _find_newest_deliveries(rows.filter(kind=Delivery.Kind.FIRING).exclude(state=Delivery.State.DROPPED))
    # A waiting delivery may be dropped at this very instant, since its alert was open until now.
    ended = _find_newest_deliveries(rows.filter(kind=Delivery.Kind.RESOLVED, state=Delivery.State.BUNDLED))
    open_for = [pair for pair, at in began.items() if at > ended.get(pair, 0)]
    return [_queue_message(known[alert], receiver, Delivery.Kind.RESOLVED, 0, now) for alert, receiver in open_for]


def has_only_start(alert: Alert) -> bool:
    """Return whether all who were notified of an ended alert wait for its end, which its incident holds back."""
    rows = Delivery.objects.filter(alert=alert)
    waiting = rows.filter(kind=Delivery.Kind.RESOLVED, state=Delivery.State.WAITING)
    notified = rows.filter(kind=Delivery.Kind.FIRING, state=Delivery.State.BUNDLED, message__state=Message.State.SENT)
    receivers = set(waiting.values_list("receiver_id", flat=True))
    return bool(receivers) and receivers == set(notified.values_list("receiver_id", flat=True))


def _find_newest_deliveries(deliveries: QuerySet[Delivery]) -> dict[tuple[int, int], int]:
    """Return {(alert, receiver): the number of its newest delivery}."""
    latest = deliveries.order_by().values_list("alert_id", "receiver_id").annotate(newest=Max("pk"))
    return {(alert, receiver): newest for alert, receiver, newest in latest}


def _queue_message(alert: Alert, receiver: int, kind: str, step: int, now: datetime) -> Delivery:
    # The alerts of an incident end in one message.
    root = alert.under if kind == Delivery.Kind.RESOLVED and alert.under else alert
    return Delivery(
        alert=alert, receiver_id=receiver, kind=kind, round=alert.round, step=step, group=group_of(root), created_at=now
    )


def group_of(alert: Alert) -> str:
    """Return what alerts must have in common to share a message."""
    labels = {**alert.labels, "rule": alert.rule_name, "severity": alert.severity}
    keys = alert.rule.group_by if alert.rule else ["rule"]
    return " ".join(f"{label}={labels.get(label, '')}" for label in keys)[:200]


def bundle(now: datetime) -> list[Message]:
    """Make messages of the deliveries whose group has waited long enough."""
    give_up_switched_off()
    _take_back_ends(now)
    waiting = Delivery.objects.filter(state=Delivery.State.WAITING).order_by("pk")
    # A future time dates from before the clock was set back.
    ripe = waiting.filter(Q(created_at__lte=now - timedelta(seconds=GROUP_SECONDS)) | Q(created_at__gt=now))
    # Starts first: an end is judged by the outcome of its start.
    groups = ripe.values_list("receiver_id", "group", "kind").order_by("kind").distinct()
    made = [_find_open_bundle(receiver, group, kind, now) for receiver, group, kind in groups]
    return [message for message in made if message is not None]


def give_up_switched_off() -> None:
    """Give up deliveries to a disabled receiver: days later they would be misleading."""
    off = list(Receiver.objects.filter(enabled=False))
    if not off:  # Each second: an update of no rows, too, waits for other writers.
        return
    owed = Delivery.objects.filter(state=Delivery.State.WAITING, receiver__in=off)
    owed.update(state=Delivery.State.DROPPED)
    waiting = Message.objects.filter(state=Waiting, receiver__in=off)
    waiting.update(state=Message.State.FAILED, error=Message.SWITCHED_OFF)


@transaction.atomic
def _take_back_ends(now: datetime) -> None:
    """Give up ends that wait for their next try while their alert fires again.

    Bundles the rest of their messages anew. A message that is due may be in flight, and is left alone. One failed try
    is not the receiver's fault; what has failed more often says why.
    """
    put_off = Message.objects.filter(state=Waiting, tries__gt=0, due_at__gt=now)
    goes_on = put_off.filter(deliveries__kind=Delivery.Kind.RESOLVED, deliveries__alert__resolved_at__isnull=True)
    untrue = list(goes_on.values_list("pk", flat=True).distinct())
    if not untrue:
        return
    Delivery.objects.filter(message__in=untrue).update(state=Delivery.State.WAITING, message=None)
    given_up = Message.objects.filter(pk__in=untrue)
    given_up.filter(tries=1).update(error=Message.FIRES_AGAIN)
    given_up.update(state=Message.State.FAILED, due_at=now)


@transaction.atomic
def _find_open_bundle(receiver: int, group: str, kind: str, now: datetime) -> Message | None:
    rows = Delivery.objects.select_for_update(of=("self",)).filter(
        receiver_id=receiver, group=group, kind=kind, state=Delivery.State.WAITING
    )
    messages = list(rows.select_related("alert__rule", "receiver").order_by("pk"))
    if messages and messages[0].receiver.channel == Receiver.Channel.ALERTMANAGER:
        messages = messages[:MAX_DETAILED]  # It needs each of them, at once; the others make the next message.
    elif kind == Delivery.Kind.RESOLVED:
        goes_on = _find_open_incidents(receiver, messages)
        messages = [delivery for delivery in messages if _get_incident(delivery.alert) not in goes_on]
    elif _has_just_notified(receiver, group, now):
        return None
    else:  # What is explained meanwhile waits until it is over, or until nothing explains it any more.
        messages = [row for row in messages if row.alert.resolved_at or not is_explained(row.alert)]
    heard = _load_beginning_states(messages) if kind == Delivery.Kind.RESOLVED else {}
    void, sent_now = [], []
    for delivery in messages:
        states = heard.get(delivery.alert_id, set())
        # Void: it ended before anybody was notified, it fires again, or the receiver was not notified of its start.
        is_over = delivery.alert.resolved_at is not None
        is_void = is_over if kind == Delivery.Kind.FIRING else not is_over or states <= {Message.State.FAILED}
        if is_void:
            void.append(delivery.pk)
        elif Waiting not in states:  # Nobody is notified of an end before its start: that is delivered first.
            sent_now.append(delivery)
    Delivery.objects.filter(pk__in=void).update(state=Delivery.State.DROPPED)
    if not sent_now:
        return None
    alerts = list({sent_alert.alert_id: sent_alert.alert for sent_alert in sent_now}.values())
    # Later messages of an incident are threaded under the first one that this receiver got about any of these alerts.
    about = Message.objects.filter(receiver=receiver, deliveries__alert__in=alerts)
    earlier = about.order_by("pk").values_list("key", flat=True)
    message = Message.objects.create(
        key=secrets.token_hex(16),
        receiver_id=receiver,
        content={**build_message_content(kind, alerts), "thread": earlier.first() or ""},
        created_at=now,
        due_at=now,
    )
    Delivery.objects.filter(pk__in=[sent_alert.pk for sent_alert in sent_now]).update(
        state=Delivery.State.BUNDLED, message=message
    )
    return message


def _has_just_notified(receiver: int, group: str, now: datetime) -> bool:
    since = now - timedelta(seconds=REGROUP_SECONDS)
    messages = Message.objects.filter(receiver=receiver, created_at__gt=since, created_at__lte=now)
    return messages.filter(deliveries__group=group, deliveries__kind=Delivery.Kind.FIRING).exists()


def is_explained(alert: Alert) -> bool:
    return alert.under_id is not None or bool(alert.explanation)


def _get_incident(alert: Alert) -> int:
    """Return the alert that leads the incident of an alert."""
    return alert.pk if alert.under_id is None else alert.under_id


def _find_open_incidents(receiver: int, ends: Sequence[Delivery]) -> set[int]:
    """Return the incidents of these ends that still have an open alert that the receiver was notified of."""
    incidents = {_get_incident(end.alert) for end in ends}
    members = Alert.objects.filter(Q(pk__in=incidents) | Q(under__in=incidents), resolved_at__isnull=True)
    notified = Delivery.objects.filter(
        receiver=receiver, kind=Delivery.Kind.FIRING, state=Delivery.State.BUNDLED, alert__in=members
    )
    return {_get_incident(delivery.alert) for delivery in notified.select_related("alert")}


def _load_beginning_states(ends: Sequence[Delivery]) -> dict[int, set[str]]:
    """Return {alert: states of the messages on its start to their receiver, since its last end}."""
    receivers, alerts = {end.receiver_id for end in ends}, {end.alert_id for end in ends}
    rows = Delivery.objects.filter(receiver__in=receivers, alert__in=alerts, state=Delivery.State.BUNDLED)
    ended = _find_newest_deliveries(rows.filter(kind=Delivery.Kind.RESOLVED))
    firing = rows.filter(kind=Delivery.Kind.FIRING)
    states: dict[int, set[str]] = {}
    for key, alert, receiver, state in firing.values_list("pk", "alert_id", "receiver_id", "message__state"):
        if key > ended.get((alert, receiver), 0):
            states.setdefault(alert, set()).add(state or Message.State.SENT)
    return states


def build_message_content(kind: str, alerts: Sequence[Alert]) -> dict[str, Any]:
    """Return the content of a message, frozen: the alerts as they are now, the most severe first."""
    order = {name: at for at, name in enumerate(("critical", "warning", "notice"))}
    rows = sorted(alerts, key=lambda alert: (order[alert.severity], alert.pk))
    first = rows[0]
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    resolved = "Resolved: " if kind == Delivery.Kind.RESOLVED else ""
    return {
        "kind": kind,
        "severity": first.severity,
        "title": f"{resolved}{first.title}{others}",
        "sentence": first.sentence,
        "alerts": [_describe_alert(row) for row in rows[:MAX_DETAILED]],
    }


def _describe_alert(alert: Alert) -> dict[str, Any]:
    times = {"fired_at": alert.since, "resolved_at": alert.resolved_at}
    return {
        "id": alert.pk,
        "rule": alert.rule_name,
        "title": alert.title,
        "severity": alert.severity,
        "labels": alert.labels,
        "sentence": alert.sentence,
        # What it meant while it was open does not describe its end.
        "impact": "" if alert.resolved_at else alert.impact,
        "value": alert.value,
        "threshold": alert.threshold,
        "runbook": rules.get_runbook_url(alert.rule) if alert.rule else "",
        "path": f"/alerts/{alert.pk}/",
        "links": build_action_links(alert),
        **{name: None if at is None else at.isoformat() for name, at in times.items()},
    }


def build_action_links(alert: Alert) -> list[dict[str, str]]:
    """Return links to the first actions, each one tap away after a login; opening them changes nothing."""
    if alert.resolved_at is not None:
        return []
    alert_links = [
        {"words": "Acknowledge", "path": f"/alerts/{alert.pk}/?act=acknowledge"},
        {"words": "Silence", "path": f"/alerts/silences/?alert={alert.pk}"},
    ]
    if "loop" in alert.labels:
        alert_links.append({"words": "Hold the loop", "path": f"/alerts/{alert.pk}/?act=now"})
    elif alert.labels.keys() & {"queue", "pipeline", "override"}:
        alert_links.append({"words": "Act now", "path": f"/alerts/{alert.pk}/?act=now"})
    return alert_links


def test_message(receiver: Receiver, by: str, now: datetime) -> Message:
    """Return a message that only tests delivery; it is sent like any other."""
    said = {
        "kind": "test",
        "severity": "notice",
        "title": "Receiver test",
        "sentence": f"{by} is testing delivery to {receiver.name}. No action is needed.",
        "alerts": [],
    }
    return Message.objects.create(
        key=secrets.token_hex(16), receiver=receiver, content=said, created_at=now, due_at=now
    )


def list_due_messages(now: datetime, busy: Collection[int] = ()) -> list[Message]:
    """Return what is to be sent now: the oldest message of each receiver, since it gets them in their order.

    A receiver that is busy or disabled gets none. A message that is due later than any try may be delayed was scheduled
    before the clock was set back.
    """
    latest = now + timedelta(seconds=MAX_DELAYS * BACKOFF.cap_seconds)
    rows = Message.objects.filter(state=Waiting, receiver__enabled=True).exclude(receiver__in=busy)
    rows = rows.filter(Q(due_at__lte=now) | Q(due_at__gt=latest))
    oldest = dict(rows.order_by().values_list("receiver").annotate(Min("pk"))).values()
    return list(Message.objects.filter(pk__in=list(oldest)).select_related("receiver").order_by("pk"))


@transaction.atomic
def mark_delivered(message: Message, now: datetime, left_out: str = "") -> None:
    """Record on each alert of a message that the message was delivered.

    The record has the parts of the receiver that were left out.
    """
    still = Message.objects.filter(pk=message.pk, state=Waiting)
    error = format_one_line(left_out)[:500]
    if not still.update(state=Message.State.SENT, sent_at=now, tries=message.tries + 1, error=error):
        return
    deliveries = Delivery.objects.filter(message=message).values_list("alert_id", flat=True).distinct()
    receiver = f"{message.receiver.name} ({message.receiver.channel})"
    kind = AlertEvent.Kind.NOTIFIED
    AlertEvent.objects.bulk_create(
        AlertEvent(alert_id=alert, at=now, kind=kind, text=(f"{receiver}. {error}" if error else receiver))
        for alert in deliveries
    )


def _brings_what_goes_on(message: Message) -> bool:
    begun = Delivery.objects.filter(message=message, kind=Delivery.Kind.FIRING)
    return begun.filter(alert__resolved_at__isnull=True).exists()


def mark_failed(
    message: Message, error: str, now: datetime, for_good: bool = False, reached: Sequence[str] = ()
) -> None:
    """Record that a message was not delivered.

    It is tried again later. It is given up at once if a repetition can't help, else after MAX_TRIES, but not while an
    alert in it is open: somebody still has to know. `reached`: marks of those that have it, if the receiver is several;
    the rest is tried TRIES_OF_REST times.
    """
    tries, have = message.tries + 1, list(reached) or message.reached
    if have and tries >= TRIES_OF_REST:
        mark_delivered(message, now, error)
        return
    given_up = for_good or (tries >= MAX_TRIES and not _brings_what_goes_on(message))
    delay = 0.0 if given_up else BACKOFF.compute_delay_seconds(message.key, tries)
    Message.objects.filter(pk=message.pk, state=Waiting).update(
        tries=tries,
        reached=have,
        error=format_one_line(error)[:500],
        state=Message.State.FAILED if given_up else Waiting,
        due_at=now + timedelta(seconds=delay),
    )
    logger.warning("A message to %s was not delivered (attempt %d): %s", message.receiver.name, tries, error)
