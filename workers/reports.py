"""Weekly reports on a page and by email: service levels, incidents, what loops did, overrides, and proposals."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Min, Q, Sum

from common.parsing import format_one_line
from controllers.framework.reason import format_count
from workers.alerts import review
from workers.alerts.delivery.receivers import READ_BY_PEOPLE
from workers.alerts.lifecycle.models import Message, Receiver
from workers.alerts.review import format_duration
from workers.models import LedgerEntry, Loop, Override, Plan
from workers.objectives.book import MINUTE_SECONDS, MINUTES_PER_DAY
from workers.objectives.error_budget import PeriodCounts, compute_window_budget
from workers.objectives.models import Objective
from workers.steering import plant_settings
from workers.steering.scope import Scope

LENGTH = timedelta(days=7)
MAX_ROWS = 20


@dataclass(frozen=True)
class PromiseOutcome:
    """An objective in the week.

    `good_share`: the good share of the total, None if nothing was counted. `burnt`: the share of a whole
    window's error budget that the week used up. `known_from`: set if its stored record starts only during the week;
    None: the whole week is known.
    """

    name: str
    target: float
    good_share: float | None
    burnt: float | None
    known_from: datetime | None = None

    @property
    def missed(self) -> bool:
        return self.good_share is not None and self.good_share < self.target


@dataclass(frozen=True)
class LoopWeek:
    """A loop's week: decisions with an action, by outcome. `advice`: those of modes that only advise."""

    loop: int
    name: str
    actions: int
    effective: int
    harmful: int
    ineffective: int
    advice: int

    @property
    def unjudged(self) -> int:
        """Return how many can't be judged: those not expected to have an effect, or not measurable."""
        return self.actions - self.effective - self.harmful - self.ineffective


@dataclass(frozen=True)
class WeekOverride:
    """The value that a person set in place of a decision, and why."""

    number: int
    what: str
    value: str
    owner: str
    reason: str
    since: datetime
    until: datetime | None  # None: it has no end


@dataclass(frozen=True)
class WeekProposal:
    """A proposal and its outcome."""

    what: str
    state: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class WeekReport:
    """A week up to `until`. `more_…`: how many rows were left out."""

    since: datetime
    until: datetime
    promises: list[PromiseOutcome]
    figures: review.ReviewFigures
    incidents: list[review.ReviewRow]
    more_incidents: int
    loops: list[LoopWeek]
    overrides: list[WeekOverride]
    more_overrides: int
    proposals: list[WeekProposal]
    more_proposals: int


def build_week_report(until: datetime) -> WeekReport:
    """Return the report of the seven days up to `until`."""
    since = until - LENGTH
    severities = ("critical", "warning", "notice")
    rows = sorted(
        review.iterate_review_rows(since, until),
        key=lambda row: (severities.index(row.alert.shown_severity), -row.seconds),
    )
    incidents = [row for row in rows if row.alert.under_id is None]
    overrides, proposals = _list_overrides(since, until), _list_proposals(since, until)
    return WeekReport(
        since=since,
        until=until,
        promises=[_build_promise_outcome(objective, since, until) for objective in Objective.objects.order_by("name")],
        figures=review.summarize_review(rows, since, until),
        incidents=incidents[:MAX_ROWS],
        more_incidents=max(0, len(incidents) - MAX_ROWS),
        loops=_list_acting_loops(since, until),
        overrides=overrides[:MAX_ROWS],
        more_overrides=max(0, len(overrides) - MAX_ROWS),
        proposals=proposals[:MAX_ROWS],
        more_proposals=max(0, len(proposals) - MAX_ROWS),
    )


def _build_promise_outcome(objective: Objective, since: datetime, until: datetime) -> PromiseOutcome:
    first, last = (int(at.timestamp() // MINUTE_SECONDS) for at in (since, until))
    minutes = objective.minutes.filter(minute__gte=first, minute__lt=last)
    counted = Count("pk", filter=Q(total__gt=0))
    sums = minutes.aggregate(all_bad=Sum("bad"), all_counted=Sum("total"), minutes_counted=counted)
    week = PeriodCounts(sums["all_bad"] or 0.0, sums["all_counted"] or 0.0, sums["minutes_counted"])
    # Earlier minutes than the oldest were not stored or never counted.
    oldest = objective.minutes.aggregate(Min("minute"))["minute__min"]
    is_later = oldest is not None and oldest > first
    known_from = datetime.fromtimestamp(oldest * MINUTE_SECONDS, UTC) if is_later else None
    outcome = PromiseOutcome(objective.name, objective.target, None, None, known_from)
    if week.total <= 0:
        return outcome
    budget = compute_window_budget(week, objective.target, objective.window_days * MINUTES_PER_DAY)
    # What was shed without an observer may exceed what was offered.
    good_share = max(0.0, 1 - week.bad / week.total)
    return replace(outcome, good_share=good_share, burnt=week.bad / budget if budget else None)


def _list_acting_loops(since: datetime, until: datetime) -> list[LoopWeek]:
    """Return the loops that decided on an action, the busiest first."""
    entries = LedgerEntry.objects.filter(at__gte=since, at__lt=until, acted=True)
    counts = entries.order_by().values_list("loop", "mode", "verdict").annotate(Count("pk"))
    verdicts: dict[int, Counter[str]] = {}
    advice: Counter[int] = Counter()
    for loop, mode, verdict, count in counts:
        if mode in Loop.ACTING:
            verdicts.setdefault(loop, Counter())[verdict] += count
        else:
            advice[loop] += count
    names = dict(Loop.objects.filter(pk__in={*verdicts, *advice}).values_list("pk", "name"))
    weeks = []
    for pk, name in names.items():
        own = verdicts.get(pk, Counter())
        effective, harmful, ineffective = (own[verdict] for verdict in ("effective", "harmful", "ineffective"))
        weeks.append(LoopWeek(pk, name, sum(own.values()), effective, harmful, ineffective, advice[pk]))
    return sorted(weeks, key=lambda row: (-row.actions, -row.advice, row.name))[:MAX_ROWS]


def _list_overrides(since: datetime, until: datetime) -> list[WeekOverride]:
    """Return the overrides in force during the week, the newest first."""
    rows = Override.objects.filter(created_at__lt=until).select_related("owner", "loop", "node")
    rows = rows.filter(Q(expires_at=None) | Q(expires_at__gt=since)).exclude(ended_at__lte=since)
    return [
        WeekOverride(
            number=row.pk,
            what=f"{row.name} of {Scope.build(row)}",
            value=f"{row.value:g}" if isinstance(row.value, float) else str(row.value)[:60],
            owner=row.owner.get_username(),
            reason=row.reason,
            since=row.created_at,
            until=min(filter(None, (row.expires_at, row.ended_at)), default=None),
        )
        for row in rows.order_by("-created_at")
    ]


def _list_proposals(since: datetime, until: datetime) -> list[WeekProposal]:
    """Return proposals of plans, the newest first."""
    plans = Plan.objects.filter(created_at__gte=since, created_at__lt=until).order_by("-created_at")
    return [WeekProposal(f"Plan: {plan.title}", plan.state, plan.created_at) for plan in plans]


REPORT_PATH = "/reports/"


def format_report_title(report: WeekReport) -> str:
    """Return the title of the message."""
    week = f"{report.since:%Y-%m-%d} to {report.until:%Y-%m-%d}"
    return f"Weir weekly report, {week}: {report.figures.sentence}"[:200]


def render_report(report: WeekReport) -> str:
    """Return the whole report, section by section; an empty section says so."""
    sections = [
        ("Service levels", _describe_promises(report), "No objectives."),
        ("Incidents", _describe_incidents(report), "None."),
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
        f" {settings.WEIR_PUBLIC_URL}{REPORT_PATH}?until={report.until:%Y-%m-%dT%H:%M:%SZ}"
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


def _describe_incidents(report: WeekReport) -> Iterator[str]:
    for row in report.incidents:
        who = f"acknowledged by {row.acknowledged_by}" if row.acknowledged_by else "not acknowledged"
        at = f"{row.alert.fired_at:%a %H:%M}" if row.alert.fired_at else ""
        still = "" if row.alert.resolved_at else "still open after "
        lasted = f"{still}{format_duration(row.seconds)}, {who}. {row.outcome.words}"
        yield f"- {at} {row.alert.title} ({row.alert.shown_severity}), {lasted}"
    yield from _describe_remainder(report.more_incidents)


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
        yield f"- {row.what} ({row.state})"
    yield from _describe_remainder(report.more_proposals)


def _describe_remainder(count: int) -> Iterator[str]:
    if count:
        yield f"- and {count} more."


LATE = timedelta(days=1)  # A report that could not be made on time, as nothing ran, is made up for this long.


def compute_due_time(now: datetime, weekday: int, hour: int) -> datetime:
    """Return the last time at or before now that it was this hour of this weekday (1: Monday), UTC."""
    day = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    day -= timedelta(days=(day.isoweekday() - weekday) % LENGTH.days)
    return day if day <= now else day - LENGTH


def send_due(now: datetime) -> int:
    """Queue this week's report for each receiver that has not got it; return how many messages were made.

    A receiver that was added later waits for the next one.
    """
    weekday, hour = (plant_settings.get_setting_value(name) for name in ("report.weekday", "report.hour"))
    until = compute_due_time(now, weekday, hour)
    asking = Receiver.objects.filter(gets_reports=True, enabled=True, channel__in=READ_BY_PEOPLE, created_at__lte=until)
    keys = {
        hashlib.sha256(f"report {until.isoformat()} {receiver.pk}".encode()).hexdigest()[:32]: receiver
        for receiver in asking
    }
    sent = set(Message.objects.filter(key__in=keys).values_list("key", flat=True))
    owed = {key: receiver for key, receiver in keys.items() if key not in sent}
    if not owed or now - until > LATE:
        return 0
    report = build_week_report(until)
    content: dict[str, object] = {
        "kind": "report",
        "severity": "notice",
        "title": format_report_title(report),
        "sentence": render_report(report),
        "alerts": [],
    }
    made = 0
    for key, receiver in owed.items():
        with suppress(IntegrityError), transaction.atomic():  # Another clock may be faster.
            Message.objects.create(key=key, receiver=receiver, content=content, created_at=now, due_at=now)
            made += 1
    return made
