"""What the control loops did about an alert, and whether it had an effect."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Q, QuerySet, When
from django.utils import timezone

from controllers.framework.reason import format_count
from workers.alerts.lifecycle.models import Alert
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


def span(alert: Alert) -> tuple[Any, Any]:
    """Return the time range whose actions count as responses to it."""
    return alert.began_at - BEFORE, (alert.resolved_at or timezone.now()) + AFTER


def select_decisions(alert: Alert) -> QuerySet[LedgerEntry]:
    """Return entries of these loops with an action in its time, executed or advised, newest first."""
    entries = LedgerEntry.objects.filter(
        loop__in=select_steering_loops(alert), at__range=span(alert), action__isnull=False
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
    query = Plan.objects.filter(owner=None, created_at__range=span(alert)).order_by("-pk")[:MAX_PLANS]
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
    """What was done about an alert, each list the newest first and its first MAX_ACTIONS.

    `since`: from its onset on; `before`: up to BEFORE earlier, on a forecast; `advice`: what loops would have
    done.
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
        verdicts += _verdicts(done.filter(mode__in=Loop.ACTING))
    return verdicts


def _verdicts(entries: QuerySet[LedgerEntry]) -> Counter[str]:
    """Count the entries by verdict, in the database."""
    return Counter(dict(entries.order_by().values_list("verdict").annotate(Count("pk"))))


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
