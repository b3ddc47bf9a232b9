"""A report's content: service levels, incidents, what loops did, what people overrode and why, proposals.

It is read from records that are stored anyway; the same week gives the same report while its rows are stored.
"""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.db.models import Count, Min, Q, Sum

from controllers.design.error_budget import PeriodCounts, compute_window_budget
from workers.alerts import review
from workers.models import LedgerEntry, Loop, Override, Plan, Tuning
from workers.objectives.book import MINUTE_SECONDS, MINUTES_PER_DAY
from workers.objectives.models import Objective
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
    """What a person set in place of a decision, and why."""

    number: int
    what: str
    value: str
    owner: str
    reason: str
    since: datetime
    until: datetime | None  # None: it has no end


@dataclass(frozen=True)
class WeekProposal:
    """A proposal, and what became of it. `expected`: its effect in words, "" if none is known."""

    what: str
    expected: str
    state: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class WeekReport:
    """A week up to `until`. `more_…`: how many rows were left out."""

    since: datetime
    until: datetime
    promises: list[PromiseOutcome]
    figures: review.ReviewFigures
    incidents: list[review.Row]
    more_incidents: int
    loops: list[LoopWeek]
    overrides: list[WeekOverride]
    more_overrides: int
    proposals: list[WeekProposal]
    more_proposals: int


def build_week_report(until: datetime) -> WeekReport:
    """Return the report of the seven days up to `until`."""
    since = until - LENGTH
    rows = sorted(review.iterate_review_rows(since, until), key=_rank_by_severity)
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


def _rank_by_severity(row: review.Row) -> tuple[int, float]:
    return ("critical", "warning", "notice").index(row.alert.shown_severity), -row.seconds


def _build_promise_outcome(objective: Objective, since: datetime, until: datetime) -> PromiseOutcome:
    first, last = (int(at.timestamp() // MINUTE_SECONDS) for at in (since, until))
    minutes = objective.minutes.filter(minute__gte=first, minute__lt=last)
    counted = Count("pk", filter=Q(total__gt=0))
    sums = minutes.aggregate(all_bad=Sum("bad"), all_counted=Sum("total"), minutes_counted=counted)
    week = PeriodCounts(sums["all_bad"] or 0.0, sums["all_counted"] or 0.0, sums["minutes_counted"])
    outcome = PromiseOutcome(objective.name, objective.target, None, None, _find_known_start(objective, first))
    if week.total <= 0:
        return outcome
    budget = compute_window_budget(week, objective.target, objective.window_days * MINUTES_PER_DAY)
    # What was shed without an observer may exceed what was offered.
    good_share = max(0.0, 1 - week.bad / week.total)
    return replace(outcome, good_share=good_share, burnt=week.bad / budget if budget else None)


def _find_known_start(objective: Objective, first: int) -> datetime | None:
    """Return where the objective's record starts, if its oldest minute is newer than this one.

    Earlier minutes were not stored or never counted.
    """
    oldest = objective.minutes.aggregate(Min("minute"))["minute__min"]
    is_later = oldest is not None and oldest > first
    return datetime.fromtimestamp(oldest * MINUTE_SECONDS, UTC) if is_later else None


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
    weeks = [_build_loop_week(pk, name, verdicts.get(pk, Counter()), advice[pk]) for pk, name in names.items()]
    return sorted(weeks, key=lambda row: (-row.actions, -row.advice, row.name))[:MAX_ROWS]


def _build_loop_week(pk: int, name: str, verdicts: Counter[str], advice: int) -> LoopWeek:
    return LoopWeek(
        loop=pk,
        name=name,
        actions=sum(verdicts.values()),
        effective=verdicts["effective"],
        harmful=verdicts["harmful"],
        ineffective=verdicts["ineffective"],
        advice=advice,
    )


def _list_overrides(since: datetime, until: datetime) -> list[WeekOverride]:
    """Return the overrides in force during the week, the newest first."""
    rows = Override.objects.filter(created_at__lt=until).select_related("owner", "loop", "node")
    rows = rows.filter(Q(expires_at=None) | Q(expires_at__gt=since)).exclude(ended_at__lte=since)
    return [
        WeekOverride(
            number=row.pk,
            what=f"{row.name} of {Scope.build(row)}",
            value=_format_value(row.value),
            owner=row.owner.get_username(),
            reason=row.reason,
            since=row.created_at,
            until=min(filter(None, (row.expires_at, row.ended_at)), default=None),
        )
        for row in rows.order_by("-created_at")
    ]


def _format_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)[:60]


def _list_proposals(since: datetime, until: datetime) -> list[WeekProposal]:
    """Return proposals of parameters that the record supports, and of plans; the newest first."""
    tunings = Tuning.objects.filter(created_at__gte=since, created_at__lt=until).select_related("loop")
    plans = Plan.objects.filter(created_at__gte=since, created_at__lt=until)
    proposals = [
        *map(_describe_tuning, tunings),
        *(WeekProposal(_plan(plan), "", plan.state, plan.created_at) for plan in plans),
    ]
    return sorted(proposals, key=lambda row: row.at, reverse=True)


def _describe_tuning(tuning: Tuning) -> WeekProposal:
    values = ", ".join(f"{name} = {_format_value(value)}" for name, value in tuning.values.items())
    expected = (
        f"{100 * tuning.improvement:.0f} % lower cost on the following days"
        f" ({100 * tuning.confidence:.0f} % confidence)"
    )
    return WeekProposal(f"{tuning.loop.name}: {values}", expected, tuning.state, tuning.created_at)


def _plan(plan: Plan) -> str:
    return f"Plan: {plan.title}"
