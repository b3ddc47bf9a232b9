"""Actions on one loop: its values, its mode, manual tasks, and sheds."""

from collections.abc import Sequence
from datetime import datetime

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone

from common.errors import BadInput
from console.accounts.access import actor_of
from console.actions import loops
from console.display.override_words import describe_end, format_loop_name
from console.input.form_values import is_untouched, parse_expiry, parse_number
from console.pages.frame.page import ActionResult, declare_action, report_overrides
from console.pages.loops.loops import loop_page
from console.pages.loops.parallelism_view import JOINT, list_manual_tasks
from console.pages.loops.shedding_view import load_observation, read_changed_parameters
from controllers import catalog
from controllers.shedding.law import LAW
from workers.models import Loop
from workers.steering import overrides
from workers.steering.overrides import Expiry
from workers.steering.scope import Scope

FIELD = "tasks-"


@declare_action("override.set", loop_page)
def set_tasks(request: HttpRequest, loop_id: int) -> ActionResult:
    """Set tasks of operators.

    Posted: `tasks-OPERATOR` (empty: left to the law), each with `was-tasks-OPERATOR`; reason, expiry.
    """
    loop, now = get_object_or_404(Loop, pk=loop_id, law=JOINT), timezone.now()
    before, expiry = list_manual_tasks(loop, now), parse_expiry(request.POST)
    parameter = catalog.get_parameter(catalog.get_law(JOINT), "tasks_of").items[0]
    wanted: dict[str, int | None] = {**before}
    for field, text in request.POST.items():
        if field.startswith(FIELD) and not is_untouched(request.POST, field):
            name, value = field.removeprefix(FIELD), str(text).strip()
            try:
                wanted[name] = parameter.check(parse_number(value, field), "form") if value else None
            except BadInput as error:
                raise BadInput(field, error.message) from None
    tasks = {name: count for name, count in wanted.items() if count is not None}
    others = [name for name in before if before[name] == tasks.get(name)]
    _check_expiry(loop, others, expiry, now)
    made = loops.override(
        actor_of(request),
        Scope(loop),
        {"tasks_of": tasks} if tasks != before else {},
        reason=request.POST.get("reason", ""),
        now=now,
        expiry=expiry,
    )
    what = ", ".join(f"{name.rpartition('/')[2]} {count}" for name, count in tasks.items())
    said = f"You set the tasks manually {describe_end(made[0])}: {what or 'none'}."
    return report_overrides(said, made, "loop", loop_id)


def _check_expiry(loop: Loop, others: Sequence[str], expiry: Expiry, now: datetime) -> None:
    """Reject an expiry earlier than that of tasks already set.

    One override contains all operators of a loop, so an earlier expiry would end the others' tasks too.
    """
    held = overrides.list_active(now).filter(loop=loop, name="tasks_of").select_related("owner").last()
    asked = expiry.compute(now)
    if held is None or not others or asked is None:
        return
    if held.expires_at is None or asked < held.expires_at:
        names = ", ".join(name.rpartition("/")[2] for name in others)
        by = f"{describe_end(held)} by {held.owner.get_username()}"
        said = (
            f"is too early: the manual tasks of {names} are set {by}. "
            "Choose a later expiry, or end that override first."
        )
        raise BadInput("minutes" if expiry.expires_at is None else "expires_at", said)


@declare_action("override.set", loop_page)
def weigh(request: HttpRequest, loop_id: int) -> ActionResult:
    """Put the requested bound and weights in force. Posted: them, reason, expiry."""
    loop, now = get_object_or_404(Loop, pk=loop_id, law=LAW.name), timezone.now()
    effective = overrides.get_effective_parameters(LAW, loop.parameters, overrides.list_effective(loop, now), now)
    changes = read_changed_parameters(request.POST, effective, load_observation(loop))
    made = loops.override(
        actor_of(request),
        Scope(loop),
        changes,
        reason=request.POST.get("reason", ""),
        now=now,
        expiry=parse_expiry(request.POST),
    )
    return report_overrides("A new table is calculated at the next decision.", made, "loop", loop_id)


@declare_action("loop.mode", loop_page)
def decide_mode_proposal(request: HttpRequest, loop_id: int) -> ActionResult:
    """Decide whether an advising loop acts from now on. Posted: decision (approve, reject), hash, reason."""
    loop, actor, now = get_object_or_404(Loop, pk=loop_id), actor_of(request), timezone.now()
    url, reason, title = reverse("loop", args=[loop_id]), request.POST.get("reason", ""), format_loop_name(loop.name)
    if request.POST.get("decision") == "reject":
        loops.reject_mode_proposal(actor, loop, reason=reason, now=now)
        return ActionResult(f"The loop for {title} stays in advise mode.", url, {"go": url})
    loops.approve_mode_proposal(actor, loop, request.POST.get("hash", ""), reason=reason, now=now)
    return ActionResult(f"The loop for {title} is now in auto mode and applies its next decision.", url, {"go": url})
