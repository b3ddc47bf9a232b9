"""The actions of the control loops in response to an alert, and whether they had an effect."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Prefetch, Q, QuerySet, When
from django.utils import timezone

from controllers.framework.reason import format_count
from workers.alerts.lifecycle import automaton
from workers.alerts.lifecycle.inhibition import GRAVITY
from workers.alerts.lifecycle.models import Alert, AlertEvent, Message, compute_seconds_between
from workers.models import LedgerEntry, Loop, Plan

# A loop may act on a forecast before the rule's threshold is reached.
BEFORE = timedelta(minutes=5)
AFTER = timedelta(minutes=2)
MAX_ACTIONS, MAX_PLANS = 12, 20
UNSTEERED = frozenset({"receiver", "task", "plan", "override"})  # labels of what no loop steers
UNJUDGED = (LedgerEntry.Verdict.CHECKING, LedgerEntry.Verdict.NO_ACTION)


def select_steering_loops(alert: Alert) -> QuerySet[Loop]:
    """Return the loops that steer the alert's subject, and those that steer the whole plant.

    For an attached plant, return its own loops.
    """
    labels = alert.labels
    whole = Q(target={})
    if "loop" in labels:
        return Loop.objects.filter(name=labels["loop"])
    if labels.keys() & UNSTEERED:
        return Loop.objects.none()
    if "plant" in labels:
        return Loop.objects.filter(target__plant=labels["plant"])
    if "queue" in labels:
        return Loop.objects.filter(whole | Q(target__queue=labels["queue"]))
    if "node" in labels:
        return Loop.objects.filter(whole | Q(target__node=labels["node"]))
    return Loop.objects.all()


def find_response_range(alert: Alert) -> tuple[Any, Any]:
    """Return the time range whose actions count as responses to an alert.

    While the alert is open, the range begins shortly before the alert last fired.
    """
    began = alert.began_at if alert.resolved_at is not None else alert.returned_at or alert.began_at
    return began - BEFORE, (alert.resolved_at or timezone.now()) + AFTER


def select_decisions(alert: Alert) -> QuerySet[LedgerEntry]:
    """Return entries of these loops with an action in its time, executed or advised, newest first."""
    entries = LedgerEntry.objects.filter(
        loop__in=select_steering_loops(alert), at__range=find_response_range(alert), action__isnull=False
    )
    return entries.select_related("loop").order_by("-at", "-pk")


def select_executed_actions(alert: Alert) -> QuerySet[LedgerEntry]:
    """Return those that were executed, without advice."""
    return select_decisions(alert).filter(mode__in=Loop.ACTING)


def select_effective_actions(alert: Alert, until: datetime | None) -> QuerySet[LedgerEntry]:
    """Return those since its onset that were judged effective, up to this time; None: it is not over."""
    effective = select_executed_actions(alert).filter(verdict=LedgerEntry.Verdict.EFFECTIVE, at__gte=alert.began_at)
    return effective if until is None else effective.filter(at__lte=until)


def list_relevant_plans(alert: Alert) -> list[Plan]:
    """Return the plans that controllers (or the recovery of a lost node) made in its time, newest first."""
    query = Plan.objects.filter(owner=None, created_at__range=find_response_range(alert)).order_by("-pk")[:MAX_PLANS]
    return [plan for plan in query if _is_relevant(plan, alert.labels)]


def _is_relevant(plan: Plan, labels: dict[str, str]) -> bool:
    """Return whether a plan moves points of the alert's queue, or from or to its node.

    For an alert of a whole plant, all plans do.
    """
    if labels.keys() & (UNSTEERED | {"plant"}):
        return False
    names = {name for move in plan.moves for name in (move["queue"], move["from"], move["to"])}
    about = {labels[key] for key in ("queue", "node") if key in labels}
    return not about or bool(about & (names | {plan.empties}))


@dataclass(frozen=True)
class AlertOutcome:
    """The outcome of the actions since an alert's onset.

    `count`: of all; `effective`: of those that had an effect; `before`: actions of up to BEFORE earlier, most
    of which were taken without knowledge of it; `words`: all that in a sentence.
    """

    count: int
    effective: int
    before: int
    words: str


@dataclass(frozen=True)
class Response:
    """The actions in response to an alert, each list the newest first and its first MAX_ACTIONS.

    `since`: from its onset on; `before`: up to BEFORE earlier, on a forecast; `advice`: what loops would have done.
    """

    since: list[LedgerEntry]
    before: list[LedgerEntry]
    advice: list[LedgerEntry]
    plans: list[Plan]
    outcome: AlertOutcome

    @property
    def entries(self) -> list[LedgerEntry]:
        """Return the actions, those since the onset first."""
        return (self.since + self.before)[:MAX_ACTIONS]


def summarize_outcome(alert: Alert) -> AlertOutcome:
    """Count what loops did about it."""
    is_before = Case(When(at__lt=alert.began_at, then=True), default=False)
    rows = select_executed_actions(alert).order_by().values_list("verdict", is_before).annotate(Count("pk"))
    verdicts, before = Counter[str](), 0
    for verdict, early, count in rows:
        if early:
            before += count
        else:
            verdicts[verdict] += count
    done = sum(verdicts.values())
    return AlertOutcome(done, verdicts["effective"], before, _describe_outcome(done, before, verdicts))


def build_alert_response(alert: Alert) -> Response:
    """Return what loops and plans did about it."""
    done = select_executed_actions(alert)
    came_to = summarize_outcome(alert)  # First: actions taken meanwhile are then among the entries, and not left out.
    return Response(
        since=list(done.filter(at__gte=alert.began_at)[:MAX_ACTIONS]),
        before=list(done.filter(at__lt=alert.began_at)[:MAX_ACTIONS]),
        advice=list(select_decisions(alert).exclude(mode__in=Loop.ACTING)[:MAX_ACTIONS]),
        plans=list_relevant_plans(alert),
        outcome=came_to,
    )


def count_verdicts(spans: Sequence[tuple[datetime, datetime]]) -> Counter[str]:
    """Count the verdicts of all that loops did in these time ranges, which do not overlap."""
    verdicts: Counter[str] = Counter()
    for since, until in spans:
        done = LedgerEntry.objects.filter(at__gte=since, at__lt=until, action__isnull=False)
        verdicts += Counter(
            dict(done.filter(mode__in=Loop.ACTING).order_by().values_list("verdict").annotate(Count("pk")))
        )
    return verdicts


def _describe_outcome(count: int, before: int, verdicts: Counter[str]) -> str:
    if not count:
        earlier = f"; {format_count(before, 'action')} in the 5 minutes before" if before else ""
        return f"No loop has acted since the alert started{earlier}."
    rest = [
        f"{verdicts[name]} {said}"
        for name, said in (
            ("harmful", "made the measurement worse"),
            ("ineffective", "had no effect"),
            ("checking", "not evaluated yet"),
            ("no action", "not expected to have an effect"),
        )
        if verdicts[name]
    ]
    head = f"{verdicts['effective']} of {count} action{'s' if count != 1 else ''} had an effect"
    return f"{head}; {', '.join(rest)}." if rest else f"{head}."


HEADER = (
    "id", "rule", "title", "severity", "labels", "fired_at", "resolved_at", "seconds", "worst", "threshold",
    "came_back", "acknowledged_after_seconds", "acknowledged_by", "told", "under", "actions", "effective",
)  # fmt: skip
MAX_RANGE = timedelta(days=31)
NONE_FIRED = "No alerts fired."


@dataclass(frozen=True)
class ReviewRow:
    """One alert of the time range, as the review shows it. Durations are within the range, up to `until`."""

    alert: Alert
    seconds: float
    acknowledged_after_seconds: float | None
    acknowledged_by: str
    notified: int
    outcome: AlertOutcome
    notes: Sequence[AlertEvent]

    @property
    def flapped(self) -> bool:
        return self.alert.came_back >= automaton.FLAPS

    def document(self) -> dict[str, Any]:
        """Return the row as in CSV and the API."""
        alert = self.alert
        return {
            "id": alert.pk,
            "rule": alert.rule_name,
            "title": alert.title,
            "severity": alert.shown_severity,
            "labels": alert.labels,
            "fired_at": alert.fired_at,
            "resolved_at": alert.resolved_at,
            "seconds": round(self.seconds, 1),
            "worst": alert.worst,
            "threshold": alert.threshold,
            "came_back": alert.came_back,
            "acknowledged_after_seconds": self.acknowledged_after_seconds,
            "acknowledged_by": self.acknowledged_by,
            "told": self.notified,
            "under": alert.under_id,
            "actions": self.outcome.count,
            "effective": self.outcome.effective,
        }


@dataclass(frozen=True, kw_only=True)
class ReviewFigures:
    """A time range in figures and in a sentence.

    - `open_seconds`: the time during which anything was open.
    - `explained`: alerts that belong to another's incident.
    - `failed`: messages given up.
    - `acknowledged_seconds`: the median of the incidents that were acknowledged.
    - `actions`, `effective`, `unjudged`: actions of control loops in the range: all, those that had an
      effect, and those that can't be judged.
    """

    incidents: int
    open_seconds: float
    alerts: int
    critical: int
    open: int
    explained: int
    flapped: int
    messages_sent: int
    failed: int
    acknowledged_seconds: float | None
    actions: int
    effective: int
    unjudged: int
    sentence: str

    def document(self) -> dict[str, Any]:
        """Return the figures as in the API."""
        figures = dict(vars(self))
        told = figures.pop("messages_sent")
        return {**figures, "told": told}


def select_alerts_between(since: datetime, until: datetime) -> QuerySet[Alert]:
    """Return those that fired, or were open, in the time range, the oldest first."""
    open_then = Q(resolved_at__isnull=True) | Q(resolved_at__gte=since)
    events = AlertEvent.objects.select_related("by").order_by("at", "pk")
    return (
        Alert.objects.filter(open_then, fired_at__lt=until)
        .select_related("under", "incident")
        .prefetch_related(Prefetch("events", queryset=events))
        .order_by("fired_at", "pk")
    )


def iterate_review_rows(since: datetime, until: datetime) -> Iterator[ReviewRow]:
    """Return the review's rows; see `alerts_between`."""
    for alert in select_alerts_between(since, until):
        assert alert.fired_at is not None
        events = list(alert.events.all())
        had = next((event for event in events if event.kind == AlertEvent.Kind.ACKNOWLEDGED), None)
        begin, end = max(alert.fired_at, since), min(alert.resolved_at or until, until)
        yield ReviewRow(
            alert=alert,
            seconds=max(0.0, (end - begin).total_seconds()),
            acknowledged_after_seconds=compute_seconds_between(alert.fired_at, had.at) if had else None,
            acknowledged_by=had.by.get_username() if had and had.by else "",
            notified=sum(event.kind == AlertEvent.Kind.NOTIFIED for event in events),
            outcome=summarize_outcome(alert),
            notes=[event for event in events if event.kind == AlertEvent.Kind.NOTE],
        )


def open_spans(rows: Iterable[ReviewRow], since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return when any of them was open, within the time range: in order, none overlapping."""
    spans: list[tuple[datetime, datetime]] = []
    alerts = (row.alert for row in rows)
    times = [(alert.fired_at, alert.resolved_at) for alert in alerts if alert.fired_at is not None]
    for fired_at, resolved_at in sorted(times, key=lambda alert_span: alert_span[0]):
        begin, end = max(fired_at, since), min(resolved_at or until, until)
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        elif begin < end:
            spans.append((begin, end))
    return spans


def summarize_review(rows: Sequence[ReviewRow], since: datetime, until: datetime) -> ReviewFigures:
    """Summarize the review. Only incidents count, with the alerts that they explain, and overlapping times once."""
    incidents = [row for row in rows if row.alert.under_id is None]
    still = sum(row.alert.resolved_at is None or row.alert.resolved_at >= until for row in incidents)
    acknowledged = (row.acknowledged_after_seconds for row in incidents)
    waits = [seconds for seconds in acknowledged if seconds is not None]
    spans = open_spans(incidents, since, until)
    verdicts = count_verdicts(spans)
    messages = Message.objects.exclude(content__kind="test")
    given_up = messages.filter(state=Message.State.FAILED).exclude(error__in=Message.NO_FAULT)
    lost = given_up.filter(created_at__gte=since, created_at__lt=until).count()
    return ReviewFigures(
        incidents=len(incidents),
        open_seconds=sum((end - begin).total_seconds() for begin, end in spans),
        alerts=len(rows),
        critical=sum(row.alert.shown_severity == "critical" for row in incidents),
        open=still,
        explained=len(rows) - len(incidents),
        flapped=sum(row.flapped for row in rows),
        messages_sent=messages.filter(sent_at__gte=since, sent_at__lt=until).count(),
        failed=lost,
        acknowledged_seconds=statistics.median(waits) if waits else None,
        actions=sum(verdicts.values()),
        effective=verdicts["effective"],
        unjudged=sum(verdicts[name] for name in UNJUDGED),
        sentence=_describe_incidents(incidents, len(rows), still),
    )


def format_duration(seconds: float) -> str:
    """Return a duration in minutes, or in seconds if it is less than one minute."""
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _describe_incidents(incidents: Sequence[ReviewRow], alerts: int, still: int) -> str:
    if not incidents:
        return f"{format_count(alerts, 'alert')} fired, explained by earlier alerts." if alerts else NONE_FIRED
    worst = max(incidents, key=lambda row: (GRAVITY[row.alert.shown_severity], row.seconds))
    count = format_count(len(incidents), "incident")
    count += f" with {format_count(alerts, 'alert')}" if alerts > len(incidents) else ""
    rest = f"{still} {'is' if still == 1 else 'are'} still open" if still else "all are resolved"
    return f"{count}; {rest}. Most severe: {worst.alert.title}, {format_duration(worst.seconds)}."
