"""Loop pages: what controls the plant, its parameters, and overrides."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import loops as steering
from console.connections.control_server import control
from console.display.loops import DescribedLoop, build_guard_rows, build_parameter_rows, describe
from console.display.override_words import describe_mode, describe_overrides
from console.display.plant_words import ShownModeProposal, ShownReport, find_mode_proposal, report_of
from console.input.form_values import is_untouched, parse_expiry, parse_number
from console.pages.frame.frame import get_snapshot
from console.pages.frame.page import (
    ActionResult,
    ConsolePage,
    FormPage,
    declare_action,
    declare_page,
    render_page,
    report_overrides,
)
from console.pages.frame.past import time_shown
from console.pages.loops import exploration, parallelism_view, prediction, shedding_view
from console.pages.loops.exploration import ShownExploration
from console.pages.loops.loop_condition import LoopCondition, build_condition
from console.pages.loops.loop_list import GROUPINGS, STATES, GroupedLoops, Grouping, build_loop_list
from console.pages.loops.parallelism_view import ShownParallelism
from console.pages.loops.prediction import ShownEffect, ShownPrediction
from console.pages.loops.shedding_view import ShownShedding
from console.pages.loops.workbench import WOULD, Workbench, build_workbench, parse_value, read_value
from console.pages.queues.queues import LadderSteps, build_ladder
from console.web.template_context import TemplateContext, render_context
from controllers import catalog
from controllers.concurrency.law import LAW as CONCURRENCY
from controllers.shedding import ladder
from controllers.shedding.law import LAW as SHEDDING
from workers.control.kinds.registry import find_display, get_kind
from workers.control.ledger import runs
from workers.control.ledger.runs import TickRun
from workers.control.parts.kind import ChartLane, Lanes
from workers.models import LedgerEntry, Loop
from workers.steering import overrides
from workers.steering.scope import Scope

LATEST_LINES = 60  # before equal ones are folded


@dataclass(frozen=True, kw_only=True)
class LoopsPage(ConsolePage):
    """All loops."""

    TEMPLATE, NAME = "loops/loops.html", "loops"

    listed: GroupedLoops
    by: Grouping
    groupings: Mapping[Grouping, str]
    shown: str  # the state to show; "" for all


@dataclass(frozen=True, kw_only=True)
class LoopPage(FormPage):
    """One loop. Fields that only some laws have are None for the others."""

    TEMPLATE, NAME = "loops/loop.html", "loops"

    loop: DescribedLoop
    lanes: Lanes
    chart: Sequence[ChartLane]
    condition: LoopCondition
    activity: str  # what it tests now; empty for nothing
    law_words: list[str]  # templates that describe the law: the first that exists is used
    purpose: str
    formula: str
    bench: Workbench
    prediction: ShownPrediction | None
    effect: ShownEffect | None  # if there is neither prediction nor exploration
    shedding: ShownShedding | None
    ladder: LadderSteps | None
    parallelism: ShownParallelism | None
    exploration: ShownExploration | None
    mode_proposal: ShownModeProposal | None
    first_report: ShownReport | None  # of a loop that advises at a neighbor's plant
    entries: list[LedgerEntry | TickRun]  # the latest lines of its ledger


@dataclass(frozen=True, kw_only=True)
class ExplorationPart(TemplateContext):
    """The exploration part of the loop's page, rendered again for other parameters."""

    TEMPLATE = "loops/parts/exploration.html"

    loop: Loop
    exploration: ShownExploration


@dataclass(frozen=True, kw_only=True)
class PredictionPart(TemplateContext):
    """The prediction part of the loop's page, rendered again for other parameters."""

    TEMPLATE = "loops/parts/prediction.html"

    loop: Loop
    prediction: ShownPrediction | None


@dataclass(frozen=True, kw_only=True)
class EffectPart(TemplateContext):
    """The effect part of the loop's page, rendered again for other parameters."""

    TEMPLATE = "loops/parts/effect.html"

    loop: Loop
    effect: ShownEffect


@declare_page("plant.view")
def loops(request: HttpRequest) -> HttpResponse:
    wanted, shown = request.GET.get("by", ""), request.GET.get("show", "")
    by: Grouping = next((grouping for grouping in GROUPINGS if grouping == wanted), "law")
    shown = shown if shown in STATES else ""
    page = LoopsPage(
        listed=build_loop_list(
            get_snapshot(request), actor_of(request), time_shown(request), by, shown, request.GET.get("rows") == "all"
        ),
        by=by,
        groupings=GROUPINGS,
        shown=shown,
    )
    return render_page(request, page, "loops")


@declare_page("plant.view")
def loop_page(request: HttpRequest, loop_id: int) -> HttpResponse:
    shown_loop = get_object_or_404(Loop, pk=loop_id)
    now = timezone.now()
    held = overrides.list_for_loop(shown_loop, now)
    counted = overrides.select_effective(shown_loop, held, now)
    law = catalog.get_law(shown_loop.law)
    effective = overrides.get_effective_parameters(law, shown_loop.parameters, counted, now)
    errors: dict[str, list[str]] = {}
    shedding = None
    if shown_loop.law == SHEDDING.name:
        row = get_snapshot(request).pipeline.applications.get(shown_loop.target.get("application", ""))
        try:
            shedding = shedding_view.shed_view(shown_loop, effective, row, request.GET)
        except BadInput as error:  # invalid requested values are left out
            shedding = shedding_view.shed_view(shown_loop, effective, row, {})
            errors = {error.field: [error.message]}
    threads = None
    with suppress(BadInput):  # an invalid number is ignored
        threads = exploration.read_asked(request.GET.get("threads", ""))
    display, status = find_display(shown_loop.law, shown_loop.target), get_snapshot(request).loops.get(shown_loop.name)
    predicts = prediction.build_prediction(shown_loop.law, effective)
    explored = exploration.build_exploration(shown_loop, effective, threads)
    page = LoopPage(
        loop=describe(shown_loop, held, now),
        lanes=display.lanes,
        chart=display.build_chart(shown_loop, effective),
        condition=build_condition(
            shown_loop,
            law,
            display,
            get_snapshot(request),
            overrides.get_effective_guard(law, shown_loop.guard, counted, now),
        ),
        activity=display.activity(status) if display.activity and status else "",
        purpose=display.purpose,
        formula=display.formula,
        law_words=[f"loops/laws/{shown_loop.law}.html", "loops/laws/any.html"],
        bench=build_workbench(
            display,
            build_parameter_rows(law, shown_loop.parameters, counted, now),
            build_guard_rows(law, shown_loop.guard, counted, now),
        ),
        prediction=predicts,
        effect=None if predicts or explored else prediction.build_effect(shown_loop, {}, now),
        shedding=shedding,
        ladder=build_ladder(shown_loop.target["queue"])
        if (shown_loop.law == ladder.LAW.name and "queue" in shown_loop.target)
        else None,
        parallelism=parallelism_view.build_view(
            shown_loop, get_snapshot(request), parallelism_view.StoredFigures(control(), settings.WEIR_DATA), now
        ),
        exploration=explored,
        mode_proposal=find_mode_proposal(shown_loop),
        first_report=report_of(shown_loop.pk),
        entries=runs.list_latest_lines(shown_loop, LATEST_LINES),
        errors=errors,
    )
    view = f"queue:{shown_loop.target['queue']}" if "queue" in shown_loop.target else "whole"
    return render_page(request, page, view)


@declare_page("plant.view")
def render_prediction(request: HttpRequest, loop_id: int) -> HttpResponse:
    """Render the part of the loop's page that compares the parameters in force and the requested ones.

    The requested ones are `would-NAME` and `threads`. The part's sentence names invalid values.
    """
    shown_loop = get_object_or_404(Loop, pk=loop_id)
    if shown_loop.law != CONCURRENCY.name and get_kind(shown_loop.law).tuning.promise is None:
        now, refusal, changed = timezone.now(), "", {}
        try:
            changed = _parse_values(request.GET, shown_loop, now)
        except BadInput as error:
            refusal = f"{error.field.removeprefix(WOULD).replace('_', ' ')} {error.message}"
        effect = prediction.build_effect(shown_loop, changed, now, refusal)
        return render_context(request, EffectPart(loop=shown_loop, effect=effect))
    law, now = catalog.get_law(shown_loop.law), timezone.now()
    in_force = overrides.get_effective_parameters(
        law, shown_loop.parameters, overrides.list_effective(shown_loop, now), now
    )
    refusal, would = "", None
    try:
        would = dict(in_force)
        for parameter in law.parameters:
            field = WOULD + parameter.name
            if request.GET.get(field, "").strip() and not is_untouched(request.GET, field):
                would[parameter.name] = read_value(parameter, request.GET, parameter.name, in_force[parameter.name])
        asked = exploration.read_asked(request.GET.get("threads", ""))
        explored = exploration.build_exploration(shown_loop, in_force, asked, would)
    except BadInput as error:
        field = error.field.removeprefix(WOULD).removeprefix("parameters.")
        refusal = f"{field.replace('_', ' ')} {error.message}"
        explored, would = exploration.build_exploration(shown_loop, in_force), None
    if explored is not None:
        part = ExplorationPart(loop=shown_loop, exploration=replace(explored, refusal=refusal))
        return render_context(request, part)
    told = prediction.build_prediction(shown_loop.law, in_force, would, refusal)
    return render_context(request, PredictionPart(loop=shown_loop, prediction=told))


@declare_action("override.set", loop_page)
def override(request: HttpRequest, loop_id: int) -> ActionResult:
    """Override values of a loop.

    Posted: name and value, or `would-NAME` per parameter with `was-would-NAME` (unchanged values are left out); reason;
    expiry.
    """
    shown_loop = get_object_or_404(Loop, pk=loop_id)
    now = timezone.now()
    try:
        made = steering.override(
            actor_of(request),
            Scope(shown_loop),
            _parse_values(request.POST, shown_loop, now),
            reason=request.POST.get("reason", ""),
            now=now,
            expiry=parse_expiry(request.POST),
        )
    except BadInput as error:
        # A parameter's error belongs to its own field if the page's fields were posted.
        if error.field != "value" or "name" in request.POST:
            raise
        fields = [name for name in request.POST if name.startswith(WOULD)]
        raise BadInput(fields[0] if len(fields) == 1 else "value", error.message) from None
    return report_overrides(describe_overrides(made), made, "loop", loop_id)


def _parse_values(values: Mapping[str, str], loop: Loop, now: datetime) -> dict[str, Any]:
    """Return the changed values of a form. Raises `BadInput` that names the field."""
    law = catalog.get_law(loop.law)
    if "name" in values:
        name = values["name"]
        return {name: parse_value(catalog.get_parameter(law, name), values.get("value", ""), "value")}
    held = overrides.list_effective(loop, now)
    rows = build_parameter_rows(law, loop.parameters, held, now) + build_guard_rows(law, loop.guard, held, now)
    wanted = {}
    for row in rows:
        name = row.name
        text = values.get(WOULD + name)
        if text is None or is_untouched(values, WOULD + name):
            continue
        if not (row.effective is None and not text.strip()):
            value = read_value(catalog.get_parameter(law, name), values, name, row.effective)
            if value != row.effective:
                wanted[name] = value
    return wanted


@declare_action("loop.mode", loop_page)
def mode(request: HttpRequest, loop_id: int) -> ActionResult:
    """Set the mode of a loop.

    Posted: mode (auto, advise, hold, manual), reason, minutes (required for hold and manual), value (manual).
    """
    shown_loop = get_object_or_404(Loop, pk=loop_id)
    value = request.POST.get("value", "").strip()
    made = steering.set_mode(
        actor_of(request),
        shown_loop,
        request.POST.get("mode", ""),
        reason=request.POST.get("reason", ""),
        now=timezone.now(),
        expiry=parse_expiry(request.POST),
        value=parse_number(value, "value") if value else None,
    )
    return report_overrides(describe_mode(shown_loop, request.POST["mode"], made), made, "loop", loop_id)
