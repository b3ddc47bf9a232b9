"""Service levels: every objective with its remaining budget, and the form of an objective.

The page of one objective shows what used its budget.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import objectives
from console.input.form_values import parse_number, parse_row_id
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    Submitted,
    declare_action,
    declare_page,
    get_rejected_form,
    open_page,
    render_page,
    text_of,
)
from queues.models import Queue
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, TOOBUSY
from workers.documents.objectives import ObjectiveStatus
from workers.documents.snapshot import Snapshot
from workers.objectives import definitions
from workers.objectives.definitions import NAMES
from workers.objectives.error_budget import PAIRS
from workers.objectives.models import Objective
from workers.objectives.report import BurnReport

NEW = "new"
HOURS_PER_DAY = 24
DAYS_SHOWN = 30
# Hourly burn rate from which a cell gets the next shade.
SHADES = (0.0, 1.0, 6.0, 14.4)
SUBJECT_PAGES = {"queue": "queue", "application": "pipeline-application"}
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
    def left(self) -> float | None:
        """Return the share of the window's error budget that is left."""
        return self.status.window_left_share if self.status else None

    @property
    def is_spent(self) -> bool:
        """Return whether the whole error budget of the window is used up."""
        return self.left is not None and self.left <= 0


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
    """The objective whose drawer is open. row: None for a new objective. cost: of the bad part; None if unknown."""

    row: ListedObjective | None
    name: str
    revision: int | None
    form: ObjectiveForm
    speeds: list[BurnSpeed]
    cost: float | None
    days: list[DayRow]
    subjects: list[BurntPart]
    incidents: list[BurntPart]
    kinds: Collection[tuple[str, str]]
    pays: Collection[tuple[str, str]]
    names: Collection[tuple[str, Sequence[str]]]  # kind → its figures
    known_subjects: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ObjectivesPage(FormPage):
    """All objectives, the smallest remaining budget first, and the open objective."""

    TEMPLATE, NAME = "alerts/objectives.html", "objectives"

    objectives: list[ListedObjective]
    opened: OpenObjective | None


@declare_page("plant.view")
def objectives_page(request: HttpRequest, name: str = "") -> HttpResponse:
    rejected = get_rejected_form(request)
    typed, errors = rejected.submitted, rejected.errors
    name = name or typed.get("name", "")
    rows_listed = [
        _build_row(objective_row, get_snapshot(request))
        for objective_row in Objective.objects.select_related("changed_by")
    ]
    opened, applications = None, get_snapshot(request).pipeline.applications
    if name == NEW or (errors and not Objective.objects.filter(name=name).exists()):
        opened = _open_objective(None, {"kind": "queue", "target": 0.999, "window_days": 30}, typed, applications)
    elif name:
        row = get_object_or_404(Objective, name=name)
        listed = next(listed_row for listed_row in rows_listed if listed_row.objective.pk == row.pk)
        opened = _open_objective(listed, definitions.document(row), typed, applications)
    # The least left first; those that are not counted yet last.
    rows_listed.sort(key=lambda row: (2.0 if row.left is None else row.left, row.objective.name))
    return render_page(request, ObjectivesPage(objectives=rows_listed, opened=opened))


def _build_row(row: Objective, snapshot: Snapshot) -> ListedObjective:
    status = snapshot.objectives.get(row.name)
    about = f"{row.kind} {row.subject}" if row.subject else f"each {row.kind}"
    if row.kind == Objective.Kind.PLANT:
        about = "the plant"
    promise = row.condition if not row.of else f"{row.condition}, of {row.of}"
    if row.lost:
        promise = f"({row.lost}) of ({row.of})" if " " in row.lost + row.of else f"{row.lost} of {row.of}"
    state, rates = OFFLINE, dict[str, float]()
    if status is not None:
        rates = {name: rate for name, rate in status.burn.items() if rate is not None}
        over = [pair.name for pair in PAIRS if rates.get(pair.name, -1.0) >= pair.rate]
        if status.window_left_share is not None:
            spent = status.window_left_share <= 0 or "fast" in over
            state = TOOBUSY if spent else BUSY if over else NORMAL
    return ListedObjective(
        row,
        about,
        promise,
        status,
        max(0.0, 1 - status.bad / status.total) if status and status.total else None,
        max(rates.values(), default=None),
        state,
    )


def _open_objective(
    listed: ListedObjective | None, document: dict[str, Any], typed: Submitted, applications: Collection[str]
) -> OpenObjective:
    row = listed.objective if listed else None
    burnt = objectives.build_burn_report(row, timezone.now()) if row else None
    shown = {**document, "target": f"{100 * document['target']:.10g}"}
    form = {name: str(typed.get(name, shown.get(name, ""))) for name in definitions.FIELDS}
    subjects, incidents = [], []
    if row and burnt:
        whole, page = burnt.bad or math.inf, SUBJECT_PAGES.get(row.kind)
        for part in burnt.subjects:
            url = reverse(page, args=[part.subject]) if page else ""
            subjects.append(BurntPart(part.subject, url, part.bad, part.bad / whole))
        for burn in burnt.incidents:
            url = reverse("alert", args=[burn.incident.alert])
            incidents.append(BurntPart(burn.incident.title, url, burn.bad, burn.bad / whole))
    return OpenObjective(
        row=listed,
        name=row.name if row else typed.get("name", ""),
        revision=row.revision if row else None,
        form=ObjectiveForm(**form),
        speeds=([BurnSpeed(PAIR_WORDS[pair.name], listed.status.burn.get(pair.name), pair.rate) for pair in PAIRS])
        if listed and listed.status
        else [],
        cost=burnt.cost if burnt else None,
        days=_build_day_rows(row, burnt) if row and burnt else [],
        subjects=subjects,
        incidents=incidents,
        kinds=[(value, str(label)) for value, label in Objective.Kind.choices],
        pays=[(value, str(label)) for value, label in Objective.PaysFor.choices],
        names=[(kind, names) for kind, names in NAMES.items()],
        known_subjects=[*Queue.objects.order_by("name").values_list("name", flat=True), *sorted(applications)],
    )


def _build_day_rows(row: Objective, burnt: BurnReport) -> list[DayRow]:
    """Return the newest days, the latest first, of those with any counted data."""
    by_hour = {datetime.fromtimestamp(counted.at, UTC): counted for counted in burnt.hours}
    rows = []
    for day in sorted({at.replace(hour=0) for at in by_hour}, reverse=True)[:DAYS_SHOWN]:
        cells = []
        for hour in range(HOURS_PER_DAY):
            counted = by_hour.get(day + timedelta(hours=hour))
            if counted is None or counted.total <= 0:
                cells.append(HourCell(None, f"{hour}:00: no data"))
                continue
            bad = counted.bad / counted.total
            rate = bad / (1 - row.target)
            words = f"{hour}:00: {100 * bad:.3g} % bad, burn rate {rate:.1f}"
            cells.append(HourCell(sum(rate > least for least in SHADES), words))
        rows.append(DayRow(f"{day:%a} {day.day} {day:%b}", cells))
    return rows


@declare_action("objective.change", objectives_page)
def change(request: HttpRequest) -> ActionResult:
    """Create or change an objective.

    Posted: name, the fields (target in %), revision (of the objective as shown; empty for a new one), reason.
    """
    name, posted = text_of(request, "name", "Enter a name"), request.POST
    revision = posted.get("revision", "").strip()
    if not revision and Objective.objects.filter(name=name).exists():
        raise BadInput("name", "is already taken by another objective. Choose another name.")
    texts = {name: posted.get(name, "") for name in ("kind", "subject", "condition", "lost", "of", "pays_for")}
    percent = parse_number(posted.get("target", "").strip(), "target")
    days = parse_number(posted.get("window_days", "").strip() or "30", "window_days")
    made = objectives.define(
        actor_of(request),
        name,
        {**texts, "target": round(percent / 100, 10), "window_days": days},
        reason=posted.get("reason", ""),
        now=timezone.now(),
        revision=parse_row_id(revision),
    )
    url = reverse("objective", args=[made.name])
    return ActionResult(f"{made.name} saved. Measurement starts now.", url, {} if revision else {"go": url})


@declare_action("objective.change", objectives_page)
def remove(request: HttpRequest, name: str) -> ActionResult:
    """Remove an objective. Posted: reason."""
    objective_row = get_object_or_404(Objective, name=name)
    objectives.remove(actor_of(request), objective_row, reason=request.POST.get("reason", ""))
    return open_page(f"{name} and its counts were removed.", "objectives")
