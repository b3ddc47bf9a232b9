"""A loop with other values (*What if*): its recorded observations decided again, next to its actual decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone

from common.errors import BadInput
from common.parsing import parse_decimal_number
from console.display.loops import DescribedLoop, ParameterRow, build_guard_rows, build_parameter_rows, describe
from console.input.form_values import is_untouched, parse_number
from console.pages.frame.page import FormPage, declare_page, render_page
from console.pages.loops.workbench import UNIT, WOULD, read_value
from controllers import catalog
from workers.control import what_if
from workers.control.kinds.registry import find_display
from workers.control.parts.kind import Lanes
from workers.models import Loop
from workers.steering import overrides

PRESETS = (0.25, 1, 2, 6, 24)
WIDTH, HEIGHT = 1_000.0, 200.0


@dataclass(frozen=True, kw_only=True)
class AskedParameter(ParameterRow):
    """A parameter with its requested value.

    would: the requested value in the unit shown; the value in force if nothing is requested.
    """

    would: object


@dataclass(frozen=True, kw_only=True)
class RerunChart:
    """Actual and hypothetical values as step lines in a box of width by height.

    high and low are the values at its edges, from and to the times (Unix time) at its sides.
    """

    did: str
    would: str
    high: float
    low: float
    from_seconds: float
    to_seconds: float
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True, kw_only=True)
class WhatIfPage(FormPage):
    """A loop with other values. rerun: None until something is requested."""

    TEMPLATE, NAME = "loops/what_if.html", "loops"

    loop: DescribedLoop
    lanes: Lanes
    rows: list[AskedParameter]  # of law and guard
    changed: Mapping[str, Any]
    rerun: what_if.Rerun | None
    chart: RerunChart | None
    hours: float
    presets: Sequence[float]


@declare_page("plant.view")
def page(request: HttpRequest, loop_id: int) -> HttpResponse:
    """Show the page. The address contains everything: hours, and for each value `would-NAME` with `was-would-NAME`."""
    loop, now = get_object_or_404(Loop, pk=loop_id), timezone.now()
    law, held = catalog.get_law(loop.law), overrides.list_for_loop(loop, now)
    counted = overrides.select_effective(loop, held, now)
    rows = build_parameter_rows(law, loop.parameters, counted, now) + build_guard_rows(law, loop.guard, counted, now)
    errors: dict[str, list[str]] = {}
    changed: dict[str, Any] = {}
    rerun_result, hours = None, what_if.FIRST_HOURS
    # Values in the address may be in the law's own unit.
    typed, asked_values = {}, {row.name: row.shown.effective for row in rows}
    for row in rows:
        text = request.GET.get(WOULD + row.name, "").strip()
        if text and not is_untouched(request.GET, WOULD + row.name):
            typed[row.name] = text
            number = None if request.GET.get(UNIT + row.name) else parse_decimal_number(text)
            is_own = number is not None and row.shown.factor != 1.0
            asked_values[row.name] = number * row.shown.factor if is_own and number is not None else text
    try:
        text = request.GET.get("hours", "")
        hours = what_if.check_hours(float(parse_number(text, "hours")) if text.strip() else hours)
        for row in rows:
            if row.name in typed:
                value = read_value(catalog.get_parameter(law, row.name), request.GET, row.name, row.effective)
                if value != row.effective:
                    changed[row.name] = value
        if changed:
            rerun_result = what_if.rerun_last_hours(loop, changed, hours, now)
    except BadInput as error:
        errors = {error.field: [error.message]}
    asked = WhatIfPage(
        loop=describe(loop, held, now),
        lanes=find_display(loop.law, loop.target).lanes,
        rows=[AskedParameter(**vars(row), would=asked_values[row.name]) for row in rows],
        changed=changed,
        rerun=rerun_result,
        chart=build_chart(rerun_result.steps) if rerun_result and rerun_result.steps else None,
        hours=hours,
        presets=PRESETS,
        errors=errors,
    )
    return render_page(request, asked)


def build_chart(steps: Sequence[what_if.RerunStep]) -> RerunChart:
    """Return a chart from 0 (or the minimum) to the maximum of both lines."""
    first, last = steps[0].at.timestamp(), steps[-1].at.timestamp()
    low = min(0.0, *(min(step.did, step.would) for step in steps))
    high = max(max(step.did, step.would) for step in steps)
    span, reach = max(last - first, 1e-9), max(high - low, 1e-9)

    def place(at: datetime, size: float) -> tuple[float, float]:
        return (at.timestamp() - first) / span * WIDTH, (high - size) / reach * HEIGHT

    return RerunChart(
        did=_draw_step_path([place(step.at, step.did) for step in steps]),
        would=_draw_step_path([place(step.at, step.would) for step in steps]),
        high=high,
        low=low,
        from_seconds=first,
        to_seconds=last,
    )


def _draw_step_path(points: Sequence[tuple[float, float]]) -> str:
    """Return a step line as an SVG path; ranges without a change are one line."""
    parts, level = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"], points[0][1]
    for x, y in points[1:]:
        if y != level:
            parts.append(f"H{x:.1f}V{y:.1f}")
            level = y
    return "".join([*parts, f"H{points[-1][0]:.1f}"])
