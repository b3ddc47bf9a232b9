"""Results of drills: the best times by scenario, medians of the team, and results by person."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from console.display.formats import format_minutes
from console.drills.records import compute_seconds, is_scored
from console.drills.scenarios import SCENARIOS, DrillScenario
from console.models import Drill

RUNNING_MEDIAN = 5
COLUMNS = (
    "drill", "scenario", "person", "surprise", "started", "alert", "notice_seconds", "action_seconds",
    "recovery_seconds", "notice_points", "action_points", "no_wrong_action_points", "score", "ending",
)  # fmt: skip


@dataclass(frozen=True)
class DrillResult:
    """A drill that was scored; times in seconds after its alert."""

    drill: Drill
    title: str
    person: str
    started_at: datetime
    notice_seconds: float | None
    action_seconds: float | None
    recovery_seconds: float | None
    score: int


@dataclass(frozen=True)
class DrillScenarioRow:
    """A scenario with the best times of the team, and the last score; None before its first run."""

    scenario: DrillScenario
    notice_seconds: float | None
    action_seconds: float | None
    last_score: int | None
    runs: int


@dataclass(frozen=True)
class TeamFigures:
    """Medians of drills, and their number."""

    notice_seconds: float | None
    action_seconds: float | None
    score: int | None
    drills: int


@dataclass(frozen=True)
class PersonRow:
    """The results of a person, and the best score."""

    person: str
    figures: TeamFigures
    best: int


def build_result(drill: Drill) -> DrillResult:
    """Return the result of a drill that has started."""
    scenario = SCENARIOS.get(drill.scenario)
    return DrillResult(
        drill,
        scenario.title if scenario else drill.scenario,
        drill.person or "nobody",
        drill.started_at or drill.created_at,
        compute_seconds(drill, drill.noticed_at),
        drill.action_seconds,
        compute_seconds(drill, drill.recovered_at),
        drill.score or 0,
    )


def list_results(since: datetime | None = None) -> list[DrillResult]:
    """Return the scored results, the oldest first."""
    rows = Drill.objects.exclude(ended_at=None).exclude(started_at=None).order_by("started_at")
    if since is not None:
        rows = rows.filter(started_at__gte=since)
    return [build_result(drill) for drill in rows if is_scored(drill)]


def list_scenario_rows(results: Iterable[DrillResult]) -> list[DrillScenarioRow]:
    by_name: dict[str, list[DrillResult]] = {name: [] for name in SCENARIOS}
    for result in results:
        by_name.setdefault(result.drill.scenario, []).append(result)
    return [
        DrillScenarioRow(
            scenario,
            min(_list_known(by_name[name], "notice_seconds"), default=None),
            min(_list_known(by_name[name], "action_seconds"), default=None),
            by_name[name][-1].score if by_name[name] else None,
            len(by_name[name]),
        )
        for name, scenario in SCENARIOS.items()
    ]


def _list_known(results: Sequence[DrillResult], name: str) -> list[float]:
    values = (getattr(result, name) for result in results)
    return [value for value in values if value is not None]


def find_median(results: Sequence[DrillResult], name: str) -> float | None:
    values = _list_known(results, name)
    return median(values) if values else None


def compute_team_figures(results: Sequence[DrillResult]) -> TeamFigures:
    """Return the medians of the team."""
    score = find_median(results, "score")
    times = find_median(results, "notice_seconds"), find_median(results, "action_seconds")
    return TeamFigures(*times, None if score is None else round(score), len(results))


def list_person_rows(results: Sequence[DrillResult]) -> list[PersonRow]:
    """Return the results by person, the best first."""
    by_person: dict[str, list[DrillResult]] = {}
    for result in results:
        by_person.setdefault(result.person, []).append(result)
    rows = [
        PersonRow(person, compute_team_figures(own), max(result.score for result in own))
        for person, own in by_person.items()
    ]
    return sorted(rows, key=lambda row: (-(row.figures.score or 0), row.person))


def build_chart(results: Sequence[DrillResult]) -> dict[str, object]:
    """Return the points of the chart of times to the right action, and their running median."""
    acted = [result for result in results if result.action_seconds is not None]
    points = [
        {
            "at": result.started_at.timestamp(),
            "person": result.person,
            "drill": result.title,
            "seconds": result.action_seconds,
            "notice": format_minutes(result.notice_seconds),
            "score": result.score,
        }
        for result in acted
    ]
    medians = [
        {
            "at": acted[place].started_at.timestamp(),
            "seconds": find_median(acted[place - RUNNING_MEDIAN + 1 : place + 1], "action_seconds"),
        }
        for place in range(RUNNING_MEDIAN - 1, len(acted))
    ]
    return {"points": points, "medians": medians}


def build_export_row(drill: Drill) -> dict[str, object]:
    """Return the columns of a drill that has started, with a value for each of `COLUMNS`."""
    result = build_result(drill)
    values = (
        drill.pk,
        drill.scenario,
        drill.person,
        drill.is_surprise,
        result.started_at.isoformat(),
        drill.alerted_at.isoformat() if drill.alerted_at else None,
        result.notice_seconds,
        result.action_seconds,
        result.recovery_seconds,
        *(drill.points.get(name) for name in ("notice", "right_action", "no_wrong_action")),
        drill.score,
        drill.ending,
    )
    return dict(zip(COLUMNS, values, strict=True))
