"""Drills: practice incidents on the embedded plant, the running drill, its debrief, and the results of the team."""

from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from console.accounts.access import actor_of
from console.actions.lab import drills
from console.drills import records, results
from console.drills.records import DebriefRow
from console.drills.results import DrillResult, DrillScenarioRow, PersonRow, TeamFigures
from console.drills.scenarios import SCENARIOS, DrillScenario
from console.drills.scoring import NO_WRONG_ACTION, NOTICE, RIGHT_ACTION
from console.input.form_values import parse_minutes
from console.models import Drill
from console.navigation import DeclaredPage
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import (
    ActionResult,
    Document,
    FormPage,
    declare_action,
    declare_page,
    open_page,
    render_page,
)

PERIODS = (30, 90)  # days
RECENT = timedelta(days=30)
TARGET_NOTICE, TARGET_ACTION = "1:00", "5:00"
TARGET_ACTION_SECONDS = 300
ROLES = ("operator", "administrator")
# Windows of a surprise drill, in minutes from now.
WINDOWS = ((60, "within the next hour"), (240, "within the next 4 hours"), (1_440, "within 24 hours"))


@dataclass(frozen=True)
class ScorePart:
    """A part of the score, and the points of a drill in it."""

    title: str
    points: int
    most: int

    @property
    def share(self) -> float:
        return self.points / self.most


@dataclass(frozen=True)
class LastResult:
    """The newest scored drill with its debrief. best: the best score of its scenario."""

    result: DrillResult
    parts: list[ScorePart]
    rows: list[DebriefRow]
    lesson: str
    best: int


@dataclass(frozen=True)
class PracticeFigures:
    """People who may respond: how many practiced lately, and who did not."""

    practiced: int
    people: int
    missing: str


@dataclass(frozen=True, kw_only=True)
class DrillsPage(FormPage):
    """All drills with their best times, results, and the schedule of a surprise drill."""

    TEMPLATE, NAME = "work/drills.html", "drills"

    refusal: str | None
    open_drill: Drill | None
    open_title: str
    rows: list[DrillScenarioRow]
    team: TeamFigures
    practice: PracticeFigures
    people: list[PersonRow]
    last: LastResult | None
    days: int
    periods: tuple[int, ...]
    chart: Document
    has_chart: bool
    windows: tuple[tuple[int, str], ...]
    target_notice: str
    target_action: str
    target_action_seconds: int


@declare_page("plant.view")
def drills_page(request: HttpRequest) -> HttpResponse:
    """Show the list of drills; `?days=` is the period of the chart."""
    now = timezone.now()
    days = next((period for period in PERIODS if request.GET.get("days") == str(period)), PERIODS[0])
    everything = results.list_results()
    recent = [result for result in everything if result.started_at >= now - RECENT]
    shown = [result for result in everything if result.started_at >= now - timedelta(days=days)]
    open_drill, chart = records.list_open_drills().first(), results.build_chart(shown)
    page = DrillsPage(
        refusal=drills.explain_absence(),
        open_drill=open_drill,
        open_title=SCENARIOS[open_drill.scenario].title if open_drill else "",
        rows=results.list_scenario_rows(everything),
        team=results.compute_team_figures(recent),
        practice=_count_practice(recent),
        people=results.list_person_rows(recent),
        last=_build_last(everything),
        days=days,
        periods=PERIODS,
        chart=chart,
        has_chart=bool(chart["points"]),
        windows=WINDOWS,
        target_notice=TARGET_NOTICE,
        target_action=TARGET_ACTION,
        target_action_seconds=TARGET_ACTION_SECONDS,
    )
    return render_page(request, page, "frame")


def _count_practice(recent: list[DrillResult]) -> PracticeFigures:
    people = User.objects.filter(is_active=True, groups__name__in=ROLES).order_by("username").distinct()
    names = list(people.values_list("username", flat=True))
    practiced = {result.person for result in recent}
    missing = [name for name in names if name not in practiced]
    return PracticeFigures(len(names) - len(missing), len(names), ", ".join(missing[:3]))


def _build_last(everything: list[DrillResult]) -> LastResult | None:
    known = [result for result in everything if result.drill.scenario in SCENARIOS]
    if not known:
        return None
    result = known[-1]
    best = max(other.score for other in known if other.drill.scenario == result.drill.scenario)
    scenario = SCENARIOS[result.drill.scenario]
    return LastResult(result, _list_parts(result.drill), records.build_debrief(result.drill), scenario.lesson, best)


def _list_parts(drill: Drill) -> list[ScorePart]:
    points = drill.points
    return [
        ScorePart("Notice", points.get("notice", 0), NOTICE.points),
        ScorePart("Right action", points.get("right_action", 0), RIGHT_ACTION.points),
        ScorePart("No wrong action", points.get("no_wrong_action", 0), NO_WRONG_ACTION),
    ]


@dataclass(frozen=True, kw_only=True)
class DrillPage(FormPage):
    """A drill: its briefing, timer, and hints while it runs, then its debrief."""

    TEMPLATE, NAME = "work/drill.html", "drills"

    drill: Drill
    scenario: DrillScenario
    is_hidden: bool  # a surprise drill that has not started
    is_open: bool
    briefing: str
    hints: list[str]
    times: DrillResult
    elapsed_seconds: float
    parts: list[ScorePart]
    rows: list[DebriefRow]


@declare_page("plant.view")
def drill_page(request: HttpRequest, drill_id: int) -> HttpResponse:
    drill = get_object_or_404(Drill, pk=drill_id, scenario__in=list(SCENARIOS))
    scenario = SCENARIOS[drill.scenario]
    now = timezone.now()
    page = DrillPage(
        drill=drill,
        scenario=scenario,
        is_hidden=drill.is_surprise and drill.started_at is None,
        is_open=drill.ended_at is None,
        briefing=scenario.briefing.format(**drill.subjects),
        hints=[hint.format(**drill.subjects) for hint in scenario.hints],
        times=results.build_result(drill),
        elapsed_seconds=((drill.ended_at or now) - (drill.started_at or now)).total_seconds(),
        parts=_list_parts(drill),
        rows=records.build_debrief(drill) if drill.ended_at else [],
    )
    return render_page(request, page, "frame")


@declare_action("drill.run", drills_page)
def start(request: HttpRequest) -> ActionResult:
    """Start a drill. Posted: scenario."""
    made = drills.start(actor_of(request), request.POST.get("scenario", ""), get_snapshot(request), timezone.now())
    return open_page("The drill starts within 15 seconds.", "drill", made.pk)


@declare_action("drill.run", drills_page)
def schedule(request: HttpRequest) -> ActionResult:
    """Schedule a surprise drill. Posted: minutes (the length of the window from now)."""
    now = timezone.now()
    end = now + timedelta(minutes=parse_minutes(request.POST) or 0)
    made = drills.schedule(actor_of(request), now, end, get_snapshot(request), now)
    window = f"before {made.window_end:%d %b %H:%M} UTC" if made.window_end else "soon"
    return ActionResult(f"A surprise drill starts {window}.", reverse("drills"))


@declare_action("drill.run", drills_page)
def stop(request: HttpRequest, drill_id: int) -> ActionResult:
    """Stop a drill, or cancel a scheduled drill."""
    drill = drills.stop(actor_of(request), drill_id, timezone.now())
    message = "The surprise drill is canceled." if drill.ended_at else "The drill stops, and its faults end now."
    return ActionResult(message, reverse("drills") if drill.ended_at else reverse("drill", args=[drill.pk]))


PAGE = DeclaredPage(
    name=DrillsPage.NAME,
    address="drills/",
    view=drills_page,
    label="Drills",
    section="lab",
    help="operate/pages/drills/",
)
