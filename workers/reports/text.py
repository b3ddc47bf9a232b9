"""A report as plain text, for mail and chat: the most important first, the rest on its page."""

from collections.abc import Iterator

from django.conf import settings

from controllers.framework.reason import format_count
from workers.alerts.delivery.channels.plain_text import format_one_line
from workers.alerts.review import Row, format_duration
from workers.reports.week import WeekReport

PATH = "/reports/"


def format_report_title(report: WeekReport) -> str:
    """Return the title of the message."""
    week = f"{report.since:%Y-%m-%d} to {report.until:%Y-%m-%d}"
    return f"Weir weekly report, {week}: {report.figures.sentence}"[:200]


def render_report(report: WeekReport) -> str:
    """Return the whole report, section by section; an empty section says so."""
    sections = [
        ("Service levels", _describe_promises(report), "No objectives."),
        ("Incidents", _incidents(report), "None."),
        ("Control loops", _describe_loops(report), "No loop actions."),
        ("Overrides", _describe_overrides(report), "None."),
        ("Proposals", _describe_proposals(report), "None."),
    ]
    said = format_one_line(report.figures.sentence)
    parts = [f"{report.since:%Y-%m-%d %H:%M} to {report.until:%Y-%m-%d %H:%M} UTC. {said}"]
    for name, lines, otherwise in sections:
        # Each row is one line: no reason or title looks like another row, or like one of our links.
        parts.append("\n".join([name, *(list(map(format_one_line, lines)) or [otherwise])]))
    parts.append(
        "Online version, for links and printing:"
        f" {settings.WEIR_PUBLIC_URL}{PATH}?until={report.until:%Y-%m-%dT%H:%M:%SZ}"
    )
    return "\n\n".join(parts)


def _describe_promises(report: WeekReport) -> Iterator[str]:
    for promise in report.promises:
        known = f" Data only since {promise.known_from:%a %Y-%m-%d %H:%M}." if promise.known_from else ""
        if promise.good_share is None:
            yield f"- {promise.name}: no data.{known}"
            continue
        burnt = "" if promise.burnt is None else f"; {100 * promise.burnt:.0f} % of the error budget used"
        missed = "MISSED, " if promise.missed else ""
        good = f"{100 * promise.good_share:.3f} % good, target {100 * promise.target:.3f} %"
        yield f"- {promise.name}: {missed}{good}{burnt}.{known}"


def _incidents(report: WeekReport) -> Iterator[str]:
    yield from (_describe_incident(row) for row in report.incidents)
    yield from _describe_remainder(report.more_incidents)


def _describe_incident(row: Row) -> str:
    who = f"acknowledged by {row.acknowledged_by}" if row.acknowledged_by else "not acknowledged"
    at = f"{row.alert.fired_at:%a %H:%M}" if row.alert.fired_at else ""
    still = "" if row.alert.resolved_at else "still open after "
    lasted = f"{still}{format_duration(row.seconds)}, {who}. {row.outcome.words}"
    return f"- {at} {row.alert.title} ({row.alert.shown_severity}), {lasted}"


def _describe_loops(report: WeekReport) -> Iterator[str]:
    for row in report.loops:
        advice = f"; {row.advice} advised only" if row.advice else ""
        said = f"{row.effective} effective, {row.ineffective} without effect, {row.harmful} harmful"
        said += f", {row.unjudged} not evaluated" if row.unjudged else ""
        yield f"- {row.name}: {format_count(row.actions, 'action')}, {said}{advice}."


def _describe_overrides(report: WeekReport) -> Iterator[str]:
    for row in report.overrides:
        yield f"- {row.what} = {row.value}, by {row.owner} on {row.since:%a %H:%M}: {row.reason}"
    yield from _describe_remainder(report.more_overrides)


def _describe_proposals(report: WeekReport) -> Iterator[str]:
    for row in report.proposals:
        yield f"- {row.what} ({row.state}){f': {row.expected}' if row.expected else ''}"
    yield from _describe_remainder(report.more_proposals)


def _describe_remainder(count: int) -> Iterator[str]:
    if count:
        yield f"- and {count} more."
