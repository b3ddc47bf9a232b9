"""The first report of an advising loop, in sentences: for its page, the plant's page, and the API."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from common.stored_document import convert
from controllers.framework.reason import format_count, format_percent
from workers.control.loops import MIN_SECONDS
from workers.documents.loops import FirstReportFigures
from workers.models import FirstReport

MINUTE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class ShownReport:
    """The first report as a page shows it.

    sentences: what happened, and what would have happened. assumed: assumptions of the estimate. figures: None if too
    little was measured.
    """

    since: datetime
    until: datetime
    sentences: Sequence[str]
    assumed: Sequence[str]
    figures: FirstReportFigures | None


def report_of(loop: int) -> ShownReport | None:
    """Return the report; None before there is one."""
    report = FirstReport.objects.filter(loop=loop).first()
    if report is None or report.since == report.until:
        return None
    figures = None if report.figures is None else convert(FirstReportFigures, report.figures)
    return ShownReport(
        since=report.since,
        until=report.until,
        sentences=_describe_missing_data()
        if figures is None
        else [_describe_task_hours(figures), _describe_waiting(figures)],
        assumed=() if figures is None else _describe_assumptions(figures),
        figures=figures,
    )


def _describe_missing_data() -> list[str]:
    least = f"{MIN_SECONDS / MINUTE_SECONDS:.0f} minutes"
    return [
        (
            f"Less than {least} of the hour was measured, so there are no figures. The next "
            "hour will be reported instead."
        )
    ]


def _describe_task_hours(figures: FirstReportFigures) -> str:
    was, advised = figures.task_hours, figures.advised_task_hours
    change = advised - was
    share = f" ({format_percent(abs(change) / was)})" if was else ""
    said = f"Worker-hours: {was:.2f} used, {advised:.2f} with the advice"
    if round(change, 2) == 0:
        return f"{said}: no difference."
    return f"{said}: {abs(change):.2f} {'more' if change > 0 else 'less'}{share}."


def _describe_waiting(figures: FirstReportFigures) -> str:
    was, advised = figures.waiting_event_seconds, figures.advised_waiting_event_seconds
    if was is None or advised is None:
        return "Waiting: not measured by this loop."
    if not figures.events:
        return "Waiting: no arrivals."
    one, other = was / figures.events, advised / figures.events
    said = f"Mean waiting time: {_format_seconds(one)} measured, {_format_seconds(other)} estimated with the advice"
    if _format_seconds(one) == _format_seconds(other):
        return f"{said}: no difference."
    return f"{said}: {_format_seconds(abs(other - one))} {'more' if other > one else 'less'}."


def _format_seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def _describe_assumptions(figures: FirstReportFigures) -> list[str]:
    minutes = figures.measured_seconds / MINUTE_SECONDS
    pauses = f", each with a pause of {figures.pause_seconds:g} s that is not included" if figures.pause_seconds else ""
    return [
        f"Actual figures are measured over {minutes:.0f} minutes.",
        "Figures with the advice are estimates. They assume the same arrivals, the same task speed, and"
        " independent decisions.",
        f"The advice would have changed the number of tasks {format_count(figures.changes, 'time')}{pauses}.",
    ]
