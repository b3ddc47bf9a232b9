"""One look at the plant: readings against rules, alerts moved on, steps due; written in one transaction.

Everything that is known between two looks is in the database, so an evaluator that dies at any instant has
either written a look whole or not at all, and the next one goes on from there. Two that look at once are told
apart by the lease's fencing number: the older writes nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from workers.alerts import impact, inhibition, machine, matching, outbox, rules
from workers.alerts.condition import Reading
from workers.alerts.conditions import CONDITIONS
from workers.alerts.evidence import Evidence
from workers.alerts.inhibition import Party
from workers.alerts.machine import Episode
from workers.alerts.models import Alert, AlertEvent, AlertRule, AlertWatch, Receiver, Silence

Kind = AlertEvent.Kind
TIMES = ("fired_at", "cleared_since", "resolved_at", "acknowledged_until", "snoozed_until", "told_from")
COUNTS = ("state", "came_back", "round", "next_step")
SHOWN = (
    "rule",
    "rule_name",
    "condition",
    "labels",
    "touches",
    "severity",
    "title",
    "sentence",
    "impact",
    "value",
)
KEPT = ("began_at", *TIMES, *COUNTS, *SHOWN, "worst", "threshold", "silence", "under", "announcement")


class Overtaken(Exception):  # noqa: N818
    """Another evaluator was there since: nothing was written."""


@dataclass(frozen=True)
class Subject:
    """A rule at one of its subjects, now. `reading` is None where there is no such subject (any more)."""

    rule: AlertRule
    labels: Mapping[str, str]
    reading: Reading | None


@dataclass
class Look:
    """What one look found and did."""

    now: float
    elapsed_seconds: float
    alerts: list[Alert] = field(default_factory=list)
    events: list[AlertEvent] = field(default_factory=list)

    def note(self, alert: Alert, kind: str, text: str = "") -> None:
        self.events.append(AlertEvent(alert=alert, at=_moment(self.now), kind=kind, text=text))


def fingerprint(rule: str, labels: Mapping[str, str]) -> str:
    """The same subject of the same rule, whatever its severity or title."""
    subject = json.dumps([rule, sorted(labels.items())], separators=(",", ":"))
    return hashlib.sha256(subject.encode()).hexdigest()


def subjects(evidence: Evidence, enabled: list[AlertRule]) -> Iterator[Subject]:
    """Every subject of every rule that its matchers leave."""
    for rule in enabled:
        for reading in CONDITIONS[rule.condition].read(evidence, rule.window_seconds):
            if matching.matches(rule.matchers, _labels(rule, reading.labels)):
                yield Subject(rule, reading.labels, reading)


def _labels(rule: AlertRule, labels: Mapping[str, str]) -> dict[str, str]:
    return {**labels, "rule": rule.name, "severity": rule.severity}


@transaction.atomic
def look(evidence: Evidence, fence: int) -> Look:
    """Move every alert on by what is seen. Raises Overtaken, and then nothing was written."""
    watch = AlertWatch.objects.select_for_update().get_or_create(pk=1)[0]
    if watch.fence > fence:
        raise Overtaken
    now = _moment(evidence.now)
    elapsed = (now - watch.looked_at).total_seconds() if watch.looked_at else 0.0
    AlertWatch.objects.filter(pk=1).update(fence=fence, looked_at=now)
    this = Look(evidence.now, elapsed)
    enabled = [rule for rule in AlertRule.objects.filter(enabled=True) if rule.condition in CONDITIONS]
    seen = {fingerprint(each.rule.name, each.labels): each for each in subjects(evidence, enabled)}
    _move_known(this, seen, {rule.pk: rule for rule in enabled}, evidence)
    _begin_new(this, seen)
    _tell(this, evidence, now)
    AlertEvent.objects.bulk_create(this.events)
    return this


def _move_known(
    this: Look, seen: Mapping[str, Subject], enabled: Mapping[int, AlertRule], evidence: Evidence
) -> None:
    known = Alert.objects.select_for_update(of=("self",)).filter(resolved_at__isnull=True).order_by("pk")
    for alert in known:
        rule = enabled.get(alert.rule_id) if alert.rule_id else None
        subject = seen.get(alert.fingerprint)
        blind = (
            rule is not None and evidence.snapshot is None and CONDITIONS[rule.condition].source == "snapshot"
        )
        if blind and subject is None:
            signal: machine.Signal = "unknown"
        elif rule is None or subject is None or subject.reading is None:
            signal = "off"
        else:
            signal = rules.thresholds(rule).signal(subject.reading.value)
            _show(alert, rule, subject.reading)
        terms = machine.Terms() if rule is None else rules.terms(rule)
        _move(this, alert, signal, terms)


def _move(this: Look, alert: Alert, signal: machine.Signal, terms: machine.Terms) -> None:
    before = episode_of(alert)
    after = machine.advanced(before, signal, terms, this.now, this.elapsed_seconds)
    if after is None:
        alert.delete()
        return
    keep(alert, after)
    if before.state == machine.PENDING and after.state == machine.FIRING:
        alert = _fire(this, alert)
    elif before.state == machine.ACKNOWLEDGED and after.state == machine.FIRING:
        this.note(alert, Kind.FIRED_AGAIN, "The acknowledgement ran out, and it still holds.")
    elif before.snoozed_until is not None and after.snoozed_until is None and after.state == machine.FIRING:
        this.note(alert, Kind.SNOOZE_ENDED)
    elif after.state == machine.RESOLVED:
        this.note(alert, Kind.RESOLVED, "" if signal == "off" else "Its rule is gone.")
    this.alerts.append(alert)


def _begin_new(this: Look, seen: Mapping[str, Subject]) -> None:
    open_ones = {alert.fingerprint for alert in this.alerts if alert.resolved_at is None}
    for key, subject in seen.items():
        if key in open_ones or subject.reading is None:
            continue
        signal = rules.thresholds(subject.rule).signal(subject.reading.value)
        episode = machine.advanced(None, signal, rules.terms(subject.rule), this.now, this.elapsed_seconds)
        if episode is None:
            continue
        alert = Alert(rule=subject.rule, fingerprint=key, began_at=_moment(episode.began_at))
        _show(alert, subject.rule, subject.reading)
        keep(alert, episode)
        alert.save()
        shown = _fire(this, alert) if episode.state == machine.FIRING else alert
        this.alerts.append(shown)


def _fire(this: Look, alert: Alert) -> Alert:
    """It fires: as the episode that ended lately, if there is one, else as a new one."""
    ended = _ended_lately(alert, this)
    if ended is None:
        this.note(alert, Kind.FIRED, alert.sentence)
        return alert
    alert.delete()
    for name in ("rule", "labels", "touches", "severity", "title", "sentence", "value", "threshold"):
        setattr(ended, name, getattr(alert, name))
    keep(ended, machine.returned(episode_of(ended), this.now))
    this.note(ended, Kind.CAME_BACK, ended.sentence)
    return ended


def _ended_lately(alert: Alert, this: Look) -> Alert | None:
    """Also one that ended in this very look."""
    rows = Alert.objects.filter(fingerprint=alert.fingerprint, resolved_at__isnull=False)
    newest = rows.order_by("-resolved_at").first()
    if newest is None or not machine.is_same(episode_of(newest), this.now):
        return None
    this.alerts[:] = [each for each in this.alerts if each.pk != newest.pk]
    return newest


def _show(alert: Alert, rule: AlertRule, reading: Reading) -> None:
    """What is known of the subject now, as the page says it."""
    alert.rule_name, alert.condition, alert.severity = rule.name, rule.condition, rule.severity
    alert.labels, alert.touches = dict(reading.labels), dict(reading.touches)
    alert.title = rules.titled(rule.title, reading.labels)
    alert.threshold = rule.threshold
    if reading.value is None:
        return
    alert.sentence, alert.value = reading.sentence, float(reading.value)
    worst = max if CONDITIONS[rule.condition].above else min
    alert.worst = alert.value if alert.worst is None else worst(alert.worst, alert.value)


def _tell(this: Look, evidence: Evidence, now: datetime) -> None:
    """Who explains whom, what is silenced, and whose turn it is to be told."""
    shown = [alert for alert in this.alerts if alert.state != machine.PENDING]
    _explain(this, shown, now)
    _silence(this, shown, now)
    receivers = {each.name: each for each in Receiver.objects.filter(enabled=True)}
    for alert in shown:
        if evidence.snapshot is not None and alert.resolved_at is None:
            alert.impact = impact.of(alert, evidence.snapshot)
        quiet = alert.snoozed_until is not None or alert.silence_id is not None or alert.under_id is not None
        steps = alert.rule.escalation if alert.rule else []
        delays = [60.0 * step["after_minutes"] for step in steps]
        episode, due = machine.due_steps(episode_of(alert), quiet, delays, this.now)
        keep(alert, episode)
        for at in due:
            outbox.owe(alert, at, steps[at]["receivers"], receivers, now)
        if alert.resolved_at == now:
            outbox.owe_end(alert, now)
    Alert.objects.bulk_update(this.alerts, KEPT, batch_size=100)


def _explain(this: Look, shown: list[Alert], now: datetime) -> None:
    ids = {alert.pk: alert for alert in shown}
    lingering = Alert.objects.filter(
        resolved_at__gte=_moment(this.now - inhibition.LINGER_SECONDS), condition__in=inhibition.EXPLAINS
    ).exclude(pk__in=ids)
    found = inhibition.causes([_party(alert, this.now) for alert in (*shown, *lingering)])
    for alert in shown:
        cause = found.get(alert.pk)
        if cause == alert.under_id:
            continue
        if alert.resolved_at is None:
            this.note(alert, Kind.UNEXPLAINED if cause is None else Kind.EXPLAINED)
            alert.under_id = cause


def _party(alert: Alert, now: float) -> Party:
    ended = None if alert.resolved_at is None else max(0.0, now - alert.resolved_at.timestamp())
    return Party(alert.pk, alert.condition, alert.severity, alert.labels, alert.touches, ended)


def _silence(this: Look, shown: list[Alert], now: datetime) -> None:
    silences = list(in_force(now))
    for alert in shown:
        labels = {**alert.labels, "rule": alert.rule_name, "severity": alert.severity}
        found = next((each for each in silences if matching.matches(each.matchers, labels)), None)
        if alert.resolved_at is not None or (found and found.pk) == alert.silence_id:
            continue
        this.note(
            alert, Kind.SILENCE_ENDED if found is None else Kind.SILENCED, found.reason if found else ""
        )
        alert.silence = found


def in_force(now: datetime) -> Any:
    """The silences that hold at this moment, the longest first."""
    return Silence.objects.filter(created_at__lte=now, expires_at__gt=now, ended_at__isnull=True).order_by(
        "-expires_at", "pk"
    )


def episode_of(alert: Alert) -> Episode:
    """The alert as the machine sees it."""
    times = {name: _seconds(getattr(alert, name)) for name in TIMES}
    counts = {name: getattr(alert, name) for name in COUNTS}
    return Episode(began_at=alert.began_at.timestamp(), **times, **counts)


def keep(alert: Alert, episode: Episode) -> None:
    """What the machine says, put on the alert (not yet saved)."""
    before = episode_of(alert)
    for name in COUNTS:
        setattr(alert, name, getattr(episode, name))
    for name in ("began_at", *TIMES):
        # What has not changed keeps its microseconds.
        if getattr(episode, name) != getattr(before, name):
            setattr(alert, name, _moment(getattr(episode, name)))


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _moment(seconds: float | None) -> Any:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
