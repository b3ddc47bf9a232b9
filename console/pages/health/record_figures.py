"""What the database says of the ledger and of messages to receivers, and a process of refusals, as Prometheus
metrics. A plant's own figures are the snapshot's (`exposition`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max, Min, Subquery
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from workers.alerts.lifecycle.models import Message
from workers.control.ledger import ledger
from workers.models import LedgerEntry, Loop
from workers.steering.scope import active_loops

FAILED_WITHIN = timedelta(minutes=15)  # actions
GIVEN_UP_WITHIN = timedelta(days=1)  # messages


@dataclass(frozen=True)
class RecordFigures:
    """decisions: since the ledger began, also those that retention has deleted. message_wait_seconds: since
    the oldest message that waits was made; 0 where none waits. Of failed actions and messages those of late.
    """

    decisions: int
    open_actions: int
    failed_actions: int
    messages_waiting: int
    message_wait_seconds: float
    messages_failed: int


def record_figures(now: datetime) -> RecordFigures:
    """By indices alone, but for the rows that are counted. Raises DatabaseError."""
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
    """Loops whose last entry is an action that is neither confirmed nor failed: a row a loop is read."""
    last = LedgerEntry.objects.filter(pk__in=active_loops().values_list(Subquery(ledger.last_entry_ids())))
    return last.filter(mode__in=Loop.ACTING, action__isnull=False, applied=False, error="").count()


def _count_failed_actions(since: datetime) -> int:
    """From the first entry of that time on: an index finds the actions then, and only their rows are read."""
    first = LedgerEntry.objects.filter(at__gte=since).order_by("at").values_list("pk", flat=True).first()
    if first is None:
        return 0
    acted = LedgerEntry.objects.filter(pk__gte=first, acted=True, at__gte=since).values("pk")
    return LedgerEntry.objects.filter(pk__in=acted).exclude(error="").count()


def record_families(figures: RecordFigures) -> Iterator[Metric]:
    yield CounterMetricFamily("weir_ledger_decisions", "Decisions of all loops", figures.decisions)
    gauges = {
        "weir_ledger_open_actions": ("Actions neither confirmed nor failed", figures.open_actions),
        "weir_ledger_failed_actions": ("Actions of the last 15 minutes that failed", figures.failed_actions),
        "weir_messages_waiting": ("Messages to receivers that wait to be sent", figures.messages_waiting),
        "weir_message_wait_seconds": (
            "Seconds that the oldest waiting message has waited",
            figures.message_wait_seconds,
        ),
        "weir_messages_failed": ("Messages of the last day that were given up", figures.messages_failed),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value)


def refusals(refused: Mapping[str, int]) -> Metric:
    """{line of requests: how many found no place in it since this process began}."""
    text = "Requests that this process refused, since too many waited before them"
    family = CounterMetricFamily("weir_console_refused_requests", text, labels=("line",))
    for line, count in refused.items():
        family.add_metric((line,), count)
    return family
