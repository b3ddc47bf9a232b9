"""The notifications of an alert by receiver: who was notified and when, and why others were not.

`build_notification` is a pure function of what is known of the alert, its receivers, and their deliveries;
`load_notification` reads that.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from django.utils import timezone

from controllers.framework.reason import format_count
from workers.alerts.lifecycle.models import Alert, Delivery, Receiver
from workers.alerts.lifecycle.open_alerts import find_suppression
from workers.alerts.lifecycle.routing import find_steps
from workers.steering.scope import format_time

# notified; on its way: owed or tried again; failed: given up; not yet: the delay of its step runs; never: it
# was not to be notified.
NoticeState = Literal["notified", "on its way", "failed", "not yet", "never"]
NoticeWords = tuple[NoticeState, str, datetime | None]  # as a notice has them
OF_A_SCHEDULE = "The message goes to the user on call."
NOBODY_ON_CALL = "When the step was due, no user was on call, and the fallback receiver was disabled."


@dataclass(frozen=True)
class AlertFacts:
    """The facts that decide whether an alert notifies.

    `steps`: as `find_steps` returns them; `suppression`: why it notifies nobody now
    (`open_alerts.suppression_of`), with `who` and `until`; `said`: its reason.
    """

    rule: str
    fired_at: datetime
    now: datetime
    resolved_at: datetime | None = None
    steps: Sequence[Mapping[str, Any]] = ()
    next_step: int = 0
    counted_from: datetime | None = None  # the delays of the steps; None while they are paused
    suppression: str | None = None
    who: str = ""
    until: datetime | None = None
    said: str = ""
    about_receiver: str = ""  # The alert is about failing messages to it: it is not notified of that.


@dataclass(frozen=True)
class DeliveryFacts:
    """The delivery that a receiver is owed, for a step of the rule, and the message that carries it.

    The message is "" while there is none.
    """

    receiver: str
    kind: str
    state: str
    created_at: datetime
    message: str = ""
    tries: int = 0
    sent_at: datetime | None = None
    due_at: datetime | None = None
    error: str = ""
    step: int = 0


@dataclass(frozen=True)
class Notice:
    """The state for one receiver. `at`: when it was or will be notified; None if neither is known."""

    receiver: str
    channel: str
    state: NoticeState
    words: str
    at: datetime | None = None


@dataclass(frozen=True)
class Notification:
    """The receivers that were notified.

    `notices`: one for each receiver, in the order of the steps; `reasons`: why nobody was notified, each a
    sentence; empty if somebody was.
    """

    notices: list[Notice]
    reasons: list[str]

    @property
    def nobody(self) -> bool:
        """Return whether nobody was notified so far."""
        return bool(self.reasons)


def load_notification(alert: Alert) -> Notification:
    """Return the notification of an alert, from the database."""
    rows = alert.deliveries.select_related("receiver", "message").order_by("pk")
    channels = {receiver.name: receiver.channel for receiver in Receiver.objects.filter(enabled=True)}
    off = dict(Receiver.objects.filter(enabled=False).values_list("name", "channel"))
    deliveries = []
    for row in rows:
        facts = DeliveryFacts(row.receiver.name, row.kind, row.state, row.created_at, step=row.step)
        if (message := row.message) is not None:
            facts = replace(
                facts,
                message=message.state,
                tries=message.tries,
                sent_at=message.sent_at,
                due_at=message.due_at,
                error=message.error,
            )
        deliveries.append(facts)
    return build_notification(_build_alert_facts(alert), channels, off, deliveries)


def build_notification(
    alert: AlertFacts, channels: Mapping[str, str], switched_off: Mapping[str, str], deliveries: Sequence[DeliveryFacts]
) -> Notification:
    """Return the notification. `channels`: {receiver: channel} of enabled ones; `switched_off`: names of the others."""
    named = [name for step in alert.steps for name in step["receivers"]]
    names = list(dict.fromkeys([*named, *(delivery.receiver for delivery in deliveries)]))
    known = {**channels, **switched_off}
    steps = {delivery.step for delivery in deliveries if delivery.kind == Delivery.Kind.FIRING}
    notices = []
    for name in names:
        to_it = [delivery for delivery in deliveries if delivery.receiver == name]
        own = [delivery for delivery in to_it if delivery.kind == Delivery.Kind.FIRING]
        heard = [delivery for delivery in own if delivery.message == "sent" and delivery.sent_at is not None]
        sent = [delivery for delivery in to_it if delivery.message == "sent"]
        end = ""
        if sent and sent[-1].kind == Delivery.Kind.RESOLVED:
            end = f" Notified of the resolution at {_clock(sent[-1].sent_at, alert.now)}."
        # After an end, the alert came back since if it is not resolved: the receiver doesn't know of that.
        if heard and not (end and alert.resolved_at is None):
            again = f" {len(heard)} times, first" if len(heard) > 1 else ""
            words = f"Notified{again} at {_clock(heard[0].sent_at, alert.now)}.{end}"
            notices.append(Notice(name, known.get(name, ""), "notified", words, heard[0].sent_at))
            continue
        state, words, at = _find_undelivered_notice(own, alert) or _explain_missing_notification(
            alert, name, channels, switched_off, steps
        )
        notices.append(Notice(name, known.get(name, ""), state, f"{words}{end}", at))
    somebody = any(notice.state == "notified" for notice in notices)
    return Notification(notices, [] if somebody else list(_iterate_reasons(alert, notices)))


def _find_undelivered_notice(own: Sequence[DeliveryFacts], alert: AlertFacts) -> NoticeWords | None:
    """Return the notice that follows from undelivered messages on the start; None if there are none."""
    for delivery in reversed(own):
        tries = format_count(delivery.tries, "attempt")
        if delivery.message == "failed":
            given_up = f", stopped after {tries}" if delivery.tries else ""
            words = f"Not delivered{given_up}: {delivery.error}"
            return "failed", words, None
        if delivery.message == "waiting" and delivery.tries:
            again = _clock(delivery.due_at, alert.now)
            words = f"Not delivered after {tries}, next attempt at {again}: {delivery.error}"
            return "on its way", words, delivery.due_at
        if delivery.message == "waiting" or delivery.state == Delivery.State.WAITING:
            return "on its way", "The message is queued.", delivery.created_at
    # A delivery that was dropped before the alert came back says nothing about now: its step may still become due.
    if own and alert.resolved_at is not None:
        return "never", "The alert was resolved before the message was sent.", None
    return None


def _explain_missing_notification(
    alert: AlertFacts, name: str, channels: Mapping[str, str], switched_off: Mapping[str, str], steps: Collection[int]
) -> NoticeWords:
    """Explain why there is no notification. `steps`: those for which somebody is owed something."""
    if name == alert.about_receiver:
        return "never", "The alert is about messages to this receiver.", None
    if name in switched_off:
        return "never", "The receiver is disabled.", None
    if name not in channels:
        return "never", "This receiver no longer exists.", None
    at = next((at for at, step in enumerate(alert.steps) if name in step["receivers"]), None)
    if at is None:
        return "never", "The rule no longer names this receiver.", None
    if at < alert.next_step and channels[name] == Receiver.Channel.SCHEDULE:
        return "never", OF_A_SCHEDULE if at in steps else NOBODY_ON_CALL, None
    if at < alert.next_step:
        return "never", "When the step was due, the receiver was disabled or not in the rule.", None
    if alert.resolved_at is not None:
        delay = alert.steps[at]["after_minutes"]
        return "never", f"The alert was resolved before the step was due ({delay:g} min).", None
    if alert.suppression is not None:
        return "not yet", "The delay starts when the alert notifies again.", None
    if alert.counted_from is None:
        return "not yet", "The delay starts when the alerter next evaluates the alert.", None
    due = alert.counted_from + timedelta(minutes=alert.steps[at]["after_minutes"])
    return ("not yet", f"To be notified at {_clock(due, alert.now)} unless the alert is acknowledged.", due)


def _iterate_reasons(alert: AlertFacts, notices: Sequence[Notice]) -> Iterator[str]:
    """Return why nobody was notified: at least one sentence."""
    if alert.suppression is not None:
        until = f" until {_clock(alert.until, alert.now)}" if alert.until else ""
        reason = f": {alert.said}" if alert.said else "."
        by = alert.who or "an unknown user"
        yield {
            "silenced": f"Silenced by {by}{until}{reason}",
            "snoozed": f"Snoozed by {by}{until}{reason}",
            "acknowledged": f"Acknowledged by {by}{until}, before any receiver was notified{reason}",
            "explained": f"Explained by another alert{reason}",
            "paused": f"Maintenance{reason}",
        }[alert.suppression]
    if not notices:
        yield f"The rule {alert.rule} has no receivers."
        return
    for notice in notices:
        if notice.state in ("failed", "on its way"):
            yield f"{notice.receiver}: {notice.words}"
    if all(notice.state == "never" for notice in notices):
        for notice in notices:
            yield f"{notice.receiver}: {notice.words}"
    elif alert.suppression is None and not any(notice.state in ("failed", "on its way") for notice in notices):
        waits = [notice for notice in notices if notice.state == "not yet"]
        first = min(waits, key=lambda notice: (notice.at is None, notice.at or alert.fired_at))
        yield f"{first.receiver}: {first.words}"


def _build_alert_facts(alert: Alert) -> AlertFacts:
    assert alert.since is not None
    suppression, until = find_suppression(alert)
    who, said = "", ""
    if suppression == "silenced" and alert.silence is not None:
        who, said = alert.silence.owner.get_username(), alert.silence.reason
    elif suppression == "silenced" and alert.expected is not None:
        who, said = f"the planned window {alert.expected.window.name}", alert.expected.window.reason
    elif suppression == "acknowledged" and alert.acknowledged_by is not None:
        who = alert.acknowledged_by.get_username()
    elif suppression == "snoozed" and alert.snoozed_by is not None:
        who = alert.snoozed_by.get_username()
    elif suppression == "explained" and alert.under is not None:
        said = f"{alert.under.title} (alert {alert.under_id})."
    elif suppression == "paused":
        said = alert.explanation
    return AlertFacts(
        rule=alert.rule_name,
        fired_at=alert.since,
        now=timezone.now(),
        resolved_at=alert.resolved_at,
        steps=find_steps(alert),
        next_step=alert.next_step,
        counted_from=alert.told_from,
        suppression=suppression,
        who=who,
        until=until,
        said=said,
        about_receiver=alert.labels.get("receiver", ""),
    )


def _clock(at: datetime | None, now: datetime) -> str:
    return format_time(at, now) if at else "an unknown time"
