"""The plant's resource use, and a loop's savings against its baselines on its record.

The figures are in money if prices are set.
"""

import time
from dataclasses import dataclass

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from common.errors import BadInput
from console.connections.control_server import control, load_latest_snapshot
from console.input.form_values import parse_number
from console.pages.frame.page import ConsolePage, Errors, declare_page, render_page
from workers.control import costs
from workers.control.costs import FIRST_HOURS, LoopCosts, PlantCosts
from workers.control.kinds.registry import KINDS
from workers.models import Loop
from workers.steering.prices import Prices, load_prices
from workers.steering.scope import list_active_loops


@dataclass(frozen=True, kw_only=True)
class CostsPage(ConsolePage):
    """The costs page.

    plant, costs: None if the address is invalid, the control server does not answer, or no loop is replayed.
    """

    TEMPLATE, NAME = "records/costs.html", "loops"

    hours: float
    prices: Prices
    plant: PlantCosts | None
    loops: list[Loop]
    loop: Loop | None
    costs: LoopCosts | None
    errors: Errors


@declare_page("plant.view")
def page(request: HttpRequest) -> HttpResponse:
    """Show the costs of `?loop=ID&hours=…`; without a loop, of the plant only."""
    errors: dict[str, list[str]] = {}
    plant, costs_of_loop, hours, now, status = None, None, FIRST_HOURS, timezone.now(), 200
    baselines = [name for name, kind in KINDS.items() if kind.tuning.replay is not None]
    here = list_active_loops().filter(law__in=baselines).exclude(target__has_key="plant")
    loops = list(here.order_by("name"))
    loop = next((loop_choice for loop_choice in loops if str(loop_choice.pk) == request.GET.get("loop", "")), None)
    try:
        text = request.GET.get("hours", "").strip()
        hours = float(parse_number(text, "hours")) if text else FIRST_HOURS
        if loop is not None:
            costs_of_loop = costs.compute_loop_costs(loop, hours, now, time.monotonic)
        plant = costs.compute_plant_costs(control(), settings.WEIR_DATA, load_latest_snapshot(), hours, now)
    except BadInput as error:
        errors, status = {error.field: [error.message]}, 422
    except redis.RedisError as error:
        said = f"is not responding ({error}). Resource use is unknown. Try again in a moment."
        errors, status = {"control": [said]}, 503
    shown = CostsPage(
        hours=hours, prices=load_prices(), plant=plant, loops=loops, loop=loop, costs=costs_of_loop, errors=errors
    )
    return render_page(request, shown, "frame", status)
