"""First reports of loops at attached plants: what the loop's advice would have saved in the first hour.

A loop that sets tasks of a registered plant starts in advise. One hour after its first advice,
`controllers.parallelism.advice_value` compares the measured tasks in its ledger with the advised ones. Where less than
MIN_SECONDS of the hour were measured (the plant was silent, or others controlled it), the report says so, and the next
hour is reported instead.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from common.stored_document import convert_to_plain
from controllers.parallelism.advice_value import AdvisedOperator, AdvisedTick, compute_advice_value
from workers.control.ledger import folds
from workers.control.parts.operators import OWNERS
from workers.documents.loops import FirstReportFigures
from workers.models import FirstReport, LedgerEntry, Loop
from workers.steering.scope import list_active_loops

HOUR = timedelta(hours=1)
MIN_SECONDS = 600.0
# A tick's values apply until the next tick, unless a tick was missed.
MAX_INTERVALS = 3.0


def write_due(now: datetime) -> list[FirstReport]:
    """Write the reports that are due, each from its loop's ledger."""
    reports = []
    for loop in _list_loops_without_report():
        since = _find_report_start(loop)
        if since is not None and since + HOUR <= now:
            reports.append(_write(loop, since, since + HOUR))
    return reports


def begin_anew(loop: Loop, now: datetime) -> None:
    """Restart the report for a loop whose plant was replaced: earlier reports describe the previous plant."""
    FirstReport.objects.update_or_create(loop=loop, defaults={"since": now, "until": now, "figures": None})


def _list_loops_without_report() -> list[Loop]:
    """List the loops in advise at attached plants that have no report with figures."""
    loops = list_active_loops().filter(law__in=OWNERS, mode=Loop.Mode.ADVISE, target__has_key="plant")
    return list(loops.exclude(first_report__figures__isnull=False))


def _find_report_start(loop: Loop) -> datetime | None:
    """Return the start of the hour to report: the first advice, or the end of the last report."""
    report = FirstReport.objects.filter(loop=loop).first()
    if report is not None:
        return report.until
    first = loop.entries.filter(mode=Loop.Mode.ADVISE).order_by("pk").first()
    return None if first is None else first.at


def _write(loop: Loop, since: datetime, until: datetime) -> FirstReport:
    advised = loop.entries.filter(mode=Loop.Mode.ADVISE)
    entries = folds.iterate_ticks(advised, since, until, only=("at", "observation", "action"))
    ticks = [_tick(entry) for entry in entries]
    value = compute_advice_value(ticks, MAX_INTERVALS * loop.interval_seconds)
    figures = FirstReportFigures(**vars(value), pause_seconds=float(loop.parameters.get("pause_seconds") or 0.0))
    report, _ = FirstReport.objects.update_or_create(
        loop=loop,
        defaults={
            "since": since,
            "until": until,
            "figures": convert_to_plain(figures) if value.measured_seconds >= MIN_SECONDS else None,
        },
    )
    return report


def _tick(entry: LedgerEntry) -> AdvisedTick:
    """Return what the loop observed and advised at this tick; nothing without a valid measurement."""
    observed: Mapping[str, Any] = entry.observation or {}
    rows: Mapping[str, Mapping[str, Any]] = observed.get("operators") or {}
    advised = (entry.action or {}).get("tasks", {})
    known = not observed.get("unfit") and all(_get_arrival_rate(row) is not None for row in rows.values())
    operators = {
        name: AdvisedOperator(
            tasks=row["tasks"],
            advised=advised.get(name, row["tasks"]),
            rate_per_second=_get_arrival_rate(row) or 0.0,
            service_seconds=row["service_seconds"] or 0.0,
            waiting_events=row.get("backlog_events"),
            variability=row.get("variability", 1.0),
        )
        for name, row in rows.items()
    }
    return AdvisedTick(at=entry.at.timestamp(), operators=operators if known else {})


def _get_arrival_rate(row: Mapping[str, Any]) -> float | None:
    """Return the arrival rate of the operator, in the form that either law records."""
    if row.get("service_seconds") is None:
        return None
    interval = row.get("arrival_interval_seconds")
    rate = row.get("rate_per_second", row["tasks"] / interval if interval else None)
    return None if rate is None else float(rate)
