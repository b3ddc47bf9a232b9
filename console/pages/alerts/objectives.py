"""Service levels: every objective with its remaining budget, and the form of an objective.

The page of one objective shows what used its budget.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import objectives
from console.input.form_values import parse_number
from console.input.row_id import parse_row_id
from console.pages.frame.action import ActionResult, declare_action, text_of
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import Errors, FormPage, Submitted, render_page
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, TOOBUSY
from workers.documents.objectives import ObjectiveStatus
from workers.documents.snapshot import Snapshot
from workers.objectives import definitions
from workers.objectives.definitions import NAMES
from workers.objectives.error_budget import PAIRS
from workers.objectives.models import Objective
from workers.objectives.report import BurnReport, HourCount, IncidentBurn

NEW = "new"
HOURS_PER_DAY = 24
DAYS_SHOWN = 30
# Hourly burn rate from which a cell gets the next shade.
SHADES = (0.0, 1.0, 6.0, 14.4)
PAIR_WORDS = {"fast": "1 h and 5 min", "medium": "6 h and 30 min", "slow": "3 d and 6 h"}


@dataclass(frozen=True)
class ListedObjective:
    """An objective, its promise in words, and its status (None: not counted yet)."""

    objective: Objective
    about: str
    promise: str
    status: ObjectiveStatus | None
    good_share: float | None
    burn: float | None
    state: str  # state of its budget, as of a node

    @property
    def is_spent(self) -> bool:
        """Return whether the whole error budget of the window is used up."""
        left = self.status.window_left_share if self.status else None
        return left is not None and left <= 0


@dataclass(frozen=True)
class BurnSpeed:
    """The burn rate over a pair of windows, and the rate that alerts."""

    windows: str
    rate: float | None
    limit: float


@dataclass(frozen=True)
class HourCell:
    """An hour of the table: its shade (0 nothing bad, to 4; None: nothing counted), and its text."""

    shade: int | None
    words: str


@dataclass(frozen=True)
class DayRow:
    """The hours of a day, UTC."""

    day: str
    cells: Sequence[HourCell]


@dataclass(frozen=True)
class BurntPart:
    """A subject or an incident, its bad amount, and its share of the whole bad amount."""

    name: str
    url: str
    bad: float
    share: float


@dataclass(frozen=True, kw_only=True)
class ObjectiveForm:
    """Values of the form: as typed, if they were rejected. target: in %."""

    kind: str
    subject: str
    condition: str
    lost: str
    of: str
    target: str
    window_days: str
    pays_for: str


@dataclass(frozen=True, kw_only=True)
class OpenObjective:
    """The objective whose drawer is open. row: None for a new objective."""

    row: ListedObjective | None
    name: str
    revision: int | None
    form: ObjectiveForm
    speeds: list[BurnSpeed]
    days: list[DayRow]
    subjects: list[BurntPart]
    incidents: list[BurntPart]
    kinds: Collection[tuple[str, str]]
    pays: Collection[tuple[str, str]]
    names: Collection[tuple[str, str]]  # kind → its figures


@dataclass(frozen=True, kw_only=True)
class ObjectivesPage(FormPage):
    """All objectives, the smallest remaining budget first, and the open objective."""

    TEMPLATE, NAME = "alerts/objectives.html", "objectives"

    objectives: list[ListedObjective]
    opened: OpenObjective | None


@require_safe
@requires("plant.view")
def service_levels(request: HttpRequest) -> HttpResponse:
    """Show the list of objectives."""
    return objectives_page(request)


@require_safe
@requires("plant.view")
def objective(request: HttpRequest, name: str) -> HttpResponse:
    """Show the list with one objective open; `new` opens an empty form."""
    return objectives_page(request, name=name)


def objectives_page(
    request: HttpRequest, errors: Errors | None = None, submitted: QueryDict | None = None, name: str = ""
) -> HttpResponse:
    typed = submitted or QueryDict()
    name = name or typed.get("name", "")
    rows_listed = [
        _build_row(objective_row, get_snapshot(request))
        for objective_row in Objective.objects.select_related("changed_by")
    ]
    opened = None
    if name == NEW or (errors and not Objective.objects.filter(name=name).exists()):
        opened = _open_objective(None, {"kind": "queue", "target": 0.999, "window_days": 30}, typed)
    elif name:
        row = get_object_or_404(Objective, name=name)
        listed = next(listed_row for listed_row in rows_listed if listed_row.objective.pk == row.pk)
        opened = _open_objective(listed, definitions.document(row), typed)
    page = ObjectivesPage(
        objectives=sorted(rows_listed, key=_least_left_first), opened=opened, errors=errors or {}, submitted=typed
    )
    return render_page(request, page)


def _least_left_first(row: ListedObjective) -> tuple[float, str]:
    share = row.status.window_left_share if row.status else None
    return (2.0 if share is None else share), row.objective.name


def _build_row(row: Objective, snapshot: Snapshot) -> ListedObjective:
    status = snapshot.objectives.get(row.name)
    good = max(0.0, 1 - status.bad / status.total) if status and status.total else None
    rates = [speed for speed in (status.burn.values() if status else ()) if speed is not None]
    return ListedObjective(
        row,
        _describe_subject(row),
        _describe_promise(row),
        status,
        good,
        max(rates, default=None),
        _compute_state(status),
    )


def _describe_subject(row: Objective) -> str:
    if row.kind == Objective.Kind.PLANT:
        return "the plant"
    return f"{row.kind} {row.subject}" if row.subject else f"each {row.kind}"


def _describe_promise(row: Objective) -> str:
    """Return the objective's promise, or what is lost, in its own words."""
    if row.lost:
        return f"({row.lost}) of ({row.of})" if " " in row.lost + row.of else f"{row.lost} of {row.of}"
    return row.condition if not row.of else f"{row.condition}, of {row.of}"


def _compute_state(status: ObjectiveStatus | None) -> str:
    """Return the state: used up, burning faster than a pair's limit, or well."""
    if status is None or status.window_left_share is None:
        return OFFLINE
    if status.window_left_share <= 0 or _is_over_burn_rate(status, "fast"):
        return TOOBUSY
    return BUSY if any(_is_over_burn_rate(status, pair.name) for pair in PAIRS) else NORMAL


def _is_over_burn_rate(status: ObjectiveStatus, name: str) -> bool:
    rate = status.burn.get(name)
    return rate is not None and rate >= next(pair.rate for pair in PAIRS if pair.name == name)


def _open_objective(listed: ListedObjective | None, document: dict[str, Any], typed: Submitted) -> OpenObjective:
    row = listed.objective if listed else None
    burnt = objectives.build_burn_report(row, timezone.now()) if row else None
    shown = {**document, "target": f"{100 * document['target']:.10g}"}
    form = {name: str(typed.get(name, shown.get(name, ""))) for name in definitions.FIELDS}
    return OpenObjective(
        row=listed,
        name=row.name if row else typed.get("name", ""),
        revision=row.revision if row else None,
        form=ObjectiveForm(**form),
        speeds=_speeds(listed.status) if listed and listed.status else [],
        days=_build_day_rows(row, burnt) if row and burnt else [],
        subjects=_list_burnt_subjects(row, burnt) if row and burnt else [],
        incidents=[_build_incident_part(incident, burnt.bad) for incident in burnt.incidents] if burnt else [],
        kinds=[(value, str(label)) for value, label in Objective.Kind.choices],
        pays=[(value, str(label)) for value, label in Objective.PaysFor.choices],
        names=[(kind, ", ".join(names)) for kind, names in NAMES.items()],
    )


def _speeds(status: ObjectiveStatus) -> list[BurnSpeed]:
    return [BurnSpeed(PAIR_WORDS[pair.name], status.burn.get(pair.name), pair.rate) for pair in PAIRS]


def _build_day_rows(row: Objective, burnt: BurnReport) -> list[DayRow]:
    """Return the newest days, the latest first, of those with any counted data."""
    by_hour = {burnt_hour.at: burnt_hour for burnt_hour in burnt.hours}
    days = sorted({_midnight(burnt_hour.at) for burnt_hour in burnt.hours}, reverse=True)[:DAYS_SHOWN]
    return [
        DayRow(
            f"{begin:%a} {begin.day} {begin:%b}",
            [
                _build_hour_cell(row, by_hour.get((begin + timedelta(hours=hour)).timestamp()), hour)
                for hour in range(HOURS_PER_DAY)
            ],
        )
        for begin in days
    ]


def _midnight(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).replace(hour=0)


def _build_hour_cell(row: Objective, counted: HourCount | None, hour: int) -> HourCell:
    if counted is None or counted.total <= 0:
        return HourCell(None, f"{hour}:00: no data")
    rate = counted.bad / counted.total / (1 - row.target)
    shade = sum(rate > least for least in SHADES)
    return HourCell(shade, f"{hour}:00: {100 * counted.bad / counted.total:.3g} % bad, burn rate {rate:.1f}")


def _list_burnt_subjects(row: Objective, burnt: BurnReport) -> list[BurntPart]:
    pages = {"queue": "queue", "application": "pipeline-application"}
    return [
        BurntPart(
            subject.subject,
            reverse(pages[row.kind], args=[subject.subject]) if row.kind in pages else "",
            subject.bad,
            subject.bad / burnt.bad if burnt.bad else 0.0,
        )
        for subject in burnt.subjects
    ]


def _build_incident_part(each: IncidentBurn, whole: float) -> BurntPart:
    url = reverse("alert", args=[each.incident.alert])
    return BurntPart(each.incident.title, url, each.bad, each.bad / whole if whole else 0.0)


@declare_action("objective.change", objectives_page)
def change(request: HttpRequest) -> ActionResult:
    """Create or change an objective.

    Posted: name, the fields (target in %), revision (of the objective as shown; empty for a new one), reason.
    """
    name = text_of(request, "name", "enter a name")
    revision = request.POST.get("revision", "").strip()
    if not revision and Objective.objects.filter(name=name).exists():
        raise BadInput("name", "is already taken by another objective; choose another name.")
    made = objectives.define(
        actor_of(request),
        name,
        _read_fields(request.POST),
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        revision=parse_row_id(revision),
    )
    url = reverse("objective", args=[made.name])
    return ActionResult(f"{made.name} saved. Measurement starts now.", url, {} if revision else {"go": url})


def _read_fields(posted: QueryDict) -> dict[str, Any]:
    texts = {name: posted.get(name, "") for name in ("kind", "subject", "condition", "lost", "of", "pays_for")}
    percent = parse_number(posted.get("target", "").strip(), "target")
    days = parse_number(posted.get("window_days", "").strip() or "30", "window_days")
    return {**texts, "target": round(percent / 100, 10), "window_days": days}


@declare_action("objective.change", objectives_page)
def remove(request: HttpRequest, name: str) -> ActionResult:
    """Remove an objective. Posted: reason."""
    objective_row = get_object_or_404(Objective, name=name)
    objectives.remove(actor_of(request), objective_row, reason=request.POST.get("reason", ""))
    url = reverse("objectives")
    return ActionResult(f"{name} and its counts were removed.", url, {"go": url})
