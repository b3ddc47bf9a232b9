"""What the control loops did about an alert, and whether it had an effect."""

from collections import Counter
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from workers.alerts.lifecycle.models import Alert
from workers.models import LedgerEntry, Loop, Plan

# A loop may act on a forecast before the rule's threshold is reached.
BEFORE = timedelta(minutes=5)
AFTER = timedelta(minutes=2)
MOST_ACTIONS, MOST_PLANS = 12, 20


def loops_of(alert: Alert) -> QuerySet[Loop]:
    """The loops that steer what the alert is about, and those that steer the whole plant."""
    labels = alert.labels
    whole = Q(target={})
    if "loop" in labels:
        return Loop.objects.filter(name=labels["loop"])
    if "queue" in labels:
        return Loop.objects.filter(whole | Q(target__queue=labels["queue"]))
    if "node" in labels:
        return Loop.objects.filter(whole | Q(target__node=labels["node"]))
    return Loop.objects.all()


def span(alert: Alert) -> tuple[Any, Any]:
    """The time whose actions count as answers to it."""
    return alert.began_at - BEFORE, (alert.resolved_at or timezone.now()) + AFTER


def actions(alert: Alert) -> QuerySet[LedgerEntry]:
    """The ledger entries of these loops that acted in its time, or would have, the newest first."""
    acted = LedgerEntry.objects.filter(loop__in=loops_of(alert), at__range=span(alert), action__isnull=False)
    return acted.select_related("loop").order_by("-at", "-pk")


def plans(alert: Alert) -> list[Plan]:
    """The plans that controllers (or the recovery of a lost node) made in its time, the newest first."""
    found = Plan.objects.filter(owner=None, created_at__range=span(alert)).order_by("-pk")[:MOST_PLANS]
    return [plan for plan in found if _is_relevant(plan, alert.labels)]


def _is_relevant(plan: Plan, labels: dict[str, str]) -> bool:
    """Whether a plan moves points of the alert's queue, or from or to its node; all do for a whole plant."""
    names = {name for move in plan.moves for name in (move["queue"], move["from"], move["to"])}
    about = {labels[key] for key in ("queue", "node") if key in labels}
    return not about or bool(about & (names | {plan.empties}))


def tried(alert: Alert) -> dict[str, Any]:
    """{"entries": the latest, "plans", "actions": how many, "effective", "words"}."""
    verdicts = Counter(actions(alert).order_by().values_list("verdict", flat=True))
    count, effective = sum(verdicts.values()), verdicts["effective"]
    return {
        "entries": list(actions(alert)[:MOST_ACTIONS]),
        "plans": plans(alert),
        "actions": count,
        "effective": effective,
        "words": _words(count, effective, verdicts),
    }


def _words(count: int, effective: int, verdicts: Counter[str]) -> str:
    if not count:
        return "No loop has acted."
    rest = [
        f"{verdicts[name]} {said}"
        for name, said in (
            ("harmful", "made it worse"),
            ("ineffective", "had no effect"),
            ("checking", "not judged yet"),
        )
        if verdicts[name]
    ]
    head = f"{effective} of {count} action{'s' if count != 1 else ''} had an effect"
    return f"{head}; {', '.join(rest)}." if rest else f"{head}."
