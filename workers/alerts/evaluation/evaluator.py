"""One check of the plant: compares readings with rules, advances alerts, and finds due steps.

All results are written in one transaction. The database contains all that is known between two checks. An evaluator
that dies at any instant has written its check completely or not at all, and the next one continues from there. Of two
at once, the lease's fencing number admits only the newer write.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import transaction

from common.checks import make_storable
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.condition import Reading
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.conditions.foreign_conditions import UNSEEN
from workers.alerts.conditions.starting import excuse_start
from workers.alerts.evaluation import notifying
from workers.alerts.evaluation.check import AlertCheck
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.episodes import COUNTS, TIMES, build_episode, convert_to_datetime, keep
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, AlertWatch, Delivery
from workers.alerts.rules import matching, rules

Kind = AlertEvent.Kind
SHOWN = ("rule", "rule_name", "condition", "labels", "touches", "severity", "title", "threshold")
COMPARED = (*TIMES, *COUNTS, *SHOWN, "silence", "under", "explanation", "announcement")
MEASURED = ("value", "worst", "sentence", "impact", "worst_sentence", "worst_impact")
# A check may find a thousand open alerts: this many of those whose figures alone changed are written, in
# turn.
MAX_MEASURED = 100


class EvaluatorOvertaken(Exception):  # noqa: N818
    """Another evaluator has run since: nothing was written."""


@dataclass(frozen=True)
class Subject:
    """A rule at one of its subjects, now."""

    rule: AlertRule
    reading: Reading


def compute_fingerprint(rule: str, labels: Mapping[str, str]) -> str:
    """Return a fingerprint of a rule's subject, which doesn't depend on its severity or title."""
    subject = json.dumps([rule, sorted(labels.items())], separators=(",", ":"))
    return hashlib.sha256(subject.encode()).hexdigest()


def iterate_subjects(evidence: Evidence, enabled: list[AlertRule]) -> Iterator[Subject]:
    """Return every subject of every rule that its matchers select."""
    for rule in enabled:
        own = {"rule": rule.name, "severity": rule.severity}
        condition = CONDITIONS[rule.condition]
        for reading in map(_make_reading_storable, condition.read(evidence, rule.window_seconds)):
            if matching.matches(rule.matchers, {**reading.labels, **own}):
                yield Subject(rule, excuse_start(condition, reading, evidence))


def _make_reading_storable(reading: Reading) -> Reading:
    """Return the reading with text that the database accepts.

    A reading quotes other plants and services. All alerts are written in one transaction: a refused one would end the
    alerting of all.
    """
    labels, touches = make_storable(reading.labels), make_storable(reading.touches)
    return replace(reading, labels=labels, sentence=make_storable(reading.sentence), touches=touches)


def get_greatest_fence() -> int:
    """Return the greatest fencing number of a check so far."""
    return AlertWatch.objects.filter(pk=1).values_list("fence", flat=True).first() or 0


def claim(fence: int) -> bool:
    """Claim this number for the next checks; return False if another process has had it, or a greater one."""
    AlertWatch.objects.get_or_create(pk=1)
    return bool(AlertWatch.objects.filter(pk=1, fence__lt=fence).update(fence=fence))


@transaction.atomic
def check(evidence: Evidence, fence: int) -> AlertCheck:
    """Advance every alert by the evidence. Raises `EvaluatorOvertaken` and has written nothing then."""
    this = _begin_check(evidence.now, fence)
    enabled = [rule for rule in AlertRule.objects.filter(enabled=True) if rule.condition in CONDITIONS]
    seen = {
        compute_fingerprint(subject.rule.name, subject.reading.labels): subject
        for subject in iterate_subjects(evidence, enabled)
    }
    _move_known(this, seen, {rule.pk: rule for rule in enabled}, evidence)
    _begin_new(this, seen)
    notifying.prepare_deliveries(this, evidence)
    _write(this)
    return this


def _begin_check(now: float, fence: int) -> AlertCheck:
    """Return the check that starts, unless a greater number was there."""
    watch = AlertWatch.objects.select_for_update().get_or_create(pk=1)[0]
    if watch.fence > fence:
        raise EvaluatorOvertaken
    at = convert_to_datetime(now)
    AlertWatch.objects.filter(pk=1).update(fence=fence, looked_at=at)
    lately = Alert.objects.filter(resolved_at__gte=at - timedelta(seconds=automaton.SAME_SECONDS))
    return AlertCheck(
        now,
        (at - watch.looked_at).total_seconds() if watch.looked_at else 0.0,
        {alert.fingerprint: alert for alert in lately.order_by("resolved_at")},
    )


def _move_known(
    this: AlertCheck, seen: Mapping[str, Subject], enabled: Mapping[int, AlertRule], evidence: Evidence
) -> None:
    known = Alert.objects.select_for_update(of=("self",)).filter(resolved_at__isnull=True).order_by("pk")
    for alert in known:
        alert.loaded = _compare_alert(alert)
        rule = enabled.get(alert.rule_id) if alert.rule_id else None
        subject = seen.get(alert.fingerprint)
        if rule is not None:
            alert.rule = rule
        if rule is not None and subject is not None:
            _show(alert, rule, subject.reading)
        terms = automaton.Terms() if rule is None else rules.build_terms(rule)
        _move(this, alert, _compute_signal(alert, rule, subject, evidence), terms)


def _compute_signal(
    alert: Alert, rule: AlertRule | None, subject: Subject | None, evidence: Evidence
) -> automaton.Signal:
    """Return the signal of a known alert's subject.

    A subject without a reading is gone, unless nothing is measured.
    """
    if rule is None:
        return "off"
    if subject is not None:
        return rules.build_thresholds(rule).compute_signal(subject.reading.value)
    blind = CONDITIONS[rule.condition].source == "snapshot" and _is_unseen(alert.labels, evidence)
    return "unknown" if blind else "off"


def _is_unseen(labels: Mapping[str, str], evidence: Evidence) -> bool:
    """Return whether the subject is not observed.

    Either nothing is observed, or its plant is not observed yet: an observer that has just started knows no part of a
    plant before it has reached it.
    """
    plant = evidence.plant.plants.get(labels.get("plant", ""))
    return evidence.snapshot is None or (plant is not None and plant.state == UNSEEN)


def _move(this: AlertCheck, alert: Alert, signal: automaton.Signal, terms: automaton.Terms) -> None:
    before = build_episode(alert)
    after = automaton.advance(before, signal, terms, this.now, this.elapsed_seconds)
    if after is None:
        alert.delete()
        return
    keep(alert, after)
    if before.state == automaton.PENDING and after.state == automaton.FIRING:
        alert = _fire_alert(this, alert)
    elif before.state == automaton.ACKNOWLEDGED and after.state == automaton.FIRING:
        this.note(alert, Kind.FIRED_AGAIN, "The acknowledgment expired, and the condition is still true.")
    elif before.snoozed_until is not None and after.snoozed_until is None and after.state == automaton.FIRING:
        this.note(alert, Kind.SNOOZE_ENDED)
    elif after.state == automaton.RESOLVED:
        this.note(alert, Kind.RESOLVED)
    this.alerts.append(alert)


def _begin_new(this: AlertCheck, seen: Mapping[str, Subject]) -> None:
    known = {alert.fingerprint for alert in this.alerts if alert.resolved_at is None}
    started = []
    for key, subject in seen.items():
        signal = rules.build_thresholds(subject.rule).compute_signal(subject.reading.value)
        if key in known or signal != "on":
            continue
        episode = automaton.advance(None, signal, rules.build_terms(subject.rule), this.now, this.elapsed_seconds)
        assert episode is not None
        alert = Alert(rule=subject.rule, fingerprint=key, began_at=convert_to_datetime(episode.began_at))
        _show(alert, subject.rule, subject.reading)
        keep(alert, episode)
        started.append(_fire_alert(this, alert) if episode.state == automaton.FIRING else alert)
    Alert.objects.bulk_create([alert for alert in started if alert.pk is None], batch_size=MAX_MEASURED)
    this.alerts += started


def _fire_alert(this: AlertCheck, alert: Alert) -> Alert:
    """Fire the alert: as the episode that ended recently, if there is one, else as a new one."""
    ended = this.lately.get(alert.fingerprint)
    if ended is None or not automaton.is_same(build_episode(ended), this.now):
        this.note(alert, Kind.FIRED, alert.sentence)
        return alert
    if alert.pk is not None:
        alert.delete()
    for name in (*SHOWN, "value", "sentence"):
        setattr(ended, name, getattr(alert, name))
    keep(ended, automaton.reopen(build_episode(ended), this.now))
    this.note(ended, Kind.CAME_BACK, ended.sentence)
    return ended


def _show(alert: Alert, rule: AlertRule, reading: Reading) -> None:
    """Put what is known of the subject now on the alert, as pages show it."""
    alert.rule_name, alert.condition, alert.severity = rule.name, rule.condition, rule.severity
    alert.labels, alert.touches = dict(reading.labels), dict(reading.touches)
    alert.title = rules.format_title(rule.title, reading.labels)
    alert.threshold = rule.threshold
    if reading.value is None:
        return
    alert.sentence, alert.value = reading.sentence, float(reading.value)
    worst = max if CONDITIONS[rule.condition].above else min
    alert.worst = alert.value if alert.worst is None else worst(alert.worst, alert.value)


def _write(this: AlertCheck) -> None:
    """Write changed alerts, and some of those whose figures alone changed."""
    others = []
    for alert in this.alerts:
        if alert.loaded == _compare_alert(alert):
            others.append(alert)
        else:
            # One by one: a thousand rows in one statement take twenty times as long to compile.
            alert.save(update_fields=(*COMPARED, *MEASURED))
    parts = -(-len(others) // MAX_MEASURED) or 1
    Alert.objects.bulk_update(others[round(this.now / 2) % parts :: parts], MEASURED)
    AlertEvent.objects.bulk_create(this.events)
    Delivery.objects.bulk_create(this.owed, ignore_conflicts=True)


_META: Any = Alert._meta
_ATTRIBUTES = [_META.get_field(name).attname for name in COMPARED]


def _compare_alert(alert: Alert) -> list[Any]:
    return [getattr(alert, name) for name in _ATTRIBUTES]
