"""Who is notified: which alert explains which, what is silenced, and which steps are due."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.db.models import Q

from workers.alerts.conditions.evidence import Evidence
from workers.alerts.delivery import outbox
from workers.alerts.evaluation import impact
from workers.alerts.evaluation.check import AlertCheck
from workers.alerts.lifecycle import automaton, inhibition, stops
from workers.alerts.lifecycle.episodes import build_episode, keep
from workers.alerts.lifecycle.inhibition import Party
from workers.alerts.lifecycle.models import Alert, AlertEvent, Receiver
from workers.alerts.rules import rules, silences

Kind = AlertEvent.Kind


def prepare_deliveries(this: AlertCheck, evidence: Evidence) -> None:
    """Set causes, silences, and steps on the alerts of this check, and the deliveries that they owe."""
    shown = this.shown
    # Before the causes: an alert about something stopped on purpose is no cause.
    _mark_stopped(this, shown, evidence)
    _explain(this, shown)
    _silence(this, shown)
    receivers = {receiver.name: receiver for receiver in Receiver.objects.filter(enabled=True)}
    impacts = None if evidence.snapshot is None else impact.Impacts(evidence.snapshot)
    for alert in shown:
        if impacts is not None and alert.resolved_at is None:
            alert.impact = impacts.collect(alert)
            if alert.value == alert.worst or not alert.worst_sentence:
                # The others are worst at other times, and have alerts of their own.
                alert.worst_impact = impacts.collect(alert, with_others=False)
                alert.worst_sentence = alert.sentence
        _take_steps(this, alert, receivers)
    this.owed += outbox.ends([alert for alert in shown if alert.resolved_at == this.at], this.at)


def _take_steps(this: AlertCheck, alert: Alert, receivers: Mapping[str, Receiver]) -> None:
    suppressed = alert.snoozed_until is not None or alert.silence_id is not None
    suppressed = suppressed or alert.under_id is not None or bool(alert.explanation)
    delays = rules.list_delays_seconds(alert.rule) if alert.rule else []
    steps = alert.rule.escalation if alert.rule else []
    episode, due = automaton.find_due_steps(build_episode(alert), suppressed, delays, this.now)
    keep(alert, episode)
    for at in due:
        names = steps[at]["receivers"]
        this.owed += outbox.owe(alert, at, names, receivers, this.at)
        if at > 0:
            this.note(alert, Kind.ESCALATED, f"Step {at + 1}: {', '.join(names)}.")


def _explain(this: AlertCheck, shown: Sequence[Alert]) -> None:
    since = this.at - timedelta(seconds=inhibition.LINGER_SECONDS)
    long_since = this.at - timedelta(seconds=inhibition.MAX_LINGER_SECONDS)
    # Not later than now: after a clock was set back, what ended before that would linger for as long.
    over = Alert.objects.filter(
        Q(resolved_at__range=(since, this.at), condition__in=inhibition.EXPLAINS)
        | Q(resolved_at__range=(long_since, this.at), condition__in=inhibition.LONG_CAUSES)
    )
    known = {alert.pk: alert for alert in (*over, *shown)}
    causes = inhibition.find_causes([_build_party(alert, this.now) for alert in known.values()])
    for alert in shown:
        cause = causes.get(alert.pk)
        if cause != alert.under_id and alert.resolved_at is None:
            this.note(alert, Kind.UNEXPLAINED if cause is None else Kind.EXPLAINED)
            alert.under_id = cause


def _mark_stopped(this: AlertCheck, shown: Sequence[Alert], evidence: Evidence) -> None:
    """Mark alerts that a pause or a drain explains, as long as it is in force."""
    if evidence.snapshot is None:
        return
    for alert in shown:
        said = stops.find_explanation(alert.condition, alert.labels, alert.touches, evidence.snapshot)
        if alert.resolved_at is None and bool(said) != bool(alert.explanation):
            this.note(alert, Kind.EXPLAINED if said else Kind.UNEXPLAINED, said)
        if alert.resolved_at is None:
            alert.explanation = said


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
        is_clear=alert.cleared_since is not None or ended is not None,
        under=alert.under_id,
    )


def _silence(this: AlertCheck, shown: Sequence[Alert]) -> None:
    in_force = list(silences.list_active_silences(this.at))
    for alert in shown:
        silence = next((silence_ for silence_ in in_force if silences.covers(silence_, alert)), None)
        if alert.resolved_at is not None or (silence and silence.pk) == alert.silence_id:
            continue
        if silence is None:
            this.note(alert, Kind.SILENCE_ENDED)
        else:
            this.note(alert, Kind.SILENCED, silence.reason)
        alert.silence = silence
