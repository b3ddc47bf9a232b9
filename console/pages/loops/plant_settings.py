"""The plant's settings and each loop's own values: range, current value, and last change."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import plant_settings
from console.display.loops import ParameterRow, build_guard_rows, build_parameter_rows
from console.display.override_words import format_loop_name, format_short_value
from console.input.form_values import parse_named_numbers, parse_number
from console.models import AuditEntry
from console.pages.frame.page import ActionResult, FormPage, declare_action, declare_page, render_page
from console.pages.loops.workbench import parse_value
from controllers import catalog
from workers.control.kinds.registry import get_kind
from workers.models import Loop
from workers.steering import plant_settings as plant_settings_of
from workers.steering.scope import list_active_loops


@dataclass(frozen=True, kw_only=True)
class OwnParameter(ParameterRow):
    """A loop's own value, which does not expire.

    changed: when a person set it last; None: never. follows: what the value is kept equal to; "" if people set it.
    """

    changed: AuditEntry | None
    follows: str


@dataclass(frozen=True, kw_only=True)
class PlantSettingsPage(FormPage):
    """The plant's settings, and the own values of one loop."""

    TEMPLATE, NAME = "loops/plant_settings.html", "settings"

    settings: list[plant_settings.ShownSetting]
    loops: list[Loop]
    loop: Loop | None  # the selected loop
    own: list[OwnParameter]


@declare_page("plant.view")
def settings_page(request: HttpRequest, loop_id: int | None = None) -> HttpResponse:
    """Show the settings, and the loop that the address selects."""
    loops = list(list_active_loops().order_by("name"))
    wanted = str(loop_id or request.GET.get("loop", ""))
    chosen = next((loop for loop in loops if str(loop.pk) == wanted), loops[0] if loops else None)
    page = PlantSettingsPage(
        settings=plant_settings.list_setting_rows(), loops=loops, loop=chosen, own=own_rows(chosen) if chosen else []
    )
    return render_page(request, page)


def own_rows(loop: Loop) -> list[OwnParameter]:
    """Return a loop's parameters and guard without overrides, and who set them last."""
    law, now = catalog.get_law(loop.law), timezone.now()
    rows = build_parameter_rows(law, loop.parameters, [], now) + build_guard_rows(law, loop.guard, [], now)
    noted = AuditEntry.objects.filter(action="settings.change", target__startswith=f"{loop.name} ")
    last = {noted_loop.target.removeprefix(f"{loop.name} "): noted_loop for noted_loop in noted.order_by("pk")}
    followed = get_kind(loop.law).followed
    return [OwnParameter(**vars(row), changed=last.get(row.name), follows=followed.get(row.name, "")) for row in rows]


@declare_action("settings.change", settings_page)
def change(request: HttpRequest, name: str) -> ActionResult:
    """Change a setting. Posted: value, reason."""
    text = request.POST.get("value", "").strip()
    declared = plant_settings_of.find_declaration(name)
    value: object
    if declared.kind == "map":
        value = parse_named_numbers(text, "value")
    else:
        value = None if declared.or_null and not text else parse_number(text, "value")
    reason = request.POST.get("reason", "")
    before, after = plant_settings.change_setting(actor_of(request), name, value, reason, timezone.now())
    here = reverse("plant-settings")
    is_now, was = plant_settings_of.format_setting(after), plant_settings_of.format_setting(before)
    return ActionResult(f"{name} is now {is_now}; it was {was}.", here, {"go": here})


@declare_action("settings.change", settings_page)
def change_own(request: HttpRequest, loop_id: int) -> ActionResult:
    """Change a loop's own value. Posted: name, value (empty: the default again), reason."""
    loop, posted = get_object_or_404(Loop, pk=loop_id), request.POST
    name, text = posted.get("name", ""), posted.get("value", "").strip()
    value: object = None
    if text:
        value = parse_value(catalog.get_parameter(catalog.get_law(loop.law), name), text, "value")
    elif not name:
        raise BadInput("name", "is missing. Choose a parameter.")
    reason = posted.get("reason", "")
    _, after = plant_settings.change_own(actor_of(request), loop, name, value, reason=reason, now=timezone.now())
    here = f"{reverse('plant-settings')}?loop={loop.pk}"
    what = f"{name.replace('_', ' ').capitalize()} of {format_loop_name(loop.name)}"
    said = f"{what} is {format_short_value(after)}, starting with the next decision of the loop."
    return ActionResult(said, here, {"go": here})
