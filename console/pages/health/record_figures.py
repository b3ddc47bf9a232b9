"""Prometheus metrics of the ledger, of messages to receivers, and of this process's rejected requests.

The plant's own figures come from the snapshot (`exposition`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Min, Subquery
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from workers.alerts.lifecycle.models import Message
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.steering.scope import list_active_loops

FAILED_WITHIN = timedelta(minutes=15)  # actions
GIVEN_UP_WITHIN = timedelta(days=1)  # messages


@dataclass(frozen=True)
class RecordFigures:
    """Figures from the database.

    decisions: since the ledger began, including those that retention has deleted. message_wait_seconds: age of the
    oldest waiting message; 0 if none waits. Failed actions and messages are recent ones.
    """

    decisions: int
    open_actions: int
    failed_actions: int
    messages_waiting: int
    message_wait_seconds: float
    messages_failed: int


def record_figures(now: datetime) -> RecordFigures:
    """Read the figures with indices alone, except for the rows that are counted. Raises `DatabaseError`."""
    waiting = Message.objects.filter(state=Message.State.WAITING)
    oldest = waiting.aggregate(oldest=Min("created_at"))["oldest"]
    given_up = Message.objects.filter(state=Message.State.FAILED, created_at__gt=now - GIVEN_UP_WITHIN)
    return RecordFigures(
        decisions=LedgerEntry.objects.aggregate(newest=Max("pk"))["newest"] or 0,
        open_actions=_open_actions(),
        failed_actions=_count_failed_actions(now - FAILED_WITHIN),
        messages_waiting=waiting.count(),
        message_wait_seconds=max(0.0, (now - oldest).total_seconds()) if oldest else 0.0,
        messages_failed=given_up.exclude(error__in=Message.NO_FAULT).count(),
    )


def _open_actions() -> int:
    """Count loops whose last entry is an action that is neither confirmed nor failed; reads a row a loop."""
    last = LedgerEntry.objects.filter(pk__in=list_active_loops().values_list(Subquery(ledger.select_last_entry_ids())))
    return last.filter(mode__in=Loop.ACTING, action__isnull=False, applied=False, error="").count()


def _count_failed_actions(since: datetime) -> int:
    """Count failed actions since an instant.

    An index finds the actions from then on, and only their rows are read.
    """
    first = LedgerEntry.objects.filter(at__gte=since).order_by("at").values_list("pk", flat=True).first()
    if first is None:
        return 0
    acted = LedgerEntry.objects.filter(pk__gte=first, acted=True, at__gte=since).values("pk")
    return LedgerEntry.objects.filter(pk__in=acted).exclude(error="").count()


def record_families(figures: RecordFigures) -> Iterator[Metric]:
    yield CounterMetricFamily("weir_ledger_decisions", "Decisions of all loops", figures.decisions)
    gauges = {
        "weir_ledger_open_actions": ("Actions neither confirmed nor failed", figures.open_actions),
        "weir_ledger_failed_actions": ("Failed actions of the last 15 minutes", figures.failed_actions),
        "weir_messages_waiting": ("Messages to receivers waiting to be sent", figures.messages_waiting),
        "weir_message_wait_seconds": ("Wait of the oldest message in seconds", figures.message_wait_seconds),
        "weir_messages_failed": ("Undeliverable messages of the last day", figures.messages_failed),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value)


def build_rejection_metric(refused: Mapping[str, int]) -> Metric:
    """Return {line of requests: requests rejected by a full line since this process started}."""
    text = "Requests that this process rejected because too many were waiting"
    family = CounterMetricFamily("weir_console_refused_requests", text, labels=("line",))
    for line, count in refused.items():
        family.add_metric((line,), count)
    return family
