"""The form of a planned window, as the page of a new one and the page that changes one show it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from console.accounts.access import actor_of
from console.actions import windows
from console.input.form_values import parse_whole_number
from console.pages.alerts.silences import MatcherRow, build_matcher_rows, read_matchers
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import get_rejected_form
from queues.models import Node, Queue
from workers.alerts.rules import rules
from workers.windows.models import PlannedWindow
from workers.windows.recurrence import list_time_zones
from workers.windows.scope import OWN_PLANT

FORM_FIELDS = ("name", "kind", "loop_mode", "date", "time", "time_zone", "minutes", "rrule")
DEFAULTS = {
    "name": "",
    "kind": "maintenance",
    "loop_mode": "unchanged",
    "time_zone": "UTC",
    "minutes": "120",
    "rrule": "",
}
LOOP_MODES = (("unchanged", "Unchanged"), ("advise", "Advise: record actions only"), ("hold", "Hold: no actions"))


@dataclass(frozen=True, kw_only=True)
class WindowForm:
    """Values of the form, as typed if they were rejected."""

    name: str
    kind: str
    scope: Collection[str]
    loop_mode: str
    date: str
    time: str
    time_zone: str
    minutes: str
    rrule: str


@dataclass(frozen=True, kw_only=True)
class WindowFormFields:
    """The content of a page with the form, in addition to its fields."""

    form: WindowForm
    rows: list[MatcherRow]
    labels: Collection[str]
    operators: Collection[str]
    kinds: Collection[tuple[str, str]]
    loop_modes: Collection[tuple[str, str]]
    subjects: Collection[tuple[str, str]]
    zones: Collection[str]
    may_plan_freezes: bool


def collect_form_values(request: HttpRequest, window: PlannedWindow | None, times: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of `WindowFormFields`. window: whose values the form has; times: its date and time."""
    typed, may_plan_freezes = get_rejected_form(request).submitted, actor_of(request).may_somewhere("freeze.manage")
    shown, scope = {**DEFAULTS, **times}, list[str]()
    if window is not None:
        shown |= windows.describe_window(window)
        scope = window.scope
    if typed:
        scope = typed.getlist("scope")
    matchers = read_matchers(typed) if typed else window.expected if window else []
    return {
        "form": WindowForm(scope=scope, **{name: str(typed.get(name, shown[name])) for name in FORM_FIELDS}),
        "rows": build_matcher_rows(matchers),
        "labels": rules.LABELS,
        "operators": rules.OPERATORS,
        "kinds": list_kinds(may_plan_freezes),
        "loop_modes": LOOP_MODES,
        "subjects": list_subjects(request),
        "zones": list_time_zones(),
        "may_plan_freezes": may_plan_freezes,
    }


def list_kinds(may_plan_freezes: bool) -> list[tuple[str, str]]:
    """Return the kinds of windows that a user may plan, with their labels."""
    kinds = [(value, str(label)) for value, label in PlannedWindow.Kind.choices]
    return [row for row in kinds if may_plan_freezes or row[0] != PlannedWindow.Kind.FREEZE]


def list_subjects(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the subjects that a window may name, with their labels."""
    snapshot = get_snapshot(request)
    named = (
        *(f"queue/{name}" for name in Queue.objects.order_by("name").values_list("name", flat=True)),
        *(f"node/{name}" for name in Node.objects.order_by("name").values_list("name", flat=True)),
        *(f"application/{name}" for name in sorted(snapshot.pipeline.applications)),
        *(f"plant/{name}" for name in sorted(snapshot.plants)),
    )
    return [(OWN_PLANT, "The whole plant"), *((subject, subject.replace("/", " ", 1)) for subject in named)]


def read_posted_fields(request: HttpRequest) -> dict[str, Any]:
    """Return the posted fields of a window, as the action reads them. Raises `BadInput`."""
    posted = request.POST
    kind = posted.get("kind", "")
    fields: dict[str, Any] = {"name": posted.get("name", ""), "kind": kind, "rrule": posted.get("rrule", "")}
    fields |= {"time_zone": posted.get("time_zone", ""), "start": f"{posted.get('date', '')}T{posted.get('time', '')}"}
    return {
        **fields,
        "minutes": parse_whole_number(posted.get("minutes", ""), "minutes"),
        # Fields that the form hides for this kind may still have values.
        "scope": [] if kind == PlannedWindow.Kind.SILENCE else posted.getlist("scope"),
        "loop_mode": "unchanged" if kind == PlannedWindow.Kind.SILENCE else posted.get("loop_mode", "unchanged"),
        "expected": [] if kind == PlannedWindow.Kind.FREEZE else read_matchers(posted),
    }
