"""One check of the plant: compares readings with rules, advances alerts, and finds who is to be notified.

All results are written in one transaction. The database contains all that is known between two checks. An evaluator
that dies at any instant has written its check completely or not at all, and the next one continues from there. Of two
at once, the lease's fencing number admits only the newer write.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from common.checks import make_storable
from controllers.framework.reason import capitalize
from workers.alerts.conditions.attached_conditions import UNSEEN
from workers.alerts.conditions.catalog import CONDITIONS
from workers.alerts.conditions.condition import Reading
from workers.alerts.conditions.evidence import Evidence
from workers.alerts.delivery import outbox
from workers.alerts.evaluation import impact
from workers.alerts.lifecycle import automaton, inhibition
from workers.alerts.lifecycle.automaton import COUNTS, TIMES, build_episode, convert_to_datetime, keep
from workers.alerts.lifecycle.inhibition import Party
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, AlertWatch, Delivery, Receiver
from workers.alerts.lifecycle.routing import find_steps
from workers.alerts.rules import expected_alerts, rules, silences
from workers.windows.models import ExpectedAlert
from workers.windows.occurrences import WindowOccurrence, describe_window

Kind = AlertEvent.Kind
SHOWN = ("rule", "rule_name", "condition", "labels", "touches", "severity", "title", "threshold")
COMPARED = (*TIMES, *COUNTS, *SHOWN, "silence", "expected", "under", "explanation", "announcement")
MEASURED = ("value", "worst", "sentence", "impact", "worst_sentence", "worst_impact", "worst_cause")
# A check may find a thousand open alerts: this many of those whose figures alone changed are written, in
# turn.
MAX_MEASURED = 100
# In `touches`: the subject that causes an alert, and the sentence that names this cause.
ROOT, CAUSE, OWN = inhibition.ROOT, "cause_sentence", "own_cause"
NOTED = (ROOT, CAUSE, OWN, inhibition.PROBLEM_BEGAN)
MAX_TITLE = 200
AGE = re.compile(r" \d+ (s|min) ago$")
_META: Any = Alert._meta
_ATTRIBUTES = [_META.get_field(name).attname for name in COMPARED]


class EvaluatorOvertaken(Exception):  # noqa: N818
    """Another evaluator has run since: nothing was written."""


@dataclass
class AlertCheck:
    """The findings and changes of a check, until they are written.

    `alerts`: those that are open, or ended just now; `lately`: by fingerprint, those that ended so recently
    that what fires now is the same alert.
    """

    now: float
    elapsed_seconds: float
    lately: dict[str, Alert] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    events: list[AlertEvent] = field(default_factory=list)
    owed: list[Delivery] = field(default_factory=list)

    @property
    def at(self) -> datetime:
        return convert_to_datetime(self.now)

    @property
    def shown(self) -> list[Alert]:
        """Return the alerts that have fired."""
        return [alert for alert in self.alerts if alert.state != Alert.State.PENDING]

    def note(self, alert: Alert, kind: AlertEvent.Kind, text: str = "") -> None:
        self.events.append(AlertEvent(alert=alert, at=self.at, kind=kind, text=text))


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
    """Return every subject of every rule that its matchers select.

    A reading quotes other plants and services, so its text is made such that the database accepts it: all alerts are
    written in one transaction, and a refused one would end the alerting of all.
    """
    for rule in enabled:
        own = {"rule": rule.name, "severity": rule.severity}
        condition = CONDITIONS[rule.condition]
        for raw_reading in condition.read(evidence, rule.window_seconds):
            labels, touches = make_storable(raw_reading.labels), make_storable(raw_reading.touches)
            reading = replace(raw_reading, labels=labels, sentence=make_storable(raw_reading.sentence), touches=touches)
            if rules.matches(rule.matchers, {**reading.labels, **own}):
                yield Subject(rule, condition.excuse_start(reading, evidence))


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
    watch = AlertWatch.objects.select_for_update().get_or_create(pk=1)[0]
    if watch.fence > fence:
        raise EvaluatorOvertaken
    at = convert_to_datetime(evidence.now)
    AlertWatch.objects.filter(pk=1).update(fence=fence, looked_at=at)
    lately = Alert.objects.filter(resolved_at__gte=at - timedelta(seconds=automaton.SAME_SECONDS))
    this = AlertCheck(
        evidence.now,
        (at - watch.looked_at).total_seconds() if watch.looked_at else 0.0,
        {alert.fingerprint: alert for alert in lately.order_by("resolved_at")},
    )
    enabled = [rule for rule in AlertRule.objects.filter(enabled=True) if rule.condition in CONDITIONS]
    seen = {
        compute_fingerprint(subject.rule.name, subject.reading.labels): subject
        for subject in iterate_subjects(evidence, enabled)
    }
    _move_known(this, seen, {rule.pk: rule for rule in enabled}, evidence)
    _begin_new(this, seen)
    prepare_deliveries(this, evidence)
    _write(this)
    return this


def _move_known(
    this: AlertCheck, seen: Mapping[str, Subject], enabled: Mapping[int, AlertRule], evidence: Evidence
) -> None:
    known = Alert.objects.select_for_update(of=("self",)).filter(resolved_at__isnull=True).order_by("pk")
    known = known.select_related("expected__window")
    for alert in known:
        alert.loaded = _compare_alert(alert)
        rule = enabled.get(alert.rule_id) if alert.rule_id else None
        subject = seen.get(alert.fingerprint)
        if rule is None:
            _move(this, alert, "off", automaton.Terms())
            continue
        alert.rule = rule
        if subject is not None:
            _show(alert, rule, subject.reading)
            signal = rules.build_thresholds(rule).compute_signal(subject.reading.value)
            if signal == "off" and _leads_on(alert, evidence):
                signal = "between"
        else:
            # A subject without a reading is gone, unless nothing is observed, or its plant is not observed yet: an
            # observer that has just started knows no part of a plant before it has reached it.
            plant = evidence.plant.plants.get(alert.labels.get("plant", ""))
            unseen = evidence.snapshot is None or (plant is not None and plant.state == UNSEEN)
            signal = "unknown" if unseen and CONDITIONS[rule.condition].source == "snapshot" else "off"
        _move(this, alert, signal, rules.build_terms(rule))


def _leads_on(alert: Alert, evidence: Evidence) -> bool:
    """Return whether an alert leads the incident of a cause that lasts: the incident ends with its cause."""
    root = (alert.touches or {}).get(ROOT, "")
    state = evidence.plant.states.get(root)
    if alert.under_id is not None or state is None or state.severity not in ("warning", "critical"):
        return False
    return state.within is None and (state.late or bool(state.affected))


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
    is_known = ended.acknowledged_until is None and outbox.has_only_start(ended)
    keep(ended, automaton.reopen(build_episode(ended), this.now, is_known))
    this.note(ended, Kind.CAME_BACK, ended.sentence)
    return ended


def _show(alert: Alert, rule: AlertRule, reading: Reading) -> None:
    """Put what is known of the subject now on the alert, as pages show it."""
    alert.rule_name, alert.condition, alert.severity = rule.name, rule.condition, rule.severity
    known = {name: alert.touches[name] for name in NOTED if name in (alert.touches or {})}
    alert.labels, alert.touches = dict(reading.labels), {**reading.touches, **known}
    alert.title = rules.format_title(rule.title, reading.labels)
    alert.threshold = rule.threshold
    if reading.value is None:
        return
    alert.value = float(reading.value)
    if not alert.sentence or rules.build_thresholds(rule).compute_signal(alert.value) != "off":
        alert.sentence = reading.sentence  # While it ends, the last sentence of the problem stays.
    worst = max if CONDITIONS[rule.condition].above else min
    alert.worst = alert.value if alert.worst is None else worst(alert.worst, alert.value)


def prepare_deliveries(this: AlertCheck, evidence: Evidence) -> None:
    """Set causes, silences, and steps on the alerts of this check, and the deliveries that they owe."""
    # Before the causes: an alert about something stopped on purpose, or planned, is no cause.
    _mark_stopped(this, evidence)
    _mark_expected(this, evidence)
    _note_roots(this, evidence)
    raised = _explain(this)
    in_force = list(silences.list_active_silences(this.at))
    receivers = {receiver.name: receiver for receiver in Receiver.objects.filter(enabled=True)}
    impacts = None if evidence.snapshot is None else impact.Impacts(evidence.snapshot)
    for alert in this.shown:
        silence = next((silence for silence in in_force if silences.covers(silence, alert)), None)
        if alert.resolved_at is None and (silence and silence.pk) != alert.silence_id:
            this.note(alert, Kind.SILENCED if silence else Kind.SILENCE_ENDED, silence.reason if silence else "")
            alert.silence = silence
        if impacts is not None and alert.resolved_at is None:
            alert.impact = impacts.collect(alert)
            if alert.value == alert.worst or not alert.worst_sentence:
                alert.worst_impact = alert.impact
                alert.worst_sentence = alert.sentence
            if (alert.value == alert.worst or not alert.worst_cause) and not alert.explanation:
                alert.worst_cause = alert.touches.get(CAUSE, "")
        suppressed = alert.snoozed_until is not None or alert.silence_id is not None or alert.expected_id is not None
        explained = outbox.is_explained(alert)
        # One that is about to end and has notified nobody lately does not start to.
        suppressed = suppressed or (alert.cleared_since is not None and alert.told_from is None)
        steps = find_steps(alert, receivers.values())
        delays = [60.0 * step["after_minutes"] for step in steps]
        episode, due = automaton.find_due_steps(build_episode(alert), suppressed, delays, this.now, explained)
        keep(alert, episode)
        if not (suppressed or explained) and (names := raised.get(alert.pk)):
            # Whoever was notified of this step already is not notified again.
            this.owed += outbox.owe(alert, 0, names, receivers, this.at)
        for at in due:
            names = steps[at]["receivers"]
            this.owed += outbox.owe(alert, at, names, receivers, this.at)
            if at > 0:
                this.note(alert, Kind.ESCALATED, f"Step {at + 1}: {', '.join(names)}.")
    this.owed += outbox.ends([alert for alert in this.shown if alert.resolved_at == this.at], this.at)


def _mark_expected(this: AlertCheck, evidence: Evidence) -> None:
    """Note which alerts a planned window expects."""
    active = expected_alerts.list_silencing_occurrences(this.at)
    targets = {} if evidence.snapshot is None else {name: row.target for name, row in evidence.snapshot.loops.items()}
    for alert in this.shown:
        if alert.resolved_at is None:
            _set_occurrence(this, alert, expected_alerts.find_occurrence(alert, active, targets))


def _set_occurrence(this: AlertCheck, alert: Alert, occurrence: WindowOccurrence | None) -> None:
    """Note that the occurrence of a planned window silences an alert, or that none does."""
    before = alert.expected
    if occurrence is None:
        if before is not None:
            this.note(alert, Kind.SILENCE_ENDED, f"Planned window {before.window.name}")
            alert.expected = None
        return
    if before is not None and (before.window_id, before.local_start) == (occurrence.window.pk, occurrence.local_start):
        if before.ends_at != occurrence.ends_at:
            ExpectedAlert.objects.filter(pk=before.pk).update(ends_at=occurrence.ends_at)
            before.ends_at = occurrence.ends_at
        return
    alert.expected = expected_alerts.record(alert, occurrence, this.at)
    this.note(alert, Kind.SILENCED, capitalize(f"{describe_window(occurrence)}."))


def _mark_stopped(this: AlertCheck, evidence: Evidence) -> None:
    """Mark alerts that a pause or a drain explains, as long as it is in force."""
    if evidence.snapshot is None:
        return
    for alert in this.shown:
        if alert.resolved_at is None:
            # Another version may have had other conditions.
            condition = CONDITIONS.get(alert.condition)
            stopped_by = condition.stopped_by if condition else ""
            said = inhibition.find_explanation(stopped_by, alert.labels, alert.touches, evidence.snapshot)
            if bool(said) != bool(alert.explanation):
                this.note(alert, Kind.EXPLAINED if said else Kind.UNEXPLAINED, said)
            alert.explanation = said


def _note_roots(this: AlertCheck, evidence: Evidence) -> None:
    """Note the causes of alerts that the snapshot names; an alert keeps its last known one."""
    if evidence.snapshot is None:
        return
    problems = evidence.snapshot.problems
    begun = {problem.subject: problem.began_at for problem in problems if problem.ended_at is None}
    for alert in this.shown:
        if alert.resolved_at is not None:
            continue
        if alert.touches.get(inhibition.PROBLEM) == "":
            # The loop also did harm outside of all problems, so an earlier problem is not the cause.
            alert.touches = {name: value for name, value in alert.touches.items() if name not in NOTED}
        root = inhibition.find_root(alert.condition, alert.labels, alert.touches, evidence.snapshot)
        subjects = [root, *inhibition.list_alert_subjects(alert.condition, alert.labels)]
        if (began := next((begun[subject] for subject in subjects if subject in begun), None)) is not None:
            alert.touches = {**alert.touches, inhibition.PROBLEM_BEGAN: began}
        state = evidence.snapshot.states.get(root)
        if state is not None and state.severity in ("warning", "critical") and (state.actions or state.affected):
            title = AGE.sub("", make_storable(state.finding).rstrip("."))[:MAX_TITLE]
            is_own = state.independent and root in inhibition.list_alert_subjects(alert.condition, alert.labels)
            alert.touches = {**alert.touches, ROOT: root, CAUSE: title, OWN: is_own}


def _lead(leader: Alert, members: Sequence[Alert]) -> list[str]:
    """Give a leading alert the title of its cause and the severity of its worst member.

    A resolved one keeps the cause of its worst moment. Return the receivers of a member that is more severe than the
    leader's own rule.
    """
    leader.title = (leader.touches.get(CAUSE) if leader.resolved_at is None else leader.worst_cause) or leader.title
    worst = max(members, key=lambda alert: inhibition.GRAVITY[alert.severity], default=leader)
    if leader.resolved_at is not None or inhibition.GRAVITY[worst.severity] <= inhibition.GRAVITY[leader.severity]:
        return []
    leader.severity = worst.severity
    before = leader.loaded[_ATTRIBUTES.index("severity")] if leader.loaded else ""
    steps = find_steps(worst)
    is_new = before != leader.severity and leader.state == Alert.State.FIRING
    return list(steps[0]["receivers"]) if steps and is_new else []


def _explain(this: AlertCheck) -> dict[int, list[str]]:
    """Set the cause of each alert; return the receivers to notify of incidents that became more severe."""
    since = this.at - timedelta(seconds=inhibition.LINGER_SECONDS)
    long_since = this.at - timedelta(seconds=inhibition.MAX_LINGER_SECONDS)
    # Not later than now: after a clock was set back, what ended before that would linger for as long.
    over = Alert.objects.filter(
        Q(resolved_at__range=(since, this.at), condition__in={*inhibition.EXPLAINS, *inhibition.JOINED})
        | Q(resolved_at__range=(long_since, this.at), condition__in=inhibition.LONG_CAUSES)
    )
    known = {alert.pk: alert for alert in (*over, *this.shown)}
    causes = inhibition.find_causes([_build_party(alert, this.now) for alert in known.values()])
    for alert in this.shown:
        cause = causes.get(alert.pk)
        if cause != alert.under_id and alert.resolved_at is None:
            this.note(alert, Kind.UNEXPLAINED if cause is None else Kind.EXPLAINED)
            alert.under_id = cause
    members: dict[int, list[Alert]] = {}
    for alert in this.shown:
        if alert.under_id is not None and alert.resolved_at is None:
            members.setdefault(alert.under_id, []).append(alert)
    leaders = [alert for alert in this.shown if alert.under_id is None]
    return {leader.pk: _lead(leader, members.get(leader.pk, [])) for leader in leaders}


def _build_party(alert: Alert, now: float) -> Party:
    ended = None if alert.resolved_at is None else max(0.0, now - alert.resolved_at.timestamp())
    return Party(
        id=alert.pk,
        condition=alert.condition,
        severity=alert.severity,
        labels=alert.labels,
        touches=alert.touches,
        ended_seconds=ended,
        is_stopped=bool(alert.explanation),
        is_expected=alert.expected_id is not None,
        is_clear=alert.cleared_since is not None or ended is not None,
        under=alert.under_id,
        root=alert.touches.get(ROOT, ""),
        is_own=bool(alert.touches.get(OWN)),
        has_notified=alert.next_step > 0,
    )


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


def _compare_alert(alert: Alert) -> list[Any]:
    return [getattr(alert, name) for name in _ATTRIBUTES]
